"""Reads from stored pages what the search for duplicates needs: domain, digest and text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.errors import StorageError
from drumlin.store.files import StoreFiles
from drumlin.store.tables.reading import rows_of, table_files
from drumlin.store.tables.rows import moment_of
from drumlin.store.tables.schema import PAGES

BATCH_ROWS: Final = 500
COLUMNS: Final = [
    "url",
    "url_host_registered_domain",
    "content_digest",
    "text",
    "fetch_time",
    "fetch_status",
    "record_id",
]
_DIGEST_KIND: Final = "sha256:"


class PastPage(NamedTuple):
    """A page with a text; `digest` is that of its body."""

    url: str
    domain: str
    digest: bytes
    text: bytes
    fetched: float
    record_id: str


def past_pages(files: StoreFiles) -> Iterator[list[PastPage]]:
    """All stored pages that have a text and succeeded, in batches."""
    for path in table_files(files, PAGES):
        try:
            yield from _pages_in(files, path)
        except (OSError, pa.ArrowException) as cause:
            raise StorageError(f"Cannot read {path}: {cause}.") from cause


def _pages_in(files: StoreFiles, path: str) -> Iterator[list[PastPage]]:
    with files.open(path) as file, pq.ParquetFile(file) as pages:
        # Files of early versions lack some of these columns, and are skipped.
        if set(COLUMNS) <= set(pages.schema_arrow.names):
            for batch in pages.iter_batches(BATCH_ROWS, columns=COLUMNS):
                yield [_page(row) for row in rows_of(batch) if _is_wanted(row)]


def _is_wanted(row: dict[str, Any]) -> bool:
    return bool(row["text"] and row["content_digest"]) and (row["fetch_status"] or 0) < 300


def _page(row: dict[str, Any]) -> PastPage:
    digest = bytes.fromhex(row["content_digest"].removeprefix(_DIGEST_KIND))
    domain, fetched = row["url_host_registered_domain"] or "", moment_of(row["fetch_time"])
    return PastPage(row["url"], domain, digest, row["text"].encode(), fetched, row["record_id"] or "")
