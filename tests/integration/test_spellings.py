"""A URL is requested as it was linked, and all spellings of a page count as one page."""

from __future__ import annotations

from pathlib import Path

from drumlin.testing import FakeWeb
from tests.harness.crawls import Crawl
from tests.harness.outputs import stored_urls

CRAWL_S_MAX = 60.0


def test_the_first_spelling_that_is_linked_is_asked_and_stored_and_no_other(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web:
        first = ["/q?z=1&a=2&utm_source=home", "/%7Euser/?b", "/list?x=2&x=1", "/list?x=1&x=2"]
        again = ["/q?a=2&z=1", "/~user/?b", "/q?z=1&a=2&utm_source=home#part"]
        anchors = "".join(f"<a href='{href.replace('&', '&amp;')}'>x</a>" for href in first + again)
        home = web.page("shop", "/", f"<!DOCTYPE html><title>Home</title>{anchors}")
        for number, path in enumerate(first):
            web.page("shop", path, f"<!DOCTYPE html><title>Page {number}</title>")
        crawl = Crawl(tmp_path / "crawl", home, "--nodes", "1")
        crawl.run(CRAWL_S_MAX)
        assert set(stored_urls(crawl.out)) == {home, *(web.url("shop", path) for path in first)}
        asked = [request.path for request in web.requests if request.host == "shop"]
        assert sorted(asked) == sorted(["/robots.txt", "/", *first])
