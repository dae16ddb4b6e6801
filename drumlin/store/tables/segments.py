"""Parquet segments of the tables `pages`, `links` and `fetches`.

A segment is one file in each table's folder, all three under the same name. They are written as `.NAME.parquet.tmp`
and renamed when complete, `pages` last: a segment counts once its `pages` file has its final name. What a crash left of
any other segment is deleted at the next start by `discard_unfinished`, and its rows are rebuilt from the WARC.

A segment that grows slowly is shown before it is complete: its files get their final names with the rows so far, and
are later replaced, by a rename, with files that have more rows. So a reader sees each row once at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.disk import remove, replace, storage_error, sync_file
from drumlin.errors import StorageError
from drumlin.model import Capture
from drumlin.store.tables.rows import FetchRecord, LinkRows, fetch_table, page_row, page_table
from drumlin.store.tables.schema import (
    COLUMNS,
    ENCODINGS,
    FETCHES,
    LINKS,
    METADATA,
    PAGES,
    REPEATING,
    SCHEMAS,
    SUMMARISED,
)

__all__ = ["FetchRecord", "SegmentWriter", "discard_unfinished"]

ROW_GROUP_PAGES: Final = 500
ROW_GROUP_LINKS_MAX: Final = 100_000
ROW_GROUP_FETCHES_MAX: Final = 5_000
ROW_GROUP_TEXT_BYTES_MAX: Final = 32_000_000
ROW_GROUP_LINKS_BYTES_MAX: Final = 32_000_000
"""A row group is written when any of these limits is reached, which bounds memory for every kind of page."""

BODY_UNCOUNTED_BYTES: Final = 256 * 1024
"""The texts of a page's links are in its body. What a body has beyond this size is counted as if all of it were such
texts."""
GATHERED_BYTES_MAX: Final = 64_000_000
"""Small row groups are gathered into one of at most this size, unpacked."""

PARQUET_SUFFIX: Final = ".parquet"
TEMPORARY_SUFFIX: Final = ".parquet.tmp"
COMPRESSION: Final = "zstd"
COMPRESSION_LEVEL: Final = 1
_RENAME_ORDER: Final = (FETCHES, LINKS, PAGES)
_ROW_GROUP_MAX: Final = {
    PAGES: ROW_GROUP_PAGES,
    LINKS: ROW_GROUP_LINKS_MAX,
    FETCHES: ROW_GROUP_FETCHES_MAX,
}


def discard_unfinished(directory: Path) -> list[Path]:
    """Delete what a crash left of unfinished segments, and return what was deleted.

    Call this only when the writers of those segments are dead, since the segment of a living writer is unfinished too.
    """
    doomed = [path for table in COLUMNS for path in (directory / table).glob(f".*{TEMPORARY_SUFFIX}")]
    for table in (LINKS, FETCHES):
        complete = (directory / table).glob(f"*{PARQUET_SUFFIX}")
        doomed += [path for path in complete if not (directory / PAGES / path.name).exists()]
    for path in doomed:
        remove(path)
    return doomed


class SegmentWriter:
    """One segment of the three tables. Rows are gathered into row groups; `show` and `finish` let readers see them."""

    def __init__(self, directory: Path, name: str, *, node: str = "", sync: bool = False) -> None:
        self._directory = directory
        self._sync = sync
        self._failure: StorageError | None = None
        self._name = name
        self._node = node
        self._writers: dict[str, Any] = {}
        self._pages: list[tuple[Any, ...]] = []
        self._links = LinkRows()
        self._fetches: list[FetchRecord] = []
        self._text_bytes = 0
        self._links_bytes = 0
        self._finished = False
        self._shown = False
        self._unshown = 0
        self.rows = 0
        """Pages added so far."""

    def add(
        self,
        captures: Sequence[Capture],
        fetches: Sequence[FetchRecord] = (),
    ) -> None:
        """Add rows. Captures must be stored in a WARC already, since their rows say where."""
        for capture in captures:
            self._pages.append(page_row(capture, self._node))
            self._links.add(capture)
            self._text_bytes += len(capture.text)
            if capture.links.urls:
                self._links_bytes += capture.links_bytes + max(0, len(capture.body) - BODY_UNCOUNTED_BYTES)
            if self._is_full():
                self.flush()
        self.rows += len(captures)
        self._unshown += len(captures) + len(fetches)
        self._fetches += fetches
        if len(self._fetches) >= ROW_GROUP_FETCHES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write the gathered rows as one row group in each table."""
        if self._failure is not None:
            raise self._failure
        pages, links, fetches = self._pages, self._links, self._fetches
        self._pages, self._links, self._fetches = [], LinkRows(), []
        self._text_bytes = self._links_bytes = 0
        # Until all of it is written, these rows are nowhere. If anything goes wrong, the segment must not be published.
        self._failure = StorageError(
            f"The segment {self._name} lost rows.", "Run the same command again to rebuild it."
        )
        if pages:
            self._write(PAGES, page_table(pages))
        if links:
            self._write(LINKS, links.table())
        if fetches:
            self._write(FETCHES, fetch_table(fetches))
        self._failure = None

    @property
    def has_unshown_rows(self) -> bool:
        return self._unshown > 0

    def finish(self) -> None:
        """Complete the three files and give them their names. Doing it again does nothing.

        A segment that failed to write a row group has lost rows, so it can never be finished.
        """
        if not self._finished:
            self.show()
            self._finished = True

    def show(self) -> None:
        """Let readers see the rows so far. Later rows go to a new file that begins with a copy of these."""
        if self._failure is None and self._shown and not self._unshown:
            return
        self.flush()
        for table in COLUMNS:
            self._writer(table)
            self._close(table)
        for table in _RENAME_ORDER:
            replace(self._temporary(table), self._final(table), sync=self._sync)
        self._writers.clear()
        self._shown, self._unshown = True, 0

    def abandon(self) -> None:
        """Delete an unfinished segment, for instance after an error; its rows are rebuilt from the WARC."""
        if self._finished:
            return
        for table in self._writers:
            with suppress(StorageError):
                self._close(table)
        for table in COLUMNS:
            remove(self._temporary(table))
        self._finished = True

    def _is_full(self) -> bool:
        return (
            len(self._pages) >= ROW_GROUP_PAGES
            or self._text_bytes >= ROW_GROUP_TEXT_BYTES_MAX
            or len(self._links) >= ROW_GROUP_LINKS_MAX
            or self._links_bytes >= ROW_GROUP_LINKS_BYTES_MAX
        )

    def _final(self, table: str) -> Path:
        return self._directory / table / (self._name + PARQUET_SUFFIX)

    def _temporary(self, table: str) -> Path:
        return self._directory / table / f".{self._name}{TEMPORARY_SUFFIX}"

    def _writer(self, table: str) -> Any:
        writer = self._writers.get(table)
        if writer is None:
            path = self._temporary(table)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                writer = self._writers[table] = open_table(path, table)
                if self._shown:
                    for rows in _rows_of(self._final(table), table):
                        writer.write_table(rows)
            except (OSError, pa.ArrowException) as cause:
                raise self._failed(table, cause) from cause
        return writer

    def _write(self, table: str, rows: Any) -> None:
        writer = self._writer(table)
        try:
            writer.write_table(rows)
        except (OSError, pa.ArrowException) as cause:
            raise self._failed(table, cause) from cause

    def _close(self, table: str) -> None:
        try:
            self._writers[table].close()
            if self._sync:
                sync_file(self._temporary(table))
        except (OSError, pa.ArrowException) as cause:
            raise self._failed(table, cause) from cause

    def _failed(self, table: str, cause: Exception) -> StorageError:
        path = self._temporary(table)
        if isinstance(cause, OSError):
            self._failure = storage_error(path, cause)
        else:
            self._failure = StorageError(f"Cannot write {path}: {cause}.")
        return self._failure


