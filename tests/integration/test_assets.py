"""`--assets`: a page's images, styles and scripts, and what its stylesheets ask for in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumlin.testing import FakeWeb, Response
from tests.harness.crawls import Crawl
from tests.harness.outputs import stored_urls

CRAWL_S_MAX = 60.0
PAGE = '<!DOCTYPE html><link rel="stylesheet" href="/a.css"><img src="/a.png"><a href="/next.html">next</a>'
ASSETS = {"/a.css", "/b.css", "/c.css", "/c.png", "/a.png"}


def fill(web: FakeWeb) -> None:
    for name, sheet in {
        "a": '@import "b.css";',
        "b": "@import url(c.css);",
        "c": "p { background: url('c.png') }",
    }.items():
        web.respond("shop", f"/{name}.css", Response(body=sheet, content_type="text/css"))
    for name in ("a", "c"):
        web.respond("shop", f"/{name}.png", Response(body=b"\x89PNG\r\n\x1a\n", content_type="image/png"))
    web.page("shop", "/", PAGE)
    web.page("shop", "/next.html", "<!DOCTYPE html><title>Next</title>")


@pytest.mark.parametrize(
    ("flags", "paths"),
    [
        (("--assets",), {"/", "/next.html"} | ASSETS),
        (("--assets", "--depth", "0"), {"/"} | ASSETS),
        (("--depth", "0"), {"/"}),
        ((), {"/", "/next.html"}),
    ],
    ids=["assets", "assets-of-the-last-pages", "depth", "neither"],
)
def test_a_page_is_fetched_with_all_that_it_shows(tmp_path: Path, flags: tuple[str, ...], paths: set[str]) -> None:
    with FakeWeb(hosts=0) as web:
        fill(web)
        crawl = Crawl(tmp_path / "crawl", web.url("shop"), "--nodes", "1", *flags)
        crawl.run(CRAWL_S_MAX)
        assert set(stored_urls(crawl.out)) == {web.url("shop", path) for path in paths}


def test_what_a_page_shows_may_be_anywhere_but_leads_no_further(tmp_path: Path) -> None:
    """A style, its font and a picture are on another host and are fetched; a frame there is a page, and out of
    scope."""
    with FakeWeb(hosts=0) as web:
        style = f"@font-face {{ src: url({web.url('fonts', '/f.woff2')}) }}"
        web.respond("cdn", "/a.css", Response(body=style, content_type="text/css"))
        web.respond("fonts", "/f.woff2", Response(status=302, headers={"location": web.url("fonts", "/2/f.woff2")}))
        web.respond("fonts", "/2/f.woff2", Response(body=b"wOF2", content_type="font/woff2"))
        web.respond("cdn", "/a.png", Response(body=b"\x89PNG\r\n\x1a\n", content_type="image/png"))
        web.page("cdn", "/object.html", '<a href="/page.html">page</a><img src="/deep.png">')
        shown = f'<link rel="stylesheet" href="{web.url("cdn", "/a.css")}"><a href="{web.url("cdn", "/a.png")}">'
        shown += f'<img src="{web.url("cdn", "/a.png")}"></a><object data="{web.url("cdn", "/object.html")}"></object>'
        shown += f'<img src="{web.url("ads", "/ad.png")}"><iframe src="{web.url("cdn", "/frame.html")}"></iframe>'
        home = web.page("shop", "/", shown)
        crawl = Crawl(tmp_path / "crawl", home, "--nodes", "1", "--assets", "--exclude", web.address("ads"))
        crawl.run(CRAWL_S_MAX)
        fetched = {web.url("cdn", path) for path in ("/a.css", "/a.png", "/object.html")}
        assert set(stored_urls(crawl.out)) == fetched | {home, web.url("fonts", "/2/f.woff2")}
