"""What a site answers is archived, whatever it means: refusals, errors, broken redirects, and every robots.txt."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from tests.acceptance.commands import NO_PATIENCE, crawl
from tests.harness.outputs import check_index_matches_tables, check_warcs, query, warc_files
from tests.harness.raw_web import NOT_FOUND, Answer, RawWeb

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastwarc.warc import ArchiveIterator

PAGES = (400, 401, 403, 404, 410, 418, 451)
"""Answers with these statuses are stored as pages."""
FAILURES = (429, 500, 502, 503, 504, 599)
"""Answers with these statuses are failures."""
ALLOWED = b"User-agent: *\nAllow: /\n"


def answer(status: int, body: bytes, *fields: bytes) -> bytes:
    head = [b"HTTP/1.1 %d X" % status, b"Content-Type: text/html", b"Content-Length: %d" % len(body), *fields]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def body_of(status: int) -> bytes:
    return b"<p>This is what %d says, with every byte: \x00\x80\xff" % status


class Record(NamedTuple):
    """A response in the archive that is in the index too."""

    status: str
    body: bytes
    truncated: str | None


def archived(out: Path) -> dict[str, list[Record]]:
    """The records that the index points to, read with FastWARC, by URL. Also checks the files with both tools."""
    check_warcs(out)
    check_index_matches_tables(out)
    found: dict[str, list[Record]] = {}
    for line in (out / "warc" / "index.cdxj").read_bytes().splitlines():
        entry = json.loads(line[line.index(b"{") :])
        with open(out / "warc" / entry["filename"], "rb") as stream:
            stream.seek(int(entry["offset"]))
            record = next(iter(ArchiveIterator(stream)))
            truncated = record.headers.get("WARC-Truncated")
            assert record.http_headers.status_code == int(entry["status"])
            found.setdefault(entry["url"], []).append(Record(entry["status"], record.reader.read(), truncated))
    return found


class ByWarcio(NamedTuple):
    """A record as warcio reads it."""

    kind: str
    url: str
    first_line: str
    fields: dict[str, str]
    body: bytes


def read_by_warcio(out: Path) -> list[ByWarcio]:
    records: list[ByWarcio] = []
    for path in warc_files(out):
        with path.open("rb") as stream:
            for one in WarcioIterator(stream):
                if one.rec_type in ("request", "response"):
                    head, url = one.http_headers, one.rec_headers["WARC-Target-URI"]
                    body = one.content_stream().read()
                    records.append(ByWarcio(one.rec_type, url, head.statusline, dict(head.headers), body))
    return records


def crawled(folder: Path, answers: dict[str, Answer], *flags: str, start: str = "/") -> tuple[RawWeb, Path]:
    with RawWeb({"/robots.txt": NOT_FOUND, **answers}) as web:
        done = crawl(folder, web.url(start), "--quiet", *NO_PATIENCE, *flags)
    assert "Traceback" not in done.stderr, done.stderr
    return web, folder / "crawl"


def test_every_refusal_and_error_is_archived_with_its_body(tmp_path: Path) -> None:
    statuses = PAGES + FAILURES
    links = "".join(f'<a href="/{status}">' for status in statuses).encode()
    answers: dict[str, Answer] = {f"/{status}": answer(status, body_of(status)) for status in statuses}
    web, out = crawled(tmp_path, {"/": answer(200, links), **answers})
    found = archived(out)
    for status in statuses:
        assert found[web.url(f"/{status}")] == [Record(str(status), body_of(status), None)]
    rows = query(out, "SELECT url, outcome, kind, wire_bytes, record_id <> '' FROM {fetches} WHERE fetch_status >= 429")
    failed = {status: "rate_limited" if status == 429 else "http_5xx" for status in FAILURES}
    assert sorted(rows) == sorted(
        [(web.url(f"/{status}"), "failed", kind, len(body_of(status)), True) for status, kind in failed.items()]
        + [(web.url("/451"), "fetched", None, len(body_of(451)), True)]
    )
    pages = query(out, "SELECT fetch_status FROM {pages} ORDER BY fetch_status")
    assert [status for (status,) in pages] == [200, *PAGES], "failures are no pages"


def test_every_attempt_at_a_page_that_fails_is_archived(tmp_path: Path) -> None:
    tries = iter([503, 500, 429])

    def changing(request: bytes) -> bytes:
        status = next(tries, 200)
        return answer(status, body_of(status), b"Connection: close")

    web, out = crawled(tmp_path, {"/": changing}, "--retries-max", "5")
    assert sorted(record.status for record in archived(out)[web.url()]) == ["200", "429", "500", "503"]
    rows = query(out, "SELECT outcome, fetch_status FROM {fetches} WHERE url = ? ORDER BY fetch_time", web.url())
    assert rows == [("failed", 503), ("failed", 500), ("failed", 429), ("fetched", 200)]


def test_every_answer_to_a_request_for_robots_txt_is_archived(tmp_path: Path) -> None:
    packed = gzip.compress(ALLOWED, mtime=0)
    answers: dict[str, Answer] = {
        "/robots.txt": answer(301, b"moved", b"Location: /elsewhere.txt"),
        "/elsewhere.txt": answer(200, packed, b"Content-Encoding: gzip"),
        "/": answer(200, b"<p>A page"),
    }
    web, out = crawled(tmp_path, answers)
    assert web.asked == ["/robots.txt", "/elsewhere.txt", "/"]
    found = archived(out)
    assert found[web.url("/robots.txt")] == [Record("301", b"moved", None)]
    assert found[web.url("/elsewhere.txt")] == [Record("200", packed, None)]
    rows = query(out, "SELECT url, fetch_status, kind, redirect_to FROM {fetches} WHERE outcome = 'robots' ORDER BY 2")
    assert rows == [
        (web.url("/elsewhere.txt"), 200, None, None),
        (web.url("/robots.txt"), 301, None, web.url("/elsewhere.txt")),
    ]
    assert query(out, "SELECT url FROM {pages}") == [(web.url(),)]
    asked = [record.first_line.split()[0] for record in read_by_warcio(out) if record.kind == "request"]
    assert sorted(asked) == ["/", "/elsewhere.txt", "/robots.txt"], "a host may change nodes, and each has its file"


@pytest.mark.parametrize("status", [404, 429, 500, 503])
def test_a_robots_txt_that_is_refused_is_archived_and_its_host_treated_as_before(tmp_path: Path, status: int) -> None:
    refusal = answer(status, body_of(status), b"Retry-After: 0")
    web, out = crawled(tmp_path, {"/robots.txt": refusal, "/": answer(200, b"x")}, "--patience", "0s")
    assert archived(out)[web.url("/robots.txt")][0] == Record(str(status), body_of(status), None)
    assert ("/" in web.asked) == (status == 404)
    rows = query(out, "SELECT DISTINCT outcome, fetch_status FROM {fetches} WHERE url LIKE '%robots.txt'")
    assert rows == [("robots", status)]


def test_a_host_that_does_not_answer_has_rows_and_no_record(tmp_path: Path) -> None:
    with RawWeb({}) as web:
        url = web.url()
    crawl(tmp_path, url, "--quiet", *NO_PATIENCE, "--patience", "0s")
    rows = query(
        tmp_path / "crawl", "SELECT url, kind, fetch_status, record_id FROM {fetches} WHERE outcome = 'robots'"
    )
    assert rows[0] == (f"{url}robots.txt", "connect", None, None)


def test_of_an_error_that_is_too_long_as_much_is_kept_as_was_read(tmp_path: Path) -> None:
    head = b"HTTP/1.1 503 No\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"400\r\n%b\r\n" % (b"x" * 1024) for _ in range(64)) + b"0\r\n\r\n"
    web, out = crawled(tmp_path, {"/": head + chunks}, "--body-bytes-max", "16KiB")
    [record] = archived(out)[web.url()]
    assert (record.status, record.truncated) == ("503", "length")
    assert record.body == b"x" * len(record.body)
    assert len(record.body) <= 16 * 1024
    assert query(out, "SELECT kind FROM {fetches} WHERE url = ?", web.url()) == [("http_5xx",)]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (answer(302, b"nowhere", b"Location: mailto:nobody@example.org"), "bad_redirect"),
        (answer(302, b"again", b"Location: /"), "redirect_loop"),
        (answer(200, b"no gzip at all", b"Content-Encoding: gzip"), "decode"),
        (answer(304, b""), "protocol"),
    ],
    ids=["nowhere", "a loop", "not decodable", "an unasked 304"],
)
def test_answers_that_lead_nowhere_are_archived_as_they_came(tmp_path: Path, reply: bytes, kind: str) -> None:
    web, out = crawled(tmp_path, {"/": reply})
    [record] = archived(out)[web.url()]
    assert (record.status.encode(), record.body) == (reply.split()[1], reply.partition(b"\r\n\r\n")[2])
    rows = query(out, "SELECT outcome, kind, record_id <> '' FROM {fetches} WHERE url = ?", web.url())
    assert rows == [("failed", kind, True)]
    assert query(out, "SELECT * FROM {pages}") == []


def test_a_header_block_of_100_kb_stops_no_reader(tmp_path: Path) -> None:
    long = [b"X-Long: %b" % (b"a" * 60_000), *(b"X-%d: %b" % (n, b"b" * 90) for n in range(500))]
    page = answer(200, b"<title>Long</title><a href=/next>", *long, b"X-Robots-Tag: noindex", b"Content-Language: de")
    web, out = crawled(tmp_path, {"/": page, "/next": answer(200, b"<title>Next</title>")})
    found = archived(out)
    assert found[web.url()] == [Record("200", b"<title>Long</title><a href=/next>", "length")]
    assert len(found[web.url("/next")]) == 1, "what follows it in the file is read too"
    rows = query(out, "SELECT title, noindex, content_truncated FROM {pages} ORDER BY title")
    assert rows == [("Long", True, None), ("Next", False, None)], "its body is all there"
    [record] = [one for one in read_by_warcio(out) if (one.kind, one.url) == ("response", web.url())]
    assert record.body == b"<title>Long</title><a href=/next>"
    kept = record.fields
    assert kept["X-Robots-Tag"] == "noindex"
    assert kept["X-0"] == "b" * 90
    cut = int(kept["X-Crawler-Headers-Cut"].split()[0])
    added = {"X-Crawler-Headers-Cut", "X-Crawler-Content-Length"}
    assert cut + len(kept.keys() - added) == len(long) + 4, "it says how many are missing"
