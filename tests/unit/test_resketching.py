"""The near-duplicate index of a crawl that an earlier version began is made anew from the tables, once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drumlin.coordinator.resketching import (
    has_older_sketches,
    make_sketches_anew,
    make_sketches_anew_in_turn,
    note_sketches,
)
from drumlin.dedupe import sketches
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import StorageError
from drumlin.model import Content
from drumlin.store import SegmentWriter
from drumlin.store.files import DirectoryFiles
from tests.unit.store_captures import make_capture

WORDS = [f"word{number}" for number in range(100)]
DIGEST = b"\x07" * 32


def stored(tables: Path, engine: MemoryEngine) -> Content:
    """A page that an earlier version fetched, recorded without a sketch of today, and tabulated."""
    text = " ".join(WORDS).encode()
    page = make_capture("https://a.example/first", domain="a.example", digest=DIGEST, text=text)
    segment = SegmentWriter(tables / "tables", "segment")
    segment.add([page])
    segment.finish()
    content = Content(page.domain, page.url, DIGEST, None, page.fetched, page.record_id)
    asyncio.run(engine.contents.record([content], 0.9))
    return content


def near_to(engine: MemoryEngine, words: Sequence[str]) -> str | None:
    (sketch,) = sketches([" ".join(words).encode()])
    content = Content("a.example", "https://a.example/later", b"\x08" * 32, sketch, 0.0, "urn:later")
    (answer,) = asyncio.run(engine.contents.record([content], 0.9))
    return answer.url if answer else None


async def soon() -> float:
    return 100.0


def test_stored_pages_are_found_by_their_texts(tmp_path: Path) -> None:
    engine = MemoryEngine()
    content = stored(tmp_path, engine)
    assert asyncio.run(has_older_sketches(engine))
    assert asyncio.run(make_sketches_anew(engine, DirectoryFiles(tmp_path))) == 1
    assert not asyncio.run(has_older_sketches(engine))
    assert near_to(engine, [*WORDS, "more"]) == content.url


def test_without_it_they_are_not(tmp_path: Path) -> None:
    engine = MemoryEngine()
    stored(tmp_path, engine)
    assert near_to(engine, [*WORDS, "more"]) is None


def test_of_several_coordinators_one_does_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    engine = MemoryEngine()
    stored(tmp_path, engine)
    for name in ("one", "two"):
        asyncio.run(make_sketches_anew_in_turn(engine, DirectoryFiles(tmp_path), name, soon))
    assert caplog.text.count("near-duplicates of 1 stored pages are found again") == 1


def test_a_crawl_of_today_has_nothing_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    engine = MemoryEngine()
    asyncio.run(note_sketches(engine))
    asyncio.run(make_sketches_anew_in_turn(engine, DirectoryFiles(tmp_path), "one", soon))
    assert caplog.text == ""


@pytest.mark.parametrize("time", [2**62, None])
def test_a_page_of_a_time_that_cannot_be_is_found_like_others(tmp_path: Path, time: int | None) -> None:
    """Nothing else may keep a coordinator of a new version from starting."""
    engine = MemoryEngine()
    content = stored(tmp_path, engine)
    (path,) = (tmp_path / "tables" / "pages").glob("*.parquet")
    rows = pq.read_table(path)
    for name, value in (("fetch_time", time), ("fetch_status", None)):
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), pa.array([value], rows.schema.field(place).type))
    pq.write_table(rows, path)
    assert asyncio.run(make_sketches_anew(engine, DirectoryFiles(tmp_path))) == 1
    assert near_to(engine, [*WORDS, "more"]) == content.url


def test_a_table_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "tables" / "pages").mkdir(parents=True)
    (tmp_path / "tables" / "pages" / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(StorageError, match=r"torn\.parquet"):
        asyncio.run(make_sketches_anew(MemoryEngine(), DirectoryFiles(tmp_path)))
