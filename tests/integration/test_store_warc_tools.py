"""WARC files as other people's tools see them."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from subprocess import run
from typing import Any

from warcio.archiveiterator import ArchiveIterator

from drumlin.model import Capture, Duplicate
from drumlin.store import WarcWriter, merge, record_id_of
from tests.harness.warcs import read_captures
from tests.unit.store_captures import FETCHED, HTML, header_block, make_capture

BIN = Path(sys.executable).parent


def write(directory: Path, captures: list[Capture], **options: object) -> Path:
    writer = WarcWriter(directory, "node-1", software="drumlin/1", info={"operator": "x"}, now=FETCHED, **options)  # type: ignore[arg-type]
    writer.settle(writer.store(captures))
    writer.close()
    return directory / writer.filename


def check(path: Path, *, payloads: bool = True) -> None:
    """Check with both tools. FastWARC's `-p` compares the digest of a revisit with its missing payload, so it cannot be
    used for files with revisits."""
    warcio = run([BIN / "warcio", "check", "-v", path], capture_output=True, text=True, check=False)
    assert warcio.returncode == 0, warcio.stdout + warcio.stderr
    for options in ([], ["-p"]) if payloads else ([],):
        fastwarc = run([BIN / "fastwarc", "check", *options, path], capture_output=True, text=True, check=False)
        assert fastwarc.returncode == 0, fastwarc.stdout + fastwarc.stderr


def encoded(url: str, encoding: bytes = b"gzip", **changes: Any) -> Capture:
    raw = gzip.compress(HTML, mtime=0)
    block = header_block(raw, b"Content-Encoding: " + encoding)
    headers = {"content-type": "text/html", "content-encoding": encoding.decode()}
    return make_capture(url, body_raw=raw, response_headers=block, headers=headers, **changes)


def revisit_of(original: Capture, url: str) -> Capture:
    original.record_id = record_id_of(original)
    return make_capture(
        url,
        original.body,
        body_raw=bytes(bytearray(original.body_raw)),
        fetched=FETCHED + 5,
        duplicate=Duplicate(original.url, original.fetched, original.record_id),
    )


def block(*lines: bytes) -> bytes:
    return b"\r\n".join(lines) + b"\r\n\r\n"


ODD_BLOCKS = {
    "chunked": block(b"HTTP/1.1 200 OK", b"transfer-encoding: chunked", b"Content-Type: text/html"),
    "h2": block(b"HTTP/2 200", b"content-type: text/html"),
    "h3": block(b"HTTP/3 200 ", b"content-type: text/html"),
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Type: text/html\n\n",
    "no blank line": b"HTTP/1.1 200 OK\r\nContent-Type: text/html",
    "nothing": b"",
    "folded": block(b"HTTP/1.1 200 OK", b"X-Long: a", b"   ", b"\tb", b"Content-Type: text/html"),
    "carriage returns": b"HTTP/1.1 200 OK\r\nX: a\r\r\n\r\r\nY: b\rWARC/1.1\r\nContent-Type: text/html\r\n\r\n",
    "zero bytes": block(b"HTTP/1.1 200 OK", b"X: a\0b", b"\0", b"Content-Type: text/html"),
    "latin-1": block(b"HTTP/1.1 200 D\xe9j\xe0 vu", b"X-Name: caf\xe9 \xff\xfe", b"Content-Type: text/html"),
    "utf-8": block(b"HTTP/1.1 200 OK", "X-Ünï: ☃".encode(), b"Content-Type: text/html"),
    "wrong length": block(b"HTTP/1.1 200 OK", b"Content-Length: 3", b"Content-Type: text/html"),
    "two lengths": block(b"HTTP/1.1 200 OK", b"Content-Length: 3", b"CONTENT-LENGTH : 4"),
    "no colon": block(b"HTTP/1.1 200 OK", b"garbage", b": empty", b"Content-Type: text/html"),
    "no reason": block(b"HTTP/1.1 200", b"Content-Type: text/html"),
    "early hints": block(b"HTTP/1.1 103 Early Hints", b"Link: </a>") + block(b"HTTP/1.1 200 OK", b"Server: x"),
    "a forged record": block(b"HTTP/1.1 200 OK", b"X: 1", b"WARC/1.1", b"WARC-Type: response", b"Content-Length: 9"),
    "many": block(b"HTTP/1.1 200 OK", *[b"X-%d: %s" % (n, b"y" * 90) for n in range(200)]),
}


def test_odd_header_blocks_pass_both_checkers(tmp_path: Path) -> None:
    captures = [
        make_capture(f"https://example.com/{number}", HTML + name.encode(), response_headers=ODD_BLOCKS[name])
        for number, name in enumerate(ODD_BLOCKS)
    ]
    path = write(tmp_path, captures)
    check(path)
    with path.open("rb") as stream:
        bodies = [r.content_stream().read() for r in ArchiveIterator(stream) if r.rec_type == "response"]
    assert bodies == [capture.body for capture in captures]
    assert [capture.body_raw for capture in read_captures(path)] == bodies


def test_every_kind_of_response_passes_both_checkers(tmp_path: Path) -> None:
    plain, packed = make_capture(), encoded("https://example.com/gz")
    captures = [
        plain,
        packed,
        make_capture("https://example.com/empty", b""),
        make_capture("https://example.com/304", b"", status=304, response_headers=b"HTTP/1.1 304 Not Modified\r\n\r\n"),
        make_capture("https://example.com/500", b"oops", status=500, ip="2001:db8::1", protocol="h2"),
        make_capture("https://example.com/no-request", request_headers=b"", ip="", protocol=""),
        make_capture("https://example.com/big", bytes(range(256)) * 80_000),
        encoded("https://example.com/unknown-encoding", b"zstd"),
    ]
    path = write(tmp_path, captures)
    check(path)
    assert [(read.url, read.body_raw) for read in read_captures(path)] == [
        (capture.url, capture.body_raw) for capture in captures
    ]


def test_revisits_pass_both_checkers(tmp_path: Path) -> None:
    plain, packed = make_capture(), encoded("https://example.com/gz")
    again = [revisit_of(plain, "https://example.com/again"), revisit_of(packed, "https://example.com/gz-again")]
    path = write(tmp_path, [plain, packed, *again])
    check(path, payloads=False)
    with path.open("rb") as stream:
        assert [record.rec_type for record in ArchiveIterator(stream)].count("revisit") == 2


def test_surplus_responses_pass_both_checkers_and_are_named_by_a_record(tmp_path: Path) -> None:
    captures = [make_capture(f"https://example.com/{number}", HTML + b"%d" % number) for number in range(3)]
    writer = WarcWriter(tmp_path, "node-1", software="drumlin/1", info={}, now=FETCHED)
    writer.settle(writer.store(captures), {1})
    writer.close()
    path = tmp_path / writer.filename
    check(path)
    with path.open("rb") as stream:
        *_, (fields, said) = [(r.rec_headers, r.content_stream().read()) for r in ArchiveIterator(stream)]
    assert fields["WARC-Type"] == "metadata"
    assert fields["WARC-Refers-To"] == f"<{captures[1].record_id}>"
    assert fields["WARC-Target-URI"] == captures[1].url
    assert fields["WARC-Date"] == "2025-10-09T08:53:20.123456Z"
    assert b"surplus" in said
    index = merge(tmp_path).read_bytes()
    assert [capture.url.encode() in index for capture in captures] == [True, False, True]


def test_warcio_reads_what_was_fetched(tmp_path: Path) -> None:
    packed = encoded("https://example.com/gz")
    path = write(tmp_path, [make_capture(), packed])
    with path.open("rb") as stream:
        records = [
            (r.rec_type, dict(r.rec_headers.headers), r.content_stream().read()) for r in ArchiveIterator(stream)
        ]
    assert [kind for kind, _, _ in records] == ["warcinfo", "request", "response", "request", "response"]
    assert b"software: drumlin/1" in records[0][2]
    _, fields, body = records[2]
    assert body == HTML
    assert fields["WARC-Target-URI"] == "https://example.com/"
    assert fields["WARC-Date"] == "2025-10-09T08:53:20.123456Z"
    assert fields["WARC-IP-Address"] == "192.0.2.7"
    assert fields["WARC-Protocol"] == "http/1.1"
    assert records[1][1]["WARC-Concurrent-To"] == fields["WARC-Record-ID"]
    assert fields["WARC-Warcinfo-ID"] == records[0][1]["WARC-Record-ID"]
    assert records[4][2] == HTML, "content_stream undoes the content-encoding"


def test_a_damaged_payload_fails_both_checkers(tmp_path: Path) -> None:
    path = write(tmp_path, [make_capture()])
    content = path.read_bytes()
    parts = content.split(b"\x1f\x8b\x08")[1:]
    damaged = gzip.decompress(b"\x1f\x8b\x08" + parts[-1]).replace(b"drumlins", b"drumlinz", 1)
    path.write_bytes(content[: content.rindex(b"\x1f\x8b\x08")] + gzip.compress(damaged))
    assert run([BIN / "warcio", "check", path], capture_output=True, check=False).returncode == 1
    assert run([BIN / "fastwarc", "check", "-p", path], capture_output=True, check=False).returncode == 1


def test_the_merged_index_agrees_with_fastwarcs_own_view(tmp_path: Path) -> None:
    write(tmp_path, [make_capture(f"https://example.com/{n}") for n in range(20)], rotate_bytes=3_000)
    lines = merge(tmp_path).read_bytes().splitlines()
    assert len(lines) == 20
    assert lines == sorted(lines)
    assert len(list(tmp_path.glob("*.warc.gz"))) > 2
