"""Sitemaps and feeds as sites have them: anywhere, of any type, large, in parts."""

from __future__ import annotations

import gzip
from pathlib import Path

from drumlin.testing import FakeWeb, Response
from tests.harness.crawls import Crawl
from tests.harness.outputs import stored_urls

CRAWL_S_MAX = 90.0
LARGE_BYTES = 30_000_000


def urlset(*urls: str) -> bytes:
    return ("<urlset>" + "".join(f"<url><loc>{url}</loc></url>" for url in urls) + "</urlset>").encode()


def index(*urls: str) -> bytes:
    return (
        "<sitemapindex>" + "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls) + "</sitemapindex>"
    ).encode()


def test_sitemaps_are_read_wherever_robots_names_them_and_whatever_they_are_called(tmp_path: Path) -> None:
    """Sitemaps above the scope's prefix, on another host with parts on a third one, served as HTML, as text, and of 30
    MB."""
    with FakeWeb(hosts=0) as web:
        home = web.page("shop", "/docs/", "<!DOCTYPE html><title>Home</title>")
        pages = {name: web.page("shop", f"/docs/{name}.html", f"<title>{name}</title>") for name in "abcde"}
        listed = web.page("shop", "/docs/?f[0]=x", "<title>brackets</title>")
        out = web.page("shop", "/elsewhere.html", "<title>out of scope</title>")
        lines = ["/map.xml", web.url("cdn", "/index.xml"), "large.xml.gz", "/list.txt"]
        robots = "User-agent: *\nAllow: /\n" + "".join(f"Sitemap: {line}\n" for line in lines)
        web.respond("shop", "/robots.txt", Response(body=robots, content_type="text/plain"))
        web.respond("shop", "/map.xml", Response(body=urlset(pages["a"], listed, out), content_type="text/html"))
        web.respond("cdn", "/index.xml", Response(body=index(web.url("parts", "/1.xml")), content_type="text/plain"))
        web.respond("parts", "/1.xml", Response(body=urlset(pages["b"]), content_type="application/xml"))
        # Compressed, but with content that does not compress, so it is as large on the wire.
        large = urlset(pages["c"]) + b"<!--" + b" " * LARGE_BYTES + b"-->"
        web.respond("shop", "/large.xml.gz", Response(body=gzip.compress(large, 0), content_type="application/gzip"))
        web.respond("shop", "/list.txt", Response(body=pages["d"].encode(), content_type="text/plain"))
        crawl = Crawl(tmp_path / "crawl", home, "--nodes", "1", "--scope", "prefix")
        crawl.run(CRAWL_S_MAX)
        stored = set(stored_urls(crawl.out))
        assert {pages[name] for name in "abcd"} | {home, listed} <= stored
        assert not stored & {pages["e"], out}


def test_the_feeds_that_a_page_names_are_followed(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web:
        link = '<link rel="alternate" type="application/atom+xml" href="/feed"><link rel="alternate" href="/other">'
        home = web.page("shop", "/", f"<!DOCTYPE html>{link}<title>Home</title>")
        entry = web.page("shop", "/blog/1", "<!DOCTYPE html><title>Entry</title>")
        feed = f"<feed xml:base='{web.url('shop', '/blog/')}'><entry><link href='1'/></entry></feed>"
        web.respond("shop", "/feed", Response(body=feed, content_type="text/xml"))
        crawl = Crawl(tmp_path / "crawl", home, "--nodes", "1")
        crawl.run(CRAWL_S_MAX)
        assert set(stored_urls(crawl.out)) == {home, entry, web.url("shop", "/feed")}
