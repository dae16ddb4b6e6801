"""Answers that break off, that nobody asked for, or that are barely HTTP: each has the end that the documents name."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path

import pytest

from tests.acceptance.commands import NO_PATIENCE, crawl, drumlin
from tests.harness.outputs import check_index_matches_tables, check_warcs, query
from tests.harness.raw_web import NOT_FOUND, RawWeb

HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
TEXT = b"<title>Whole</title><p>What came of it. <a href='/further'>on</a>"
CHUNK = b"%x\r\n%b\r\n" % (len(TEXT), TEXT)
PACKED = gzip.compress(TEXT * 50, mtime=0)[:-6]


def close(connection: socket.socket) -> None:
    """End the connection properly."""


CUT = {
    "length too large": HTML + b"Content-Length: 5000\r\n\r\n" + TEXT,
    "last chunk missing": HTML + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNK,
    "within a chunk": HTML + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n" + TEXT,
}


def crawl_one(folder: Path, answer: bytes, *flags: str) -> RawWeb:
    with RawWeb({"/robots.txt": NOT_FOUND, "/": answer, "/further": HTML + b"Content-Length: 1\r\n\r\nx"}) as web:
        web.ends["/"] = close
        done = crawl(folder, web.url(), "--quiet", *NO_PATIENCE, *flags)
    assert "Traceback" not in done.stderr
    return web


@pytest.mark.parametrize("answer", CUT.values(), ids=CUT)
def test_what_came_of_a_body_that_broke_off_is_kept_and_marked_and_followed(tmp_path: Path, answer: bytes) -> None:
    web = crawl_one(tmp_path, answer, "--retries-max", "1")
    out = tmp_path / "crawl"
    assert web.asked == ["/robots.txt", "/", "/", "/further"], "tried again before it is kept"
    rows = query(out, "SELECT url, title, content_truncated FROM {pages} ORDER BY url")
    assert rows == [(web.url(), "Whole", "disconnect"), (web.url("/further"), None, None)]
    said = query(out, "SELECT outcome, kind, error FROM {fetches} WHERE url = ? ORDER BY fetch_time", web.url())
    assert [row[:2] for row in said] == [("failed", "reset"), ("fetched", None)]
    assert said[1][2].startswith("cut short: ")
    check_warcs(out)
    check_index_matches_tables(out)
    warc = next(out.glob("warc/*.warc.gz"))
    assert gzip.decompress(warc.read_bytes()).count(b"WARC-Truncated: disconnect\r\n") == 1


@pytest.mark.parametrize(
    ("answer", "title", "truncated"),
    [
        (HTML + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(PACKED) + PACKED, "Whole", "unspecified"),
        (b"HTTP/1.1 206 P\r\nContent-Type: text/html\r\nContent-Range: bytes 0-64/900\r\nContent-Length: %d\r\n\r\n%b"
         % (len(TEXT), TEXT), "Whole", "unspecified"),
        (b"HTTP/1.1 206 All\r\nContent-Type: text/html\r\nContent-Range: bytes 0-%d/%d\r\nContent-Length: %d\r\n\r\n%b"
         % (len(TEXT) - 1, len(TEXT), len(TEXT), TEXT), "Whole", None),
    ],
    ids=["gzip without an end", "206 of a part", "206 of the whole"],
)  # fmt: skip
def test_a_part_is_stored_and_called_one(tmp_path: Path, answer: bytes, title: str, truncated: str | None) -> None:
    web = crawl_one(tmp_path, answer)
    rows = query(tmp_path / "crawl", "SELECT title, content_truncated FROM {pages} WHERE url = ?", web.url())
    assert rows == [(title, truncated)]


def test_a_redirect_counts_whatever_becomes_of_its_body(tmp_path: Path) -> None:
    web = crawl_one(tmp_path, b"HTTP/1.1 302 Found\r\nLocation: /further\r\nContent-Length: 99\r\n\r\n<p>Moved")
    assert web.asked == ["/robots.txt", "/", "/further"]
    assert query(tmp_path / "crawl", "SELECT url FROM {pages}") == [(web.url("/further"),)]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", "protocol"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nrubbish", "protocol"),
        (HTML + b"no colon\r\nContent-Length: 1\r\n\r\nx", "protocol"),
        (HTML + b"A: " + b"x" * 1_000_000 + b"\r\nContent-Length: 1\r\n\r\nx", "too_large"),
        (HTML + b"".join(b"A%d: %b\r\n" % (n, b"x" * 1000) for n in range(1000)) + b"\r\nx", "too_large"),
        (HTML + b"Content-Length: 5000\r\n\r\n", "reset"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 5000\r\n\r\n" + TEXT, "reset"),
    ],
    ids=["304", "101", "no colon", "a long line", "many lines", "nothing of a body", "half an error"],
)
def test_an_answer_that_is_none_ends_as_documented(tmp_path: Path, answer: bytes, kind: str) -> None:
    crawl_one(tmp_path, answer)
    listed = json.loads(drumlin(tmp_path, "dead-letters", "list", "--json").stdout)
    assert [letter["kind"] for letter in listed] == [kind]
    assert listed[0]["last_error"]
