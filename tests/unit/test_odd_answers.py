"""Odd heads and trailers of real answers: record, index and rows say the same of them, and nothing that is forged."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from drumlin.http.headers import final_block, header_fields, status_of
from drumlin.http.mime import extract_mime_type
from drumlin.store import WarcWriter
from drumlin.store.warc.block import stored_block
from drumlin.store.warc.repair import index_path, scan
from tests.harness.raw_web import RawWeb
from tests.unit.store_captures import FETCHED, make_capture
from tests.unit.test_fetch_http import Fetched, fetch

CHUNKS = b"Content-Type: text/html\r\nX-Own: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHELLO\r\n0\r\n"
FORGED = b"Location: http://bank.example/\r\nContent-Type: application/x-forged\r\n\r\n"
TRAILERS = [
    b"\r\n",
    b"HTTP/1.1 301 Moved: x\r\n" + FORGED,
    b"HTTP/1.1 103 Early: x\r\n" + FORGED,
    b"HTTP/1.1 200 OK: x\r\n" + FORGED,
]
STATUS_LINES = [
    b"HTTP/1.1 200 OK",
    b"HTTP/1.1 200",
    b"HTTP/1.1\t200 OK",
    b"HTTP/1.1 2000 OK",
    b"HTTP/1.1 200OK",
    b"HTTP/1.1 200\xa0OK",
    b"HTTP/1.1 200\x0bOK",
    b"HTTP/2.0 200 OK",
    b"HTTP/2 1030 OK",
    b"http/1.1 200 OK",
    b"http/1.1 103 OK",
    b"HTTP/1.1 103 Early\r\nContent-Type: image/png\r\n\r\nHTTP/1.1 200 OK",
    b"HTTP/1.1\t103 Early\r\nContent-Type: image/png\r\n\r\nHTTP/1.1\t200 OK",
]


def answer(said: bytes) -> Fetched:
    with RawWeb({"/": said}) as web:
        return fetch(web.url("/"))


def stored(folder: Path, fetched: Fetched) -> tuple[bytes, bytes]:
    """The index that is written beside the archive of an answer, and the one made of the archive alone."""
    writer = WarcWriter(folder, "node-1", software="drumlin/1", info={}, now=FETCHED)
    headers = header_fields(fetched.headers)
    capture = make_capture(body=fetched.body, status=fetched.status, response_headers=fetched.headers, headers=headers)
    writer.settle(writer.store([capture]))
    writer.close()
    path = folder / writer.filename
    return index_path(path).read_bytes(), b"".join(scan(path, path.name, 0).unmarked())


@pytest.mark.parametrize("trailers", TRAILERS)
@pytest.mark.parametrize("line", STATUS_LINES)
def test_of_an_odd_answer_archive_and_index_agree_and_trailers_are_no_headers(
    tmp_path: Path, line: bytes, trailers: bytes
) -> None:
    fetched = answer(line + b"\r\n" + CHUNKS + trailers)
    assert (fetched.failure, fetched.status, fetched.body) == ("", 200, b"HELLO")
    fields = header_fields(fetched.headers)
    assert (fields["content-type"], fields["x-own"], fields.get("location")) == ("text/html", "1", None)
    written, made_anew = stored(tmp_path, fetched)
    assert written == made_anew
    assert b'"mime":"text/html","status":"200"' in written


def test_an_odd_status_line_stays_in_the_record_under_another_name() -> None:
    block = stored_block(b"HTTP/1.1\t200 Fine\r\nServer: x\r\n\r\n", 200, 0)
    assert block == b"HTTP/1.1 200 OK\r\nX-Crawler-Status-Line: HTTP/1.1\t200 Fine\r\nServer: x\r\n\r\n"


HEADS = some.lists(
    some.sampled_from([*STATUS_LINES, b"Content-Type: a/b", b" c/d", b"content-type\0: e/f", b"\x85", b"", b"X: \ry"])
    | some.binary(max_size=12),
    min_size=1,
    max_size=8,
)


@given(HEADS, some.sampled_from([b"\r\n", b"\n"]), some.integers(100, 999))
def test_whatever_is_received_the_stored_block_says_the_status_and_the_type_of_the_answer(
    lines: list[bytes], end: bytes, status: int
) -> None:
    received = final_block(end.join([*lines, b"", b""]))
    block = stored_block(received, status, 5)
    assert status_of(block) == status
    assert block.index(b"\r\n\r\n") == len(block) - 4
    assert _type(block) == _type(received)


def _type(block: bytes) -> str:
    return extract_mime_type(header_fields(block).get("content-type", "")).essence
