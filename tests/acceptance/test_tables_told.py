"""What the tables say about answers that failed, URLs that were never requested, and values that a site did not
give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drumlin.testing import Ending, FakeWeb, Response
from tests.acceptance.commands import NO_PATIENCE, crawl
from tests.harness.outputs import query

BIG = 5_000


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    with FakeWeb(hosts=0) as web:
        paths = ("big", "cut", "error", "gone", "denied", "bare", "empty")
        links = "".join(f"<a href='/{path}'>{path}</a>" for path in paths)
        home = web.page("site", "/", links)
        sitemap = web.respond("site", "/map.xml", Response(body="<urlset></urlset>", content_type="application/xml"))
        rules = f"User-agent: *\nDisallow: /denied\nSitemap: {sitemap}"
        web.respond("site", "/robots.txt", Response(body=rules, content_type="text/plain"))
        web.respond("site", "/big", Response(body=b"x" * BIG, chunked=True))
        web.respond("site", "/cut", Response(body=b"x" * 900, ending=Ending.CUT))
        web.respond("site", "/error", Response(500, body=b"oops"))
        web.respond("site", "/gone", Response(ending=Ending.RESET))
        web.respond("site", "/bare", Response(body=b"bare", content_type=""))
        web.page("site", "/empty", "")
        crawl(folder, home, *NO_PATIENCE, "--body-bytes-max", "2KB", "--retries-max", "1", "--out", "crawl")
    return folder / "crawl"


def attempts(out: Path, path: str, columns: str) -> list[tuple[Any, ...]]:
    where = f"FROM {{fetches}} WHERE url LIKE '%/{path}' ORDER BY fetch_time"
    return list(query(out, f"SELECT {columns} {where}"))  # the words are our own


def test_an_answer_that_failed_has_the_status_and_bytes_that_came(out: Path) -> None:
    big, *_ = attempts(out, "big", "kind, fetch_status, wire_bytes > 0, duration_s > 0")
    assert big == ("too_large", 200, True, True)
    cut, *_ = attempts(out, "cut", "kind, fetch_status, wire_bytes > 0 AND wire_bytes < 900")
    assert cut == ("reset", 200, True)
    assert attempts(out, "error", "attempt, fetch_status, wire_bytes") == [(1, 500, 4), (2, 500, 4)]


def test_without_an_answer_there_is_neither_and_without_an_attempt_no_duration(out: Path) -> None:
    gone = attempts(out, "gone", "kind, attempt, fetch_status, wire_bytes, protocol")
    assert gone == [("reset", attempt, None, None, None) for attempt in (1, 2)]
    assert attempts(out, "denied", "outcome, attempt, fetch_status, wire_bytes, duration_s") == [
        ("denied", None, None, None, None)
    ]


def test_an_empty_answer_has_no_bytes_which_is_known(out: Path) -> None:
    assert attempts(out, "empty", "attempt, fetch_status, wire_bytes") == [(1, 200, 0)]


def test_pages_say_what_the_site_did_and_who_led_to_them(out: Path) -> None:
    rows = query(out, "SELECT url_path, content_mime_type, found_on IS NULL, protocol FROM {pages} ORDER BY url_path")
    told = {path: more for path, *more in rows}
    assert told["/bare"] == [None, False, "http/1.1"]
    assert told["/map.xml"] == ["application/xml", True, "http/1.1"]
    assert told["/"][1], "a seed"


def test_an_empty_page_has_no_bytes_of_its_host(out: Path) -> None:
    report = json.loads((out / "report.json").read_text())
    assert sum(host["bytes"] for host in report["top_hosts"]) == report["bytes"]
