"""Finds what a store has, as units of retention: how old each is, how much it holds, and whose data that is.

All of it is asked of the data itself: of the index of a WARC file, and of the heads of tables. Times of files say
nothing, because a copy or a restore changes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.errors import StorageError
from drumlin.lifecycle.holds import Hold, Holds
from drumlin.lifecycle.retention.planning import CannotTell, Left, Unit, held_by
from drumlin.lifecycle.retention.policy import Kind, Policy, Rule
from drumlin.store.files import StoredFile, StoreFiles
from drumlin.store.tables.reading import batches
from drumlin.store.tables.rows import MICROSECONDS
from drumlin.store.tables.schema import COLUMNS, FETCHES, PAGES, TEXT_DELETED
from drumlin.store.tables.segments import PARQUET_SUFFIX
from drumlin.store.warc.cdxj import CDXJ_SUFFIX, INDEX_NAME, STAMP, STAMP_DIGITS, parse_line
from drumlin.store.warc.file import WARC_SUFFIX
from drumlin.urls import host_or_nothing

TEXT: Final = "text"
_UNKNOWN: Final = -1.0

Busy = Callable[[Kind, str], Left | None]
"""Why a unit of this kind and name must be left alone, if it must."""


class Sized(msgspec.Struct):
    """The files of a folder by their names, each with its size."""

    files: dict[str, StoredFile]

    def bytes(self, name: str) -> int:
        return self.files[name].bytes if name in self.files else 0


def units(files: StoreFiles, policy: Policy, busy: Busy) -> Iterator[Unit]:
    """The units of all kinds that have a rule, but for logs."""
    if Kind.WARC in policy.rules:
        yield from _warcs(files, busy)
    wanted = [kind for kind in (Kind.TABLES, Kind.TEXT) if kind in policy.rules]
    if wanted:
        yield from _segments(files, wanted, busy)


def has_any(files: StoreFiles, hold: Hold) -> bool:
    """Whether anything stored is under this hold, as far as that can be told."""
    everything = Policy(dict.fromkeys((Kind.WARC, Kind.TABLES), Rule()))
    holds = Holds([hold])
    return any(held_by(unit, holds) is not None for unit in units(files, everything, lambda kind, name: None))


# WARC files


def _warcs(files: StoreFiles, busy: Busy) -> Iterator[Unit]:
    folder = Sized({one.name: one for suffix in (WARC_SUFFIX, CDXJ_SUFFIX) for one in files.files("warc", suffix)})
    for name in sorted(folder.files):
        retired = files.retired(f"warc/{name}")
        if not name.endswith(WARC_SUFFIX) or (retired is not None and not retired.to):
            # What was noted as deleted is completed by the next run, whatever it finds.
            continue
        index, stem = name.removesuffix(WARC_SUFFIX) + CDXJ_SUFFIX, name.removesuffix(WARC_SUFFIX)
        rows, newest = _indexed(files, f"warc/{index}", stem)
        yield Unit(
            kind=Kind.WARC,
            name=stem,
            paths=[f"warc/{one}" for one in (name, index) if one in folder.files],
            movable=[f"warc/{name}"],
            rows=rows,
            bytes=folder.bytes(name) + folder.bytes(index),
            bytes_movable=folder.bytes(name),
            newest=newest,
            moved=retired is not None,
            busy=Left.UNREADABLE if newest == _UNKNOWN else busy(Kind.WARC, stem),
            hosts=partial(_indexed_hosts, files, f"warc/{index}"),
        )


def _indexed(files: StoreFiles, path: str, stem: str) -> tuple[int, float]:
    """How many records an index lists, and the time of the newest. A WARC file without any is as old as its name
    says."""
    rows, newest = 0, b""
    try:
        with files.open(path) as index:
            for line in index:
                rows += 1
                newest = max(newest, line.split(b" ", 2)[1])
        return rows, _moment(newest.decode() if newest else stem.split("-")[1])
    except (OSError, StorageError, ValueError, IndexError):
        return rows, _UNKNOWN


def _moment(stamp: str) -> float:
    return datetime.strptime(stamp[:STAMP_DIGITS], STAMP).replace(tzinfo=UTC).timestamp()


def _indexed_hosts(files: StoreFiles, path: str) -> Iterator[str]:
    with _told(), files.open(path) as index:
        for line in index:
            yield host_or_nothing(parse_line(line).url)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (OSError, StorageError, msgspec.MsgspecError, pa.ArrowException) as wrong:
        raise CannotTell from wrong


def has_index(files: StoreFiles) -> bool:
    """Whether the indexes of all WARC files were merged into one."""
    return any(one.name == INDEX_NAME for one in files.files("warc", INDEX_NAME))


# Tables


class _Facts(msgspec.Struct):
    """What the heads of a segment's tables say."""

    rows: int = 0
    bytes: int = 0
    newest: float = _UNKNOWN
    pages: int = 0
    text_bytes: int = 0
    has_text: bool = True


