"""Sitemaps in all their forms, and what only looks like one."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.parse import SITEMAP_URLS_MAX, Sitemap, SitemapURL, looks_like_sitemap, parse_sitemap
from drumlin.parse.sitemap import LOC_BYTES_MAX, SITEMAP_CHARS_MAX

URLSET = b"""<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="x">
  <url><loc> http://a.example/?x=1&amp;y=2 </loc><lastmod>2024-05-01</lastmod><priority>0.8</priority>
    <image:image><image:loc>http://a.example/i.png</image:loc></image:image></url>
  <url><priority>7</priority><loc><![CDATA[http://a.example/b]]></loc></url>
  <url><lastmod>2024</lastmod></url>
</urlset>"""
INDEX = b"<sitemapindex><sitemap><loc>http://a.example/1.xml.gz</loc></sitemap><sitemap><loc>/2.xml</loc></sitemap></sitemapindex>"


def locations(body: bytes) -> list[str]:
    return [entry.loc for entry in parse_sitemap(body, "http://a.example/sitemap.xml").urls]


def test_a_urlset_gives_locations_and_priorities() -> None:
    assert parse_sitemap(URLSET, "").urls == [
        SitemapURL("http://a.example/?x=1&y=2", 0.8),
        SitemapURL("http://a.example/b", None),
    ]


def test_an_index_gives_sitemaps() -> None:
    sitemap = parse_sitemap(INDEX, "")
    assert sitemap.urls == []
    assert sitemap.sitemaps == ["http://a.example/1.xml.gz", "/2.xml"]


def test_a_gzipped_sitemap_is_read_and_a_torn_one_as_far_as_it_goes() -> None:
    assert len(locations(gzip.compress(URLSET, mtime=0))) == 2
    entries = b"".join(b"<url><loc>http://a.example/%d</loc></url>" % number**3 for number in range(30_000))
    packed = gzip.compress(b"<urlset>" + entries, mtime=0)
    assert 1000 < len(locations(packed[:-1000])) < 30_000
    assert locations(packed[:5]) == []


def test_a_prefix_of_the_root_is_that_of_its_entries() -> None:
    assert locations(b"<sm:urlset xmlns:sm='x'><sm:url><sm:loc>http://a.example/</sm:loc></sm:url></sm:urlset>") == [
        "http://a.example/"
    ]


def test_a_list_of_urls_is_a_sitemap() -> None:
    assert locations(b"\xef\xbb\xbfhttp://a.example/1\r\n\nHTTPS://a.example/2 \nnot a URL\n") == [
        "http://a.example/1",
        "HTTPS://a.example/2",
    ]


def test_rss_and_atom_give_the_pages_of_their_entries() -> None:
    rss = (
        b"<rss><channel><link>http://a.example/</link><item><title>t</title><link>http://a.example/1</link>"
        b"<pubDate>Wed, 01 May 2024 00:00:00 GMT</pubDate></item></channel></rss>"
    )
    assert parse_sitemap(rss, "").urls == [SitemapURL("http://a.example/1", None)]
    atom = (
        b"<feed><link href='http://a.example/'/><entry><link rel='self' href='/x'/><link rel='alternate' href='/1'/>"
        b'<updated>2024-05-01T00:00:00Z</updated></entry><entry><link href="/2"/></entry></feed>'
    )
    assert parse_sitemap(atom, "").urls == [SitemapURL("/1", None), SitemapURL("/2", None)]


def test_entities_are_not_expanded() -> None:
    bomb = b"<!DOCTYPE u [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><urlset><url><loc>http://a.example/&b;</loc></url></urlset>"
    assert locations(bomb) == ["http://a.example/&b;"]


def test_the_number_of_urls_is_bounded() -> None:
    assert (
        len(locations(b"<urlset>" + b"<url><loc>http://a.example/</loc></url>" * (SITEMAP_URLS_MAX + 9)))
        == SITEMAP_URLS_MAX
    )
    assert len(locations(b"http://a.example/\n" * (SITEMAP_URLS_MAX + 9))) == SITEMAP_URLS_MAX


def test_a_decompression_bomb_is_read_up_to_the_limit() -> None:
    assert locations(gzip.compress(b"<urlset>" + b" " * 120_000_000, 1, mtime=0)) == []


@pytest.mark.parametrize(
    ("mime", "body", "looks"),
    [
        ("application/xml", URLSET, True),
        ("text/xml", INDEX, True),
        ("application/rss+xml", b"<rss>", True),
        ("application/gzip", gzip.compress(URLSET, mtime=0), True),
        ("application/gzip", gzip.compress(b"tar", mtime=0), False),
        ("application/xml", b"<note>", False),
        ("text/plain", b"http://a.example/\nhttp://a.example/2", True),
        ("text/plain", b"words http://a.example/", False),
        ("text/html", URLSET, False),
        ("image/png", b"", False),
    ],
)
def test_only_sitemaps_look_like_sitemaps(mime: str, body: bytes, looks: bool) -> None:
    assert looks_like_sitemap(mime, body) is looks


@given(st.binary(max_size=300), st.sampled_from([b"", b"<urlset>", b"<rss>", b"<feed>", b"\x1f\x8b\x08", b"http://"]))
def test_no_bytes_raise(body: bytes, start: bytes) -> None:
    assert tidy(parse_sitemap(start + body, ""))
    assert looks_like_sitemap("application/xml", start + body) in (True, False)


def tidy(sitemap: Sitemap) -> bool:
    """What any reader may rely on: no location is empty or has white space around it."""
    locations = [url.loc for url in sitemap.urls] + sitemap.sitemaps
    return locations == [location.strip() for location in locations if location]


TAGS = st.lists(
    st.sampled_from(
        [b"<url>", b"</url>", b"<loc>", b"</loc>", b"<![CDATA[", b"]]>", b"x", b"&amp;", b"<link href='x'", b">"]
    ),
    max_size=40,
)


@given(TAGS)
def test_no_order_of_elements_raises(tags: list[bytes]) -> None:
    assert tidy(parse_sitemap(b"<urlset>" + b"".join(tags), ""))


@pytest.mark.parametrize(
    ("written", "loc"),
    [
        (b"http://a.example/?f[0]=x&amp;g[]=y", "http://a.example/?f[0]=x&g[]=y"),
        (b"<![CDATA[http://a.example/?f[0]=x&g=]]>", "http://a.example/?f[0]=x&g="),
        (b"\n <![CDATA[ http://a.example/?a=1&copy=2 ]]> ", "http://a.example/?a=1&copy=2"),
        (b"http://a.example/?a=1&copy=2", "http://a.example/?a=1&copy=2"),
        (b"http://a.example/&#x41;&#66;&quot;", 'http://a.example/AB"'),
        (b"http://a.example/&#xD800;&#9999999;", "http://a.example/\ufffd\ufffd"),
        (b"<!-- old --> http://a.example/new", "http://a.example/new"),
    ],
)
def test_a_location_is_read_whole_and_as_xml_has_it(written: bytes, loc: str) -> None:
    assert locations(b"<urlset><url><loc>" + written + b"</loc></url></urlset>") == [loc]


def test_what_is_commented_out_is_not_there() -> None:
    gone = b"<!-- <url><loc>http://a.example/old</loc></url> -->"
    body = b"<urlset>" + gone + b"<url><loc>http://a.example/new</loc></url><!-- <url><loc>http://a.example/cut</loc>"
    assert locations(body) == ["http://a.example/new"]
    assert parse_sitemap(b"<sitemapindex><!--<sitemap><loc>/1.xml</loc></sitemap>--></sitemapindex>", "").sitemaps == []


def test_addresses_in_atom_are_relative_to_their_base() -> None:
    atom = (
        b"<feed xml:base='http://a.example/blog/'><entry><link href='1'/></entry>"
        b"<entry xml:base='2024/'><link href='2'/></entry><entry><link xml:base='/x/' href='3'/></entry>"
        b"<entry><link href='//b.example/4'/></entry><entry xml:base='http://[bad'><link href='5'/></entry></feed>"
    )
    assert locations(atom) == [
        "http://a.example/blog/1",
        "http://a.example/blog/2024/2",
        "http://a.example/x/3",
        "http://b.example/4",
        "5",
    ]


def test_the_identifier_of_an_rss_entry_is_its_address_where_it_has_no_other() -> None:
    rss = (
        b"<rss><channel><item><guid>http://a.example/1</guid></item>"
        b"<item><guid isPermaLink='false'>http://a.example/no</guid></item><item><guid>tag:a,2024:3</guid></item>"
        b"<item><guid isPermaLink='true'>http://a.example/no</guid><link>http://a.example/4</link></item></channel></rss>"
    )
    assert locations(rss) == ["http://a.example/1", "http://a.example/4"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
def test_a_sitemap_in_utf16_is_read(encoding: str) -> None:
    body = '<?xml version="1.0" encoding="UTF-16"?><urlset><url><loc>http://a.example/é</loc></url></urlset>'.encode(
        encoding
    )
    assert looks_like_sitemap("text/xml", body)
    assert locations(body) == ["http://a.example/é"]


@pytest.mark.timeout(30)  # It took minutes when the end of each was looked for anew.
@pytest.mark.parametrize("end", [b"", b"]]>"])
def test_literal_texts_without_end_cost_no_more_than_their_bytes(end: bytes) -> None:
    body = b"<urlset><url><loc>https://a.example/first</loc></url><url>" + b"<loc><![CDATA[" * 1_400_000 + end
    assert locations(body)[0] == "https://a.example/first"


def test_a_literal_text_that_is_too_long_is_left_out_and_what_follows_is_read() -> None:
    long = b"<url><loc><![CDATA[https://a.example/" + b"x" * LOC_BYTES_MAX + b"]]></loc></url>"
    right = b"<url><loc><![CDATA[https://a.example/right]]></loc></url>"
    torn = b"<url><loc><![CDATA[https://a.example/torn"
    assert locations(b"<urlset>" + long + right + torn) == ["https://a.example/right", "https://a.example/torn"]


@pytest.mark.parametrize("name", [b"description", b"content:encoded"])
@pytest.mark.parametrize("words", [1, LOC_BYTES_MAX])
def test_the_html_in_a_feed_has_no_entries_and_no_addresses(name: bytes, words: int) -> None:
    html = b"<p>" + b"word " * words + b"<link>http://a.example/no</link></item><item><guid>http://a.example/no</guid>"
    text = b"<%b><![CDATA[%b]]></%b>" % (name, html, name)
    items = [b"<item>%b<link>http://a.example/%d</link></item>" % (text, number) for number in (1, 2)]
    assert locations(b"<rss><channel>" + b"".join(items)) == ["http://a.example/1", "http://a.example/2"]


def test_a_long_base_makes_no_more_characters_than_a_sitemap_may_have() -> None:
    base = b"http://a.example/" + b"x" * 1_900 + b"/"
    entries = b"".join(b"<entry><link href='%d'/></entry>" % number for number in range(50_000))
    found = locations(b"<feed xml:base='" + base + b"'>" + entries)
    assert found[0] == base.decode() + "0"
    assert sum(map(len, found)) < SITEMAP_CHARS_MAX + 2_000
