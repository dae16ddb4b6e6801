"""Writes a table of pages anew without the texts: all other columns stay as they are.

Titles, descriptions and the texts of links are in other columns, and stay. So does the sketch of a text, from which it
cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.disk import sync_file
from drumlin.errors import StorageError
from drumlin.lifecycle.retention.found import TEXT
from drumlin.store.tables.schema import PAGES, SCHEMAS, TEXT_DELETED
from drumlin.store.tables.segments import gathered_rows, open_table


def write_without_text(source: BinaryIO, target: Path, now: float) -> None:
    """Write a new file with the same rows and no text, which says when that was."""
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    with pq.ParquetFile(source) as file, open_table(target, PAGES) as writer:
        rows = 0
        for group in gathered_rows(_groups(file), PAGES):
            writer.write_table(group)
            rows += len(group)
        writer.add_key_value_metadata({TEXT_DELETED.decode(): moment})
        expected = file.metadata.num_rows
    sync_file(target)
    if rows != expected or pq.read_metadata(target).num_rows != expected:
        raise StorageError(f"{target} has {rows} rows and should have {expected}.", "The old file was left as it is.")


def _groups(file: Any) -> Iterator[Any]:
    """Each row group with all the columns of this version; what an earlier one did not have is NULL."""
    for number in range(file.num_row_groups):
        read = file.read_row_group(number, columns=[name for name in file.schema_arrow.names if name != TEXT])
        columns = [_column(read, field) for field in SCHEMAS[PAGES]]
        yield pa.table(columns, schema=SCHEMAS[PAGES])


def _column(rows: Any, field: Any) -> Any:
    if field.name not in rows.schema.names:
        return pa.nulls(len(rows), field.type)
    return rows[field.name].cast(field.type)