def _rows_of(path: Path, table: str) -> Iterator[Any]:
    """The rows of a file, gathered into full row groups: a file that was shown often has many small ones."""
    with pq.ParquetFile(path) as shown:
        yield from gathered_rows(map(shown.read_row_group, range(shown.num_row_groups)), table)


def gathered_rows(groups: Iterable[Any], table: str) -> Iterator[Any]:
    """Row groups of a table, gathered into full ones."""
    gathered: list[Any] = []
    for group in groups:
        rows = group.cast(SCHEMAS[table])
        if gathered and sum(part.nbytes for part in gathered) + rows.nbytes > GATHERED_BYTES_MAX:
            yield pa.concat_tables(gathered)
            gathered = []
        gathered.append(rows)
        if sum(map(len, gathered)) >= _ROW_GROUP_MAX[table]:
            yield pa.concat_tables(gathered)
            gathered = []
    if gathered:
        yield pa.concat_tables(gathered)


def open_table(path: Path, table: str) -> Any:
    """A writer of a table's file."""
    writer = pq.ParquetWriter(
        path,
        SCHEMAS[table],
        compression=COMPRESSION,
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=REPEATING[table],
        column_encoding=ENCODINGS[table],
        write_statistics=SUMMARISED[table],
        store_schema=False,
    )
    writer.add_key_value_metadata(METADATA[table])
    return writer
