"""Reads from the tables how the last attempt on certain URLs ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.store.files import StoreFiles
from drumlin.store.tables.reading import table_files, values_of
from drumlin.store.tables.schema import FETCHES

BATCH_ROWS: Final = 20_000
_SAID: Final = ["outcome", "fetch_status", "kind", "error"]
_COLUMNS: Final = ["url", "fetch_time", *_SAID]


class Fate(msgspec.Struct, frozen=True):
    """The last attempt on a URL. `kind` and `error` say why it failed or was not made."""

    outcome: str
    status: int
    kind: str
    error: str


def last_fates(files: StoreFiles, urls: Sequence[str]) -> dict[str, Fate]:
    """The last attempt on each of these URLs; URLs that were never tried are missing."""
    wanted = frozenset(urls)
    newest: dict[str, tuple[int, Fate]] = {}
    for path in table_files(files, FETCHES):
        # An unreadable file is skipped here; code that needs all rows reports it.
        with suppress(OSError, pa.ArrowException):
            for url, tried, fate in _attempts(files, path, wanted):
                if url not in newest or tried >= newest[url][0]:
                    newest[url] = (tried, fate)
    return {url: fate for url, (_, fate) in newest.items()}


def _attempts(files: StoreFiles, path: str, wanted: frozenset[str]) -> Iterator[tuple[str, int, Fate]]:
    """The attempts on the wanted URLs, with their times. Compared in Python, because importing Arrow's compute module
    would take longer than reading most crawls' tables."""
    with files.open(path) as opened, pq.ParquetFile(opened) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=_COLUMNS):
            urls = batch.column("url").to_pylist()
            if wanted.isdisjoint(urls):
                continue
            tried = [when or 0 for when in values_of(batch.column("fetch_time"))]
            said = [batch.column(name).to_pylist() for name in _SAID]
            for url, when, outcome, status, kind, error in zip(urls, tried, *said, strict=True):
                if url in wanted:
                    yield url, when, Fate(outcome, status or 0, kind or "", error or "")
