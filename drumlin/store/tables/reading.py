"""Reads tables in small pieces, within a time limit.

A file of a few kilobytes can unpack to gigabytes, since a long value that repeats is stored only once. So a reader
holds a piece of a file at a time, whoever wrote it, and looks at the clock between two pieces.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from drumlin.store.files import StoreFiles
from drumlin.store.tables.schema import PAGES

PARQUET: Final = ".parquet"
BATCH_ROWS: Final = 2_000
LONG_BATCH_ROWS: Final = 16
"""For columns whose values may be long."""
LONG_COLUMNS: Final = frozenset({"text"})

InTime = Callable[[], bool]
"""Whether there is time to go on."""


class TimeUp(Exception):  # it is no error
    """There is no time left to read on."""


def table_files(files: StoreFiles, table: str) -> list[str]:
    """The paths of a table's files, in order."""
    return [f"tables/{table}/{name}" for name in sorted(one.name for one in files.files(f"tables/{table}", PARQUET))]


def has_moved_tables(files: StoreFiles) -> bool:
    """Whether retention has moved files of tables to another place."""
    return any(files.retired(path) is not None for path in table_files(files, PAGES))


def check_time(in_time: InTime) -> None:
    if not in_time():
        raise TimeUp


def batches(file: Any, group: int, columns: list[str], in_time: InTime) -> Iterator[Any]:
    """Columns of a row group, some rows at a time. Raises `TimeUp`."""
    rows = BATCH_ROWS if LONG_COLUMNS.isdisjoint(columns) else LONG_BATCH_ROWS
    for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=columns, use_threads=False):
        check_time(in_time)
        yield batch


def compute() -> Any:
    """Arrow's compute module. It is imported at the first look-up, because the import would delay every start."""
    return importlib.import_module("pyarrow.compute")


def places_in(mask: Any) -> list[int]:
    """The places that a mask of Arrow names."""
    places: list[int] = compute().indices_nonzero(mask).to_pylist()
    return places


def rows_of(batch: Any) -> Iterator[dict[str, Any]]:
    """The rows of a batch, with times as microseconds: Python has no dates for some that a stranger can write."""
    columns = [values_of(column) for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, row, strict=True))


def values_of(column: Any) -> list[Any]:
    """A column's values, with times as microseconds."""
    values: list[Any] = (column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return values


def rows_at(file: Any, group: int, columns: list[str], places: list[int], in_time: InTime) -> Iterator[dict[str, Any]]:
    """The rows at these places of a row group, which are in order, with times as microseconds."""
    start, wanted = 0, iter(places)
    place = next(wanted, None)
    if place is None:
        return
    for batch in batches(file, group, columns, in_time):
        here = []
        while place is not None and place < start + len(batch):
            here.append(place - start)
            place = next(wanted, None)
        if here:
            yield from rows_of(batch.take(here))
        if place is None:
            return
        start += len(batch)
