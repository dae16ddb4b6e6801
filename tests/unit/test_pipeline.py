"""From a response to a capture, and from a capture to the links worth following."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from drumlin.errors import SiteError
from drumlin.fetch.transfer import Transfer
from drumlin.model import Capture
from drumlin.pipeline import Pipeline
from drumlin.protocol import NAMED_BY_ROBOTS, SITEMAPS_ELSEWHERE_MAX, Assignment
from drumlin.reading import Reading, capture_of, redirect_target
from drumlin.urls import Scope
from drumlin.urls.resolver import PAGE_CHARS_MAX

HOME = "http://a.test/"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
PAGE = b"""<!DOCTYPE html><html lang="en"><head><title>A page</title><base href="/docs/">
<link rel="canonical" href="/true.html"><meta name="description" content="What it is about"></head><body>
<p>%s</p> <a href="one.html">1</a> <a href="http://b.test/">out</a> <a rel="nofollow" href="/ad">ad</a>
<a href="mailto:a@b.test">mail</a> <img src="/pic.png"> <a href="one.html#part">again</a></body></html>""" % (
    b" ".join(b"The quick brown fox jumps over lazy dog number %d." % number for number in range(60))
)


def pipeline(parsed: list[str] | None = None, *, scope: str = "host", **reading: Any) -> Pipeline:
    given: dict[str, Any] = {"agent": "drumlin", "body_decoded_bytes_max": 100_000} | reading
    settings = Reading(**given)

    def make_scope(more: list[str]) -> Scope:
        return Scope(scope, [HOME, *more])  # type: ignore[arg-type]  # the test's own words

    before = parsed.append if parsed is not None else lambda url: None
    return Pipeline(settings, make_scope, year=2026, before_parse=before)


def transfer(body: bytes = PAGE, head: bytes = HEAD, status: int = 200) -> Transfer:
    made = Transfer(None)
    made.header_lines += head.splitlines(keepends=True)
    made.body.write(body)
    made.status, made.protocol, made.ip = status, "http/1.1", "192.0.2.1"
    made.started, made.finished = 1.0, 1.5
    return made


def captured(made: Pipeline, arrived: Transfer, url: str = HOME, *, depth: int = 0, **task: Any) -> Capture:
    of = Assignment("n0:t/1.0.0.s", url, 5, 0.0, "a.test", 0.0, depth, **task)
    capture = capture_of(arrived, of, "a.test", request=b"GET / HTTP/1.1\r\n\r\n", now=9.0)
    made.decode_body(capture)
    made.read([capture])
    return capture


def test_a_capture_keeps_what_was_sent_and_reads_what_it_says() -> None:
    parsed: list[str] = []
    packed = gzip.compress(PAGE)
    head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    capture = captured(pipeline(parsed), transfer(packed, head))
    assert (capture.body_raw, capture.body, capture.response_headers) == (packed, PAGE, head)
    assert (capture.title, capture.description, capture.languages[:2]) == ("A page", "What it is about", "en")
    assert (capture.mime, capture.charset, capture.canonical) == ("text/html", "UTF-8", "http://a.test/true.html")
    assert (capture.domain, capture.duration_s, len(capture.digest)) == ("a.test", 0.5, 32)
    assert capture.sketch is not None
    assert b"quick brown fox" in capture.text
    assert parsed == [HOME]


def test_a_few_bytes_that_unpack_to_megabytes_are_the_sites_fault() -> None:
    made = pipeline(body_decoded_bytes_max=64 << 20)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\n\r\n"
    bomb = gzip.compress(gzip.compress(bytes(32 << 20)))
    with pytest.raises(SiteError, match="larger than 4194304"):
        captured(made, transfer(bomb, head))


def test_a_body_that_does_not_decode_or_unpacks_to_too_much_is_the_sites_fault() -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    for body, kind in ((b"no gzip", "decode"), (gzip.compress(b"x" * 200_000), "too_large")):
        with pytest.raises(SiteError) as broken:
            captured(pipeline(), transfer(body, head))
        assert broken.value.kind == kind


def test_links_are_followed_in_scope_by_their_base_without_nofollow_and_once() -> None:
    made = pipeline()
    capture = captured(made, transfer())
    assert made.discover(capture).urls == ["http://a.test/docs/one.html"]
    assert made.discover(capture).urls == []
    recorded = {"http://a.test/pic.png", "http://a.test/ad", "http://b.test/", "http://a.test/docs/one.html"}
    assert recorded <= set(capture.links.urls)


@pytest.mark.parametrize("assets", [False, True])
def test_the_links_of_a_page_whose_result_did_not_count_are_told_again_and_others_are_not(assets: bool) -> None:
    made = pipeline(assets=assets)
    capture = captured(made, transfer())
    other = captured(made, transfer(b'<a href="http://a.test/other.html">other</a>'))
    told = made.discover(capture).urls
    made.discover(other)
    made.tell_links_again(capture)
    assert (made.discover(capture).urls, made.discover(other).urls) == (told, [])


def test_an_empty_href_means_the_base_or_the_page() -> None:
    page = b"<a href=''>top</a>"
    assert captured(pipeline(), transfer(page), "http://a.test/p?q=1").links.urls == ["http://a.test/p?q=1"]
    assert captured(pipeline(), transfer(b"<base href=/o/>" + page)).links.urls == ["http://a.test/o/"]


@pytest.mark.parametrize("body", [b"", b"<base href=/elsewhere/><p>Wait", PAGE])
def test_a_refresh_header_is_a_link_as_a_meta_element_is(body: bytes) -> None:
    made = pipeline()
    head = HEAD.replace(b"\r\n\r\n", b"\r\nRefresh: 0; URL='n\xe9xt'\r\n\r\n")
    capture = captured(made, transfer(body, head), "http://a.test/dir/page")
    assert (capture.links.urls[-1], capture.links.kinds[-1]) == ("http://a.test/dir/n%E9xt", "refresh")
    assert "http://a.test/dir/n%E9xt" in made.discover(capture).urls


@pytest.mark.parametrize("said", [b"5", b"", b"0; url=mailto:a@b.test"])
def test_a_refresh_header_that_only_reloads_is_no_link_and_one_to_no_web_address_leads_nowhere(said: bytes) -> None:
    made = pipeline()
    head = HEAD.replace(b"\r\n\r\n", b"\r\nRefresh: %b\r\n\r\n" % said)
    assert made.discover(captured(made, transfer(b"<p>x", head))).urls == []


def test_queries_of_links_are_written_in_the_encoding_of_their_page() -> None:
    page = "<link rel=canonical href=' /s?q=ж '><a href='/поиск?q=привет'>x</a>".encode("cp1251")
    capture = captured(pipeline(), transfer(page, HEAD.replace(b"utf-8", b"windows-1251")))
    assert capture.canonical == "http://a.test/s?q=%E6"
    assert "http://a.test/%D0%BF%D0%BE%D0%B8%D1%81%D0%BA?q=%EF%F0%E8%E2%E5%F2" in capture.links.urls


def test_urls_that_are_too_long_are_counted_and_long_ones_are_followed() -> None:
    long, longer = "/" + "x" * 7_900, "/" + "y" * 8_000
    page = (
        f"<a href='{long}'>a</a><a href='{longer}'>b</a><a href='{'z' * 20_000}'>c</a><a href='mailto:{longer}'>d</a>"
    )
    made = pipeline()
    found = made.discover(captured(made, transfer(page.encode())))
    assert (found.urls, found.refused) == (["http://a.test" + long], {"url_length": 2})


def test_another_site_cannot_have_a_page_asked_with_its_own_session() -> None:
    page = (
        b"<a href='http://b.test/q?b=2&amp;sid=5a5a5a5a5a5a5a5a5a5a&amp;a=1'>a</a>"
        b"<a href='http://b.test/p;jsessionid=evil'>b</a><a href='http://b.test/?utm_source=x'>c</a>"
        b"<a href='http://www.a.test/s;jsessionid=1'>d</a>"
    )
    made = pipeline(scope="any")
    capture = captured(made, transfer(page))
    told = ["http://b.test/q?b=2&a=1", "http://b.test/p", "http://b.test/", "http://www.a.test/s;jsessionid=1"]
    assert made.discover(capture).urls == told
    assert made.discover(capture).urls == []
    made.tell_links_again(capture)
    assert made.discover(capture).urls == told


def test_what_is_told_is_what_was_linked() -> None:
    page = b"<a href='/q?b=2&amp;a=1&amp;utm_source=x'>a</a><a href='/%7eu;jsessionid=1'>b</a>"
    made = pipeline()
    capture = captured(made, transfer(page))
    assert made.discover(capture).urls == ["http://a.test/q?b=2&a=1&utm_source=x", "http://a.test/%7eu;jsessionid=1"]


def test_a_page_made_to_have_endless_urls_keeps_some_and_the_rest_are_counted() -> None:
    links = b"".join(b"<a href=%d>x</a>" % number for number in range(20_000))
    parsed: list[str] = []
    made = pipeline(parsed, body_decoded_bytes_max=1 << 20)
    capture = captured(made, transfer(b"<base href='/%b/'>%b" % (b"x" * 7_900, links)))
    urls = capture.links.urls
    assert 0 < sum(len(url or "") for url in urls) <= PAGE_CHARS_MAX
    assert len(urls) == len(capture.links.kinds) == len(capture.links.rels) == len(capture.links.texts)
    assert capture.links_bytes >= sum(len(url or "") for url in urls) - len(capture.body)
    found = made.discover(capture)
    assert found.urls == urls
    assert found.refused == {"links_too_long": 20_000 - len(urls)}
    assert sum(map(len, made._discovery._told._recent)) < 100 * len(urls), "long URLs are not kept whole"
    assert made.discover(capture).urls == [], "and are known all the same"
    assert set(parsed) == {HOME}
    assert len(parsed) > 1, "whoever takes long over its links is named while it does"
    made.tell_urls_again([url for url in urls if url is not None])
    assert made.discover(capture).urls == urls


def test_links_out_of_scope_are_counted() -> None:
    made = pipeline()
    assert made.discover(captured(made, transfer())).refused == {"out_of_scope": 1, "nofollow": 1}


def test_the_links_of_a_page_that_says_it_is_not_there_are_counted_and_not_followed() -> None:
    made = pipeline()
    apology = b'<title>Page not found</title><h1>404</h1> <a href="again/">again</a> <a href="/">home</a>'
    capture = captured(made, transfer(apology))
    assert (capture.soft_404, len(capture.links.urls)) == (True, 2)
    found = made.discover(capture)
    assert (found.urls, found.refused) == ([], {"soft_404": 2})


def test_assets_are_followed_when_asked_for() -> None:
    made = pipeline(assets=True)
    assert "http://a.test/pic.png" in made.discover(captured(made, transfer())).urls


@pytest.mark.parametrize(
    ("head", "meta", "noindex", "nofollow"),
    [
        (b"", b'<meta name="robots" content="noindex">', True, False),
        (b"", b'<meta name="robots" content="nofollow">', False, True),
        (b"", b'<meta name="drumlin" content="none">', True, True),
        (b"X-Robots-Tag: nofollow\r\nX-Robots-Tag: noindex\r\n", b"", True, True),
        (b"X-Robots-Tag: otherbot: nofollow\r\n", b"", False, False),
        (b"", b"", False, False),
    ],
)
def test_the_wishes_of_a_page_are_read_from_its_head_and_its_header(
    head: bytes, meta: bytes, noindex: bool, nofollow: bool
) -> None:
    made = pipeline()
    page = b"<html><head>" + meta + b'</head><body><a href="/x.html">x</a>'
    capture = captured(made, transfer(page, HEAD.replace(b"\r\n\r\n", b"\r\n" + head + b"\r\n")))
    assert (capture.noindex, capture.nofollow) == (noindex, nofollow)
    assert made.discover(capture).urls == ([] if nofollow else ["http://a.test/x.html"])


@pytest.mark.parametrize(("agent", "heard"), [("mybot", True), ("drumlin", False)])
def test_a_page_speaks_to_a_crawler_under_the_product_token_of_its_user_agent(agent: str, heard: bool) -> None:
    page = b'<html><head><meta name="MyBot" content="none"></head><body><a href="/x.html">x</a>'
    capture = captured(pipeline(agent=agent), transfer(page))
    assert (capture.noindex, capture.nofollow) == (heard, heard)


def test_depth_ends_discovery_and_does_not_hide_a_link_from_a_shallower_page() -> None:
    made = pipeline(depth_max=2)
    deep, shallow = (captured(made, transfer(), depth=depth) for depth in (2, 1))
    assert made.discover(deep).urls == []
    assert made.discover(shallow).urls == ["http://a.test/docs/one.html"]


@pytest.mark.parametrize("status", [301, 404, 500])
def test_the_links_of_anything_but_a_page_are_not_followed(status: int) -> None:
    made = pipeline()
    assert made.discover(captured(made, transfer(status=status))).urls == []


def test_a_sitemap_gives_its_urls_with_their_hints() -> None:
    made = pipeline()
    entries = b"".join(
        b"<url><loc>http://a.test/%d</loc>%s</url>" % (number, hint)
        for number, hint in enumerate((b"", b"<priority>0.9</priority>", b""))
    )
    body = b'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">%s</urlset>' % entries
    head = HEAD.replace(b"text/html; charset=utf-8", b"application/xml")
    found = made.discover(captured(made, transfer(body, head), "http://a.test/map.xml"))
    assert found.urls == [f"http://a.test/{number}" for number in range(3)]
    assert (found.hints + [-1.0] * 3)[:3] == [-1.0, 0.9, -1.0]
    ignoring = pipeline(sitemaps=False)
    assert ignoring.discover(captured(ignoring, transfer(body, head), "http://a.test/map.xml")).urls == []


def test_of_a_sitemap_elsewhere_only_so_many_parts_are_asked_for() -> None:
    """Else a site could have any number of requests sent to anybody."""
    made = pipeline()
    parts = [f"http://victim{number}.test/" for number in range(SITEMAPS_ELSEWHERE_MAX + 50)] + ["http://a.test/own"]
    entries = "".join(f"<sitemap><loc>{part}</loc></sitemap>" for part in parts).encode()
    body = b'<?xml version="1.0"?><sitemapindex>%s</sitemapindex>' % entries
    head = HEAD.replace(b"text/html; charset=utf-8", b"application/xml")
    index = captured(made, transfer(body, head), "http://a.test/map.xml", found_on=NAMED_BY_ROBOTS)
    assert made.discover(index).urls == [*parts[:SITEMAPS_ELSEWHERE_MAX], "http://a.test/own"]


def test_a_wider_scope_lets_a_refused_link_through_and_crossing_answers_do_no_harm() -> None:
    made = pipeline()
    capture = captured(made, transfer())
    made.discover(capture)
    made.widen_scope(["http://b.test/"], 1)
    made.widen_scope(["http://b.test/"], 1)
    assert made.scope_version == 1
    assert made.in_scope("http://b.test/x")
    assert "http://b.test/" in made.discover(capture).urls


def test_a_trap_is_refused_and_counted() -> None:
    made = pipeline()
    page = b'<a href="/calendar/2050/01">far</a><a href="/a/a/a/a/a/a/a/a/">deep</a>'
    found = made.discover(captured(made, transfer(page)))
    assert (found.urls, sum(found.refused.values())) == ([], 2)


def test_links_that_nofollow_keeps_us_from_are_counted_once() -> None:
    made = pipeline()
    page = b'<a rel="nofollow" href="/x">x</a><a rel="nofollow" href="/y">y</a><a href="/y">y</a><img src="/i.png">'
    found = made.discover(captured(made, transfer(page)))
    assert (found.urls, found.refused) == (["http://a.test/y"], {"nofollow": 1})
    assert made.discover(captured(made, transfer(page), "http://a.test/other")).refused == {}
    followed = made.discover(captured(made, transfer(b'<a href="/x">x</a>'), "http://a.test/third"))
    assert followed.urls == ["http://a.test/x"]


def test_links_of_a_page_that_asks_for_it_are_counted_as_not_followed() -> None:
    made = pipeline()
    page = b'<meta name="robots" content="nofollow"><a href="/x">x</a><a href="/x">x</a><img src="/i.png">'
    assert made.discover(captured(made, transfer(page))).refused == {"nofollow": 1}


def test_links_beyond_the_depth_are_counted_unless_they_were_told_before() -> None:
    made = pipeline(depth_max=1)
    made.discover(captured(made, transfer(b'<a href="/x">x</a>')))
    page = b'<a href="/x">x</a><a href="/y">y</a><a href="/z">z</a><img src="/i.png">'
    deep = captured(made, transfer(page), "http://a.test/x", depth=1)
    assert made.discover(deep).refused == {"depth": 2}
    assert made.discover(deep).refused == {}


@pytest.mark.parametrize(
    "said", [b"text/html, text/html", b"text/html\r\nContent-Type: text/html", b"text/html x=y", b"html"]
)
def test_a_page_is_parsed_however_its_type_is_repeated_or_misspelt(said: bytes) -> None:
    head = HEAD.replace(b"text/html; charset=utf-8", said)
    assert captured(pipeline(), transfer(PAGE, head)).title == "A page"


def test_plain_text_without_a_type_is_read_as_plain_text() -> None:
    capture = captured(pipeline(), transfer(b"if a < b and b > c: pass", b"HTTP/1.1 200 OK\r\n\r\n"))
    assert (capture.mime, capture.text) == ("text/plain", b"if a < b and b > c: pass")


@pytest.mark.parametrize("body", [b"", b"\x00" * 1000, b"<" * 5000, b"<a href='" + b"x" * 5000, bytes(range(256)) * 20])
def test_no_body_breaks_the_pipeline(body: bytes) -> None:
    made = pipeline()
    for mime in (b"text/html", b"text/plain", b"application/xml", b"image/png", b"", b"no/such; charset=\xff"):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: " + mime + b"\r\n\r\n"
        capture = captured(made, transfer(body, head))
        found = made.discover(capture)
        assert (capture.body, len(capture.digest)) == (body, 32)
        assert all(url.startswith("http://a.test/") for url in found.urls)


# Redirects


def redirecting(location: str, redirects: tuple[str, ...] = ()) -> Capture:
    head = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\n\r\n".encode("latin-1")
    return captured(pipeline(), transfer(b"", head, 302), "http://a.test/from", redirects=redirects)


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/to", "http://a.test/to"),
        ("to?x=1#part", "http://a.test/to?x=1"),
        ("//b.test/", "http://b.test/"),
        ("HTTPS://B.test:443/", "https://b.test/"),
    ],
)
def test_a_redirect_leads_to_its_canonical_target(location: str, target: str) -> None:
    assert redirect_target(redirecting(location), 5) == target


@pytest.mark.parametrize(
    ("location", "redirects", "kind"),
    [
        ("", (), "bad_redirect"),
        ("http://", (), "bad_redirect"),
        ("mailto:a@b.test", (), "bad_redirect"),
        ("javascript:alert(1)", (), "bad_redirect"),
        ("/from", (), "redirect_loop"),
        ("/from#part", (), "redirect_loop"),
        ("/first", ("http://a.test/first",), "redirect_loop"),
        ("/next", tuple(f"http://a.test/{number}" for number in range(5)), "redirect_limit"),
    ],
)
def test_a_redirect_that_leads_nowhere_is_named(location: str, redirects: tuple[str, ...], kind: str) -> None:
    with pytest.raises(SiteError) as broken:
        redirect_target(redirecting(location, redirects), 5)
    assert broken.value.kind == kind
