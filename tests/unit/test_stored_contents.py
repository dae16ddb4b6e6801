"""Sums over the stored pages, and single captures out of a store."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drumlin.api.calls.data import content_view
from drumlin.disk import OPEN_SUFFIX
from drumlin.errors import StorageError
from drumlin.store import WarcWriter
from drumlin.store.copies import stored_capture
from drumlin.store.files import DirectoryFiles
from drumlin.store.tables import contents
from drumlin.store.tables.contents import OTHER_TYPES, TYPES_MAX, Contents, ContentsReader, Summed
from drumlin.store.tables.rows import BODY_BYTES_MAX, TIME_MAX
from drumlin.store.tables.schema import SCHEMAS
from tests.unit.store_captures import FETCHED, HTML, make_capture


def write(folder: Path, name: str, types: list[str | None], size: int = 500, time: int | None = 1_000_000) -> None:
    rows = [{"url": f"http://a.example/{number}", "content_mime_detected": kind} for number, kind in enumerate(types)]
    for row in rows:
        row |= {"body_bytes": size, "fetch_time": time, "noindex": False}  # type: ignore[dict-item]
    pages = folder / "tables" / "pages"
    pages.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, SCHEMAS["pages"]), pages / f"{name}.new")
    (pages / f"{name}.new").replace(pages / f"{name}.parquet")


def test_a_segment_is_read_again_only_when_it_was_replaced(tmp_path: Path) -> None:
    write(tmp_path, "one", ["text/html"])
    write(tmp_path, "two", ["text/html", None])
    reader = ContentsReader(DirectoryFiles(tmp_path))
    first = reader.sum_up(lambda: True)
    assert (first.contents.pages, first.contents.bytes, first.read) == (3, 1500, 2)
    assert first.contents.types == {"text/html": 2, "": 1}
    assert reader.sum_up(lambda: False).contents.pages == 3, "nothing had to be read"
    write(tmp_path, "two", ["text/html"] * 5)
    left = reader.sum_up(lambda: False)
    assert (left.contents.pages, left.read, left.segments) == (1, 1, 2)
    assert reader.sum_up(lambda: True).contents.pages == 6


def test_sites_cannot_invent_types_without_end(tmp_path: Path) -> None:
    write(tmp_path, "many", [f"made/up{number}" for number in range(3 * TYPES_MAX)])
    found = ContentsReader(DirectoryFiles(tmp_path)).sum_up(lambda: True).contents
    assert len(found.types) == TYPES_MAX + 1
    assert found.types[OTHER_TYPES] == 2 * TYPES_MAX
    assert found.types.total() == found.pages


def test_a_damaged_segment_and_an_empty_store_are_no_trouble(tmp_path: Path) -> None:
    reader = ContentsReader(DirectoryFiles(tmp_path))
    assert reader.sum_up(lambda: True).contents.pages == 0
    write(tmp_path, "good", ["text/html"])
    (tmp_path / "tables" / "pages" / "bad.parquet").write_bytes(b"PAR1 no more")
    assert reader.sum_up(lambda: True).contents.pages == 1


@pytest.mark.parametrize("away", [StorageError("The bucket is away."), OSError(errno.EIO, "input/output error")])
def test_a_segment_that_could_not_be_read_once_is_read_later(tmp_path: Path, away: Exception) -> None:
    class Away(DirectoryFiles):
        times = 1

        def open(self, path: str) -> BinaryIO:
            if self.times:
                self.times -= 1
                raise away
            return super().open(path)

    write(tmp_path, "one", ["text/html"])
    reader = ContentsReader(Away(tmp_path))
    first, later = reader.sum_up(lambda: True), reader.sum_up(lambda: True)
    assert (first.contents.pages, first.read, first.segments) == (0, 0, 1)
    assert (later.contents.pages, later.read, later.segments) == (1, 1, 1)


@pytest.mark.parametrize("time", [2**62, -(2**62), None])
def test_times_and_sizes_that_cannot_be_are_no_trouble(tmp_path: Path, time: int | None) -> None:
    write(tmp_path, "good", ["text/html"])
    for name in ("odd", "odder", "oddest"):
        write(tmp_path, name, ["text/html"] * 2, size=2**63 - 1, time=time)
    write(tmp_path, "negative", ["text/html"], size=-(2**62))
    found = ContentsReader(DirectoryFiles(tmp_path)).sum_up(lambda: True).contents
    assert (found.pages, found.bytes) == (8, 6 * BODY_BYTES_MAX + 500)
    assert found.type_bytes["text/html"] == found.bytes == sum(found.size_bytes)
    assert 1.0 <= found.newest <= TIME_MAX / 1e6
    assert msgspec.msgpack.encode(content_view(Summed(found, 5, 5)))


def test_rows_that_fail_in_a_way_nobody_foresaw_hide_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "good", ["text/html"])
    write(tmp_path, "odd", ["text/html"] * 2)

    def failing(rows: Any) -> Contents:
        return Contents(pages=len(rows) // (len(rows) % 2))

    monkeypatch.setattr(contents, "contents_of", failing)
    reader = ContentsReader(DirectoryFiles(tmp_path))
    for _ in range(2):
        assert reader.sum_up(lambda: True).contents.pages == 1
    assert caplog.text.count("cannot sum up odd.parquet") == 1


@pytest.mark.parametrize("finished", [False, True], ids=["growing", "finished"])
def test_a_capture_is_read_out_of_a_file_that_grows_and_out_of_a_finished_one(tmp_path: Path, finished: bool) -> None:
    captures = [make_capture(f"https://example.com/{n}", HTML + b"%d" % n) for n in range(3)]
    writer = WarcWriter(tmp_path / "warc", "node-1", software="drumlin/1", info={}, now=FETCHED)
    writer.settle(writer.store(captures))
    if finished:
        writer.close()
    for capture in captures:
        back = stored_capture(DirectoryFiles(tmp_path), capture.warc_filename, capture.warc_offset, 1 << 20)
        assert (back.url, back.body_raw, back.truncated) == (capture.url, capture.body_raw, "")
        assert back.warc_length == capture.warc_length
    assert bool(list((tmp_path / "warc").glob("*" + OPEN_SUFFIX))) is not finished
    writer.close()


def test_a_long_capture_is_cut_and_says_so(tmp_path: Path) -> None:
    capture = make_capture("https://example.com/long", b"x" * 1_000_000)
    writer = WarcWriter(tmp_path / "warc", "node-1", software="drumlin/1", info={}, now=FETCHED)
    writer.settle(writer.store([capture]))
    writer.close()
    back = stored_capture(DirectoryFiles(tmp_path), capture.warc_filename, capture.warc_offset, 50_000)
    assert 0 < len(back.body_raw) < 50_000
    assert back.truncated == "length"
    with pytest.raises(StorageError, match="capture"):
        stored_capture(DirectoryFiles(tmp_path), capture.warc_filename, 0, 50_000)


@pytest.mark.parametrize("name", ["../frontier/x", "/etc/passwd", "x.warc.gz", "drumlin-1/../../x.warc.gz", ""])
def test_a_name_that_is_none_of_a_warc_file_is_not_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError):
        stored_capture(DirectoryFiles(tmp_path), name, 0, 1000)
