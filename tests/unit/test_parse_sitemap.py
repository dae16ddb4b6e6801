"""Sitemaps in all their forms, and what only looks like one."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.parse import SITEMAP_URLS_MAX, Sitemap, SitemapURL, looks_like_sitemap, parse_sitemap

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


def test_a_urlset_gives_locations_dates_and_priorities() -> None:
    assert parse_sitemap(URLSET, "").urls == [
        SitemapURL("http://a.example/?x=1&y=2", "2024-05-01", 0.8),
        SitemapURL("http://a.example/b", "", None),
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
    assert parse_sitemap(rss, "").urls == [SitemapURL("http://a.example/1", "Wed, 01 May 2024 00:00:00 GMT", None)]
    atom = (
        b"<feed><link href='http://a.example/'/><entry><link rel='self' href='/x'/><link rel='alternate' href='/1'/>"
        b'<updated>2024-05-01T00:00:00Z</updated></entry><entry><link href="/2"/></entry></feed>'
    )
    assert parse_sitemap(atom, "").urls == [SitemapURL("/1", "2024-05-01T00:00:00Z", None), SitemapURL("/2", "", None)]


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
