"""The Parquet tables, read as a user would."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from drumlin.errors import StorageError
from drumlin.model import Capture, Duplicate, LinkSet
from drumlin.store import FetchRecord, SegmentWriter, discard_unfinished
from drumlin.store.tables import segments as tables_module
from drumlin.store.tables.reference import page
from drumlin.store.tables.schema import COLUMNS
from tests.unit.store_captures import FETCHED, make_capture

ROOT = Path(__file__).parents[2]


def query(directory: Path, sql: str) -> list[Any]:
    names = {table: f"read_parquet('{directory}/{table}/*.parquet')" for table in ("pages", "links", "fetches")}
    with duckdb.connect() as connection:
        return connection.execute(sql.format(**names)).fetchall()


def fetch(url: str = "https://example.com/", **changes: Any) -> FetchRecord:
    fields = {"url": url, "host": "example.com", "fetched": FETCHED, "outcome": "fetched", "status": 200}
    return FetchRecord(**{**fields, **changes})


def written(directory: Path, captures: list[Any], fetches: list[FetchRecord] | None = None) -> SegmentWriter:
    writer = SegmentWriter(directory, "segment-1", node="node-1")
    writer.add(captures, fetches or [])
    writer.finish()
    return writer


def test_duckdb_reads_a_page_as_it_was_captured(tmp_path: Path) -> None:
    capture = make_capture("https://www.example.com:8443/a/b?q=1", warc_filename="x.warc.gz", warc_offset=7)
    capture.duplicate = Duplicate("https://example.com/first", 1.0, "urn:uuid:1", overlap=0.9375)
    written(tmp_path, [capture])
    (row,) = query(
        tmp_path,
        "SELECT url_surtkey, url, url_host_name, url_port, url_host_registered_domain, url_protocol, url_path, "
        "url_query, fetch_status, content_digest, content_mime_type, warc_filename, warc_record_offset, text, sketch, "
        "redirects, duplicate_of, duplicate_kind, duplicate_overlap, noindex, body_bytes, node, content_truncated "
        "FROM {pages}",
    )
    assert row == (
        "com,example:8443)/a/b?q=1",
        capture.url,
        "www.example.com",
        8443,
        "example.com",
        "https",
        "/a/b",
        "q=1",
        200,
        "sha256:" + capture.digest.hex(),
        "text/html",
        "x.warc.gz",
        7,
        "Some words about drumlins.",
        bytes(range(88)),
        ["https://example.com/old"],
        "https://example.com/first",
        "near",
        0.9375,
        False,
        len(capture.body),
        "node-1",
        None,
    )
    assert query(tmp_path, "SELECT epoch_us(fetch_time), typeof(fetch_time) FROM {pages}") == [
        (round(FETCHED * 1e6), "TIMESTAMP WITH TIME ZONE")
    ]


def test_links_are_one_row_each_and_those_that_lead_nowhere_are_dropped(tmp_path: Path) -> None:
    captures = [make_capture(f"https://example.com/{n}/") for n in range(3)]
    captures[1].links = LinkSet()
    written(tmp_path, captures)
    rows = query(tmp_path, "SELECT url, target, kind, rel, text FROM {links}")
    assert rows == [
        (f"https://example.com/{n}/", target, kind, "", text)
        for n in (0, 2)
        for target, kind, text in (
            (f"https://example.com/{n}/a", "a", "A"),
            ("https://other.example/", "img", "Ö"),
        )
    ]
    joined = "SELECT count(*) FROM {links} l JOIN {pages} p ON l.url = p.url AND l.fetch_time = p.fetch_time"
    assert query(tmp_path, joined) == [(4,)]


def test_a_line_end_in_a_link_moves_no_other_link(tmp_path: Path) -> None:
    capture = make_capture()
    capture.links = LinkSet(["https://a.test/", "https://b.test/"], ["a", "a"], ["", ""], ["one\ntwo", "three"])
    written(tmp_path, [capture])
    rows = query(tmp_path, "SELECT target, text FROM {links}")
    assert rows == [("https://a.test/", "one\ntwo"), ("https://b.test/", "three")]


def test_every_attempt_is_in_fetches(tmp_path: Path) -> None:
    denied = fetch("https://example.com/private", outcome="denied", status=0)
    failed = fetch("https://example.com/slow", outcome="failed", status=0, kind="timeout", error="30 s", attempt=2)
    written(tmp_path, [], [fetch(), denied, failed])
    assert query(tmp_path, "SELECT url, outcome, kind, attempt FROM {fetches} ORDER BY url") == [
        ("https://example.com/", "fetched", None, None),
        ("https://example.com/private", "denied", None, None),
        ("https://example.com/slow", "failed", "timeout", 2),
    ]


def test_an_empty_segment_still_has_all_three_tables(tmp_path: Path) -> None:
    written(tmp_path, [])
    counts = "SELECT (SELECT count(*) FROM {pages}), (SELECT count(*) FROM {links}), (SELECT count(*) FROM {fetches})"
    assert query(tmp_path, counts) == [(0, 0, 0)]


def test_text_that_is_no_utf8_costs_a_character_not_the_batch(tmp_path: Path) -> None:
    captures = [make_capture(text=b"fine"), make_capture(text=b"bad \xff byte", title="lone \ud800 surrogate")]
    captures[1].links = LinkSet(["https://example.com/x"], ["a"], ["\udfff"], ["\ud800"])
    written(tmp_path, captures)
    rows = query(tmp_path, "SELECT text, title FROM {pages}")
    assert rows == [("fine", "Hello"), ("bad \ufffd byte", "lone ? surrogate")]


def test_nothing_is_visible_before_finish_and_finishing_twice_is_once(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "segment-1")
    writer.add([make_capture()], [fetch()])
    writer.flush()
    assert writer.rows == 1
    assert not list(tmp_path.glob("*/*.parquet"))
    writer.finish()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*")}
    writer.finish()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*")} == before
    assert sorted(path.relative_to(tmp_path).as_posix() for path in before) == [
        "fetches/segment-1.parquet",
        "links/segment-1.parquet",
        "pages/segment-1.parquet",
    ]


def test_a_synced_segment_reads_the_same(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "segment-1", sync=True)
    writer.add([make_capture()], [fetch()])
    writer.finish()
    assert query(tmp_path, "SELECT count(*) FROM {pages}") == [(1,)]


def test_row_groups_are_flushed_as_they_fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "ROW_GROUP_PAGES", 4)
    written(tmp_path, [make_capture(f"https://example.com/{n}") for n in range(10)])
    metadata = pq.read_metadata(tmp_path / "pages" / "segment-1.parquet")
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [4, 4, 2]
    assert query(tmp_path, "SELECT count(*), count(DISTINCT url) FROM {pages}") == [(10, 10)]


def test_long_texts_and_many_links_flush_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "ROW_GROUP_TEXT_BYTES_MAX", 50)
    written(tmp_path, [make_capture(f"https://example.com/{n}") for n in range(4)])
    assert pq.read_metadata(tmp_path / "pages" / "segment-1.parquet").num_row_groups == 2


def linking(number: int, links: int, chars: int) -> Capture:
    """A page whose base makes long URLs of its short links."""
    capture = make_capture(f"https://example.com/{number}")
    base = "https://example.com/" + "a" * chars
    urls: list[str | None] = [f"{base}{place}" for place in range(links)]
    capture.links = LinkSet(urls, ["a"] * links, [""] * links, [""] * links)
    capture.links_bytes = links * len(base)
    return capture


def test_a_long_base_makes_no_large_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "ROW_GROUP_LINKS_BYTES_MAX", 100_000)
    written(tmp_path, [linking(number, 10, 5_000) for number in range(8)])
    metadata = pq.read_metadata(tmp_path / "links" / "segment-1.parquet")
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [20] * 4


def test_large_row_groups_are_not_gathered_into_a_larger_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "GATHERED_BYTES_MAX", 120_000)
    writer = SegmentWriter(tmp_path, "segment-1", node="node-1")
    for number in range(6):
        writer.add([linking(number, 10, 5_000)], [])
        writer.show()
    writer.finish()
    metadata = pq.read_metadata(tmp_path / "links" / "segment-1.parquet")
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [20, 20, 10, 10]
    assert query(tmp_path, "SELECT count(*), count(DISTINCT url) FROM {links}") == [(60, 6)]


def test_what_a_crash_left_is_discarded_and_finished_segments_stay(tmp_path: Path) -> None:
    written(tmp_path, [make_capture()], [fetch()])
    dead = SegmentWriter(tmp_path, "segment-2")
    dead.add([make_capture()], [fetch()])
    dead.flush()
    half = SegmentWriter(tmp_path, "segment-3")
    half.add([make_capture()], [fetch()])
    half.finish()
    (tmp_path / "pages" / "segment-3.parquet").unlink()
    assert len(discard_unfinished(tmp_path)) == 5
    assert sorted(path.name for path in tmp_path.glob("*/*")) == ["segment-1.parquet"] * 3
    dead.abandon()


def test_a_segment_that_lost_rows_to_a_bad_value_is_never_published(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "segment-1")
    writer.add([make_capture(status=1_000_000)])
    with pytest.raises(Exception, match="1000000"):
        writer.flush()
    with pytest.raises(StorageError, match="lost rows"):
        writer.finish()
    writer.abandon()


def test_an_abandoned_segment_leaves_nothing(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "segment-1")
    writer.add([make_capture()])
    writer.flush()
    writer.abandon()
    writer.finish()
    assert not list(tmp_path.glob("*/*")) or all(path.is_dir() for path in tmp_path.glob("*/*"))


def test_a_full_disk_is_a_storage_error(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "segment-1")
    writer.add([make_capture(text=os.urandom(100_000).hex().encode())])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        with pytest.raises(StorageError, match=r"^Cannot write .*segment-1"):
            writer.flush()
        with pytest.raises(StorageError):
            writer.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    with pytest.raises(StorageError):
        writer.finish()
    assert not list(tmp_path.glob("*/*.parquet")), "a segment that lost rows is never published"
    writer.abandon()
    assert not list(tmp_path.glob("*/.*"))


def test_a_segment_that_is_shown_again_and_again_is_the_same_as_one_that_is_not(tmp_path: Path) -> None:
    captures = [make_capture(f"https://example.com/{number}") for number in range(30)]
    written(tmp_path / "whole", captures, [fetch(capture.url) for capture in captures])
    writer = SegmentWriter(tmp_path / "shown", "segment-1", node="node-1")
    for number, capture in enumerate(captures, 1):
        writer.add([capture], [fetch(capture.url)])
        if number % 7 == 0:
            before = writer.has_unshown_rows
            writer.show()
            assert (before, writer.has_unshown_rows) == (True, False)
            assert query(tmp_path / "shown", "SELECT count(*) FROM {pages}") == [(number,)]
            assert query(tmp_path / "shown", "SELECT count(*) FROM {fetches}") == [(number,)]
    writer.finish()
    for table in ("pages", "links", "fetches"):
        shown, whole = (pq.read_table(tmp_path / name / table) for name in ("shown", "whole"))
        assert shown.equals(whole)
    assert not list(tmp_path.rglob("*.tmp"))
    assert pq.ParquetFile(next((tmp_path / "shown" / "pages").iterdir())).num_row_groups <= 3


def test_every_column_is_explained_in_the_docs_and_in_every_file(tmp_path: Path) -> None:
    assert (ROOT / "docs/reference/tables.md").read_text() == page(), "run `make docs`"
    written(tmp_path, [make_capture("https://example.com/")], [fetch()])
    for table, columns in COLUMNS.items():
        metadata = pq.read_metadata(tmp_path / table / "segment-1.parquet").metadata
        assert json.loads(metadata[b"drumlin.columns"]) == {name: column.meaning for name, column in columns.items()}


def test_what_is_not_known_is_null_and_never_an_empty_text(tmp_path: Path) -> None:
    capture = make_capture("http://[::1]:8080/", title="", description="", charset="", languages="", found_on="")
    written(tmp_path, [capture], [FetchRecord("http://[::1]:8080/", "[::1]:8080", FETCHED, "denied")])
    assert query(tmp_path, "SELECT url_host_name, url_port FROM {pages}") == [("[::1]", 8080)]
    for table in ("pages", "fetches"):
        rows = pq.read_table(tmp_path / table).to_pylist()
        assert not [(table, name) for row in rows for name, value in row.items() if value == ""]
    [(status, kind, ip)] = query(tmp_path, "SELECT fetch_status, kind, ip FROM {fetches}")
    assert (status, kind, ip) == (None, None, None)