def _segments(files: StoreFiles, kinds: list[Kind], busy: Busy) -> Iterator[Unit]:
    tables = {
        table: Sized({one.name: one for one in files.files(f"tables/{table}", PARQUET_SUFFIX)}) for table in COLUMNS
    }
    for file in sorted(tables[PAGES].files):
        retired = files.retired(f"tables/{PAGES}/{file}")
        if retired is not None and not retired.to:
            continue
        name = file.removesuffix(PARQUET_SUFFIX)
        paths = [f"tables/{table}/{file}" for table, folder in tables.items() if file in folder.files]
        facts = _facts(files, paths, sum(folder.bytes(file) for folder in tables.values()))
        if facts.newest == _UNKNOWN and not facts.rows and facts.bytes:
            facts.newest = _started(name)
        why = Left.UNREADABLE if facts.newest == _UNKNOWN else None
        hosts = partial(_table_hosts, files, paths)
        if Kind.TABLES in kinds:
            yield Unit(
                kind=Kind.TABLES,
                name=name,
                paths=paths,
                movable=paths,
                rows=facts.rows,
                bytes=facts.bytes,
                bytes_movable=facts.bytes,
                newest=facts.newest,
                moved=retired is not None,
                busy=why or busy(Kind.TABLES, name),
                hosts=hosts,
            )
        if Kind.TEXT in kinds and facts.has_text:
            yield Unit(
                kind=Kind.TEXT,
                name=name,
                paths=[f"tables/{PAGES}/{file}"],
                rows=facts.pages,
                bytes=facts.text_bytes,
                newest=facts.newest,
                busy=why or busy(Kind.TABLES, name),
                hosts=hosts,
            )


def _started(segment: str) -> float:
    """When the writer of a segment without any row was started, by its name."""
    try:
        return int(segment.rsplit("-", 2)[1], 16) / 1000
    except (ValueError, IndexError):
        return _UNKNOWN


def newest_of(files: StoreFiles, paths: list[str]) -> float:
    """The time of the newest row or record of a segment with these files; below 0 if it has none, and infinity if it
    cannot be read: nobody can tell when such a segment is old."""
    facts = _facts(files, [path for path in paths if path.endswith(PARQUET_SUFFIX)], 0)
    indexes = [path for path in paths if path.endswith(CDXJ_SUFFIX)]
    records = [_indexed(files, path, _stem(path))[1] for path in indexes]
    unreadable = _UNKNOWN in records or (facts.newest == _UNKNOWN and facts.rows > 0)
    return math.inf if unreadable else max([facts.newest, *records])


def _stem(path: str) -> str:
    """What a WARC file and its index have in common."""
    return path.rpartition("/")[2].removesuffix(CDXJ_SUFFIX)


def _facts(files: StoreFiles, paths: list[str], size: int) -> _Facts:
    facts = _Facts(bytes=size)
    try:
        for path in paths:
            with files.open(path) as opened, pq.ParquetFile(opened) as file:
                _note(facts, file, path.split("/")[1])
    except (OSError, StorageError, pa.ArrowException):
        facts.newest, facts.rows = _UNKNOWN, max(facts.rows, 1)
    return facts


def _note(facts: _Facts, file: Any, table: str) -> None:
    metadata = file.metadata
    facts.rows += metadata.num_rows
    for group in range(metadata.num_row_groups):
        if table in (PAGES, FETCHES):
            facts.newest = max(facts.newest, _newest(file, group))
    if table == PAGES:
        text = file.schema_arrow.get_field_index(TEXT)
        facts.pages = metadata.num_rows
        facts.has_text = TEXT_DELETED not in (metadata.metadata or {}) and metadata.num_rows > 0
        facts.text_bytes = sum(_column_bytes(metadata.row_group(g), TEXT) for g in range(metadata.num_row_groups))
        facts.has_text = facts.has_text and text >= 0


def _column_bytes(group: Any, name: str) -> int:
    columns = (group.column(place) for place in range(group.num_columns))
    return sum(column.total_compressed_size for column in columns if column.path_in_schema == name)


def _newest(file: Any, group: int) -> float:
    """The time of the newest row of a row group, by what it says of itself or, without that, by its rows."""
    columns = file.metadata.row_group(group)
    for place in range(columns.num_columns):
        column = columns.column(place)
        said = column.statistics
        if column.path_in_schema == "fetch_time" and said is not None and said.has_min_max:
            return float(said.max_raw) / MICROSECONDS
    newest = _UNKNOWN
    for batch in batches(file, group, ["fetch_time"], lambda: True):
        times = batch.column(0).cast(pa.int64()).drop_null().to_pylist()
        newest = max([newest, *(time / MICROSECONDS for time in times)])
    return newest


def _table_hosts(files: StoreFiles, paths: list[str]) -> Iterator[str]:
    """Each host that has a row in a segment, some more than once."""
    columns = {PAGES: "url", FETCHES: "host"}
    for path in paths:
        column = columns.get(path.split("/")[1])
        if column is None:
            continue
        with _told(), files.open(path) as opened, pq.ParquetFile(opened) as file:
            for group in range(file.num_row_groups):
                for batch in batches(file, group, [column], lambda: True):
                    values = [value or "" for value in batch.column(0).unique().to_pylist()]
                    yield from map(host_or_nothing, values) if column == "url" else values
