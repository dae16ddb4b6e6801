"""The store against kill -9, a full file system, and hostile header blocks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator

from drumlin.errors import StorageError
from drumlin.store import SegmentWriter, WarcWriter, repair
from tests.harness.warcs import read_captures
from tests.unit.store_captures import FETCHED, make_capture

with warnings.catch_warnings():
    # Importing FastWARC defines classes that it calls deprecated itself.
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastwarc.warc import ArchiveIterator as FastIterator

FILE_SYSTEM_BYTES = 1_000_000
KILL_ROUNDS = 5

WRITER = """
import sys
import warnings
from pathlib import Path
from drumlin.store import WarcWriter
from tests.unit.store_captures import FETCHED, make_capture
writer = WarcWriter(Path(sys.argv[1]), "victim", software="x", info={}, now=FETCHED, rotate_bytes=200_000)
for number in range(1_000_000):
    batch = [make_capture(f"https://example.com/{number}/{n}") for n in range(5)]
    writer.settle(writer.store(batch))
    sys.stdout.write(batch[-1].url + "\\n")
    sys.stdout.flush()
"""


def new_writer(directory: Path) -> WarcWriter:
    return WarcWriter(directory, "node-1", software="drumlin/1", info={}, now=FETCHED)


def test_every_acknowledged_capture_survives_kill_9(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for round_number in range(KILL_ROUNDS):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(20 + 37 * round_number):
            acknowledged.add(process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)
        acknowledged.update(line.strip() for line in process.stdout if line.endswith("\n"))
        process.wait()
        process.stdout.close()
        repair(tmp_path, "victim")
        assert not list(tmp_path.glob("*.open"))
    stored: set[str] = set()
    for path in tmp_path.glob("*.warc.gz"):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                record.raw_stream.read()
        stored.update(capture.url for capture in read_captures(path))
    assert acknowledged - {""} <= stored


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={FILE_SYSTEM_BYTES}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_file_system_ends_in_a_sentence_and_a_valid_warc(small_disk: Path) -> None:
    writer = new_writer(small_disk)
    captures = [make_capture(f"https://example.com/{number}", os.urandom(20_000)) for number in range(100)]

    def append_all() -> None:
        for capture in captures:
            writer.settle(writer.store([capture]))

    with pytest.raises(StorageError, match=r"the disk is full\. Free some space"):
        append_all()
    stored = [capture.url for capture in captures if capture.warc_filename]
    assert 10 < len(stored) < 100
    path = small_disk / (writer.filename + ".open")
    assert [capture.url for capture in read_captures(path)] == stored
    assert path.stat().st_size == max(capture.warc_offset + capture.warc_length for capture in captures)


def test_tables_on_a_full_file_system_are_never_published_half(small_disk: Path) -> None:
    writer = SegmentWriter(small_disk, "segment-1")
    writer.add([make_capture(f"https://example.com/{n}", text=os.urandom(20_000).hex().encode()) for n in range(100)])
    with pytest.raises(StorageError, match="the disk is full"):
        writer.flush()
    with pytest.raises(StorageError, match="the disk is full"):
        writer.finish()
    writer.abandon()
    assert [path for path in small_disk.rglob("*") if path.is_file()] == []


LINES = [b"HTTP/1.1 200 OK", b"HTTP/2 200", b"X-A: b", b"Content-Length: 5", b"Transfer-Encoding: chunked", b"WARC/1.1"]
ENDS = [b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"\0", b"\xff\xfe", b"\xc3\xa9", b"\x85", b"\x1c", b"\x0b"]
pieces = st.sampled_from(LINES + ENDS)
blocks = st.lists(pieces, max_size=12).map(b"".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(blocks, min_size=1, max_size=20))
def test_no_header_block_makes_either_reader_lose_the_payload(tmp_path: Path, received: list[bytes]) -> None:
    captures = [
        make_capture(
            f"https://example.com/{n}", b"\r\n\r\nbody %d" % n, response_headers=b"HTTP/1.1 200 OK\r\n" + block
        )
        for n, block in enumerate(received)
    ] + [make_capture("https://example.com/raw", b"\n\nraw", response_headers=received[0])]
    writer = new_writer(tmp_path)
    writer.settle(writer.store(captures))
    writer.close()
    path = tmp_path / writer.filename
    bodies = [capture.body for capture in captures]
    assert [capture.body_raw for capture in read_captures(path)] == bodies
    with path.open("rb") as stream:
        records = ArchiveIterator(stream, check_digests="raise")
        assert [record.raw_stream.read() for record in records if record.rec_type == "response"] == bodies
        stream.seek(0)
        fast = [record.reader.read() for record in FastIterator(stream) if record.headers["WARC-Type"] == "response"]
        assert fast == bodies
    path.unlink()
