"""A web server that ends its header lines in a bare LF, as RFC 9112 lets it: nothing of its headers is lost."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from drumlin.errors import EXIT_OK
from tests.acceptance.commands import crawl, stored_urls
from tests.harness.outputs import query
from tests.harness.raw_web import RawWeb

RULES = b"User-agent: *\nDisallow: /private\n"
LINKS = b'<a href="/private">x</a> <a href="/moved">m</a> <a href="/packed">p</a> <a href="/unfollowed">u</a>'


def reply(status: str, *fields: str, body: bytes = b"", end: str = "\n") -> bytes:
    said = [f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(body)}", "", ""]
    return end.join(said).encode("latin-1") + body


def site(end: str) -> dict[str, bytes]:
    """robots.txt behind a redirect and packed; a page that is packed, one that moved, one whose links do not count."""
    packed = ("Content-Encoding: gzip", "Content-Type: text/html")
    html = "Content-Type: text/html"
    return {
        "/robots.txt": reply("301 Moved", "Location: /rules.txt", end=end),
        "/rules.txt": reply("200 OK", *packed, body=gzip.compress(RULES), end=end),
        "/": reply("200 OK", html, body=LINKS, end=end),
        "/private": reply("200 OK", html, body=b"never to be seen", end=end),
        "/moved": reply("302 Found", "Location: /here", end=end),
        "/here": reply("200 OK", "Content-Type: text/html; charset=windows-1251", body=b"<p>\xcf\xf0\xe8", end=end),
        "/packed": reply("200 OK", *packed, body=gzip.compress(b'<title>Packed</title><a href="/more">'), end=end),
        "/more": reply("200 OK", html, body=b"<p>more", end=end),
        "/unfollowed": reply("200 OK", html, "X-Robots-Tag: nofollow", body=b'<a href="/never">x</a>', end=end),
        "/never": reply("200 OK", html, body=b"never to be asked for", end=end),
    }


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_what_is_denied_is_not_asked_for_and_all_else_is_read(tmp_path: Path, end: str) -> None:
    with RawWeb(site(end)) as web:
        done = crawl(tmp_path, web.url(), "--quiet")
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert sorted(web.asked) == sorted(set(site(end)) - {"/private", "/never"})
    read = ["/", "/here", "/more", "/packed", "/unfollowed"]
    assert stored_urls(tmp_path / "crawl") == [web.url(path) for path in read]
    pages = query(tmp_path / "crawl", "SELECT title, text FROM {pages} WHERE url LIKE '%/packed' OR url LIKE '%/here'")
    assert {title for title, _ in pages} == {None, "Packed"}
    assert "При" in {text for _, text in pages}
