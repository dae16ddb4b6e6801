"""Rows of a table as lines of text, for whoever takes them away: JSON or CSV, a piece at a time.

A file may be a stranger's, so it is read in small pieces (`reading`); one that cannot be read is left out, and counted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.clock import monotonic
from drumlin.errors import StorageError
from drumlin.store.files import StoreFiles
from drumlin.store.tables.reading import batches, rows_of, table_files
from drumlin.store.tables.rows import MICROSECONDS
from drumlin.store.tables.schema import COLUMNS
from drumlin.urls import host_or_nothing

PIECE_BYTES: Final = 128 * 1024
SEARCH_S_MAX: Final = 0.5
"""For how long nothing is said while no row is wanted."""
LEFT_OUT: Final = frozenset({"sketch"})
"""Columns that nobody means by all columns."""
TIME: Final = "fetch_time"


class Wanted(msgspec.Struct, frozen=True):
    """Which rows and columns of a table; `since` and `before` are microseconds, 0 for any time."""

    table: str
    columns: tuple[str, ...]
    is_wanted_host: Callable[[str], bool] | None = None
    since: int = 0
    before: int = 0
    as_csv: bool = False


class Taken(msgspec.Struct):
    """How much was exported so far. Files that could not be read are `unread`."""

    rows: int = 0
    bytes: int = 0
    unread: int = 0


def columns_of(table: str, named: str) -> tuple[str, ...]:
    """The columns with these names, between commas; none for all. ValueError names one that does not exist."""
    names = tuple(name for part in named.split(",") if (name := part.strip()))
    for name in names:
        if name not in COLUMNS[table]:
            raise ValueError(name)
    return names or tuple(name for name in COLUMNS[table] if name not in LEFT_OUT)


def exported(files: StoreFiles, wanted: Wanted, taken: Taken) -> Iterator[bytes]:
    """The rows, a piece at a time; `taken` tells how many there were. While none is found, empty pieces come, so that
    whoever waits can see that nobody wants them any more."""
    for piece in _gathered(_lines(files, wanted, taken)):
        taken.bytes += len(piece)
        yield piece


def _gathered(lines: Iterator[bytes]) -> Iterator[bytes]:
    gathered, yielded = bytearray(), monotonic()
    for line in lines:
        gathered += line
        if len(gathered) >= PIECE_BYTES or (not line and monotonic() - yielded >= SEARCH_S_MAX):
            yield bytes(gathered)
            gathered.clear()
            yielded = monotonic()
    yield bytes(gathered)


def _lines(files: StoreFiles, wanted: Wanted, taken: Taken) -> Iterator[bytes]:
    """A line for each row, and empty ones where rows are only looked at."""
    if wanted.as_csv:
        yield _csv(wanted.columns)
    for path in table_files(files, wanted.table):
        try:
            with files.open(path) as opened, pq.ParquetFile(opened) as file:
                for row in _rows(file, wanted):
                    if row is None:
                        yield b""
                        continue
                    taken.rows += 1
                    shown = {name: _shown(name, row.get(name)) for name in wanted.columns}
                    yield _csv(map(_cell, shown.values())) if wanted.as_csv else msgspec.json.encode(shown) + b"\n"
        except (OSError, StorageError, pa.ArrowException):
            taken.unread += 1


def _rows(file: Any, wanted: Wanted) -> Iterator[dict[str, Any] | None]:
    """The rows that are wanted, and None after some were read."""
    there = file.schema_arrow.names
    columns = [name for name in dict.fromkeys((*wanted.columns, "url", TIME)) if name in there]
    for group in range(file.num_row_groups):
        for batch in batches(file, group, columns, lambda: True):
            for row in rows_of(batch):
                time = row.get(TIME) or 0
                in_time = wanted.since <= time and (not wanted.before or time < wanted.before)
                if in_time and (wanted.is_wanted_host is None or wanted.is_wanted_host(_host(row))):
                    yield row
            yield None


def _host(row: dict[str, Any]) -> str:
    return host_or_nothing(row.get("url") or "")


def _shown(name: str, value: Any) -> Any:
    if name == TIME and value is not None:
        try:
            return datetime.fromtimestamp(value / MICROSECONDS, UTC).isoformat()
        except (ValueError, OverflowError, OSError):
            # A stranger can write times for which there is no date.
            return None
    return value.hex() if isinstance(value, bytes) else value


def _cell(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, list) else value


def _csv(cells: Any) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode("utf-8", "replace")
