"""Makes events of the rows of a segment, from a cursor on, a batch at a time.

A segment's files are replaced by longer ones while it grows, with the same rows in front; whoever has opened a file
goes on reading the one that it opened. Columns are turned into lists a batch at a time, and a page's links are slices
of these lists, so nothing is done for a single link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.events.owed import Cursor
from drumlin.events.schema import (
    LINKS,
    RESULTS,
    TEXT_CHARS_MAX,
    TITLE_CHARS_MAX,
    VERSION,
    Fetch,
    Links,
    Message,
    Page,
    encode,
    fits,
    message_of,
    row_id,
)
from drumlin.model import Outcome
from drumlin.store.tables import schema as tables_schema
from drumlin.store.tables.segments import PARQUET_SUFFIX
from drumlin.urls import host_of

ROWS_AT_ONCE: Final = 500
LINKS_AT_ONCE: Final = 20_000
LINKS_PER_EVENT_MAX: Final = 2_000

PAGE_COLUMNS: Final = (
    *("url", "url_host_name", "url_port", "fetch_time", "fetch_status", "fetch_redirect", "content_digest"),
    *("content_mime_detected", "content_charset", "content_languages", "content_truncated", "warc_filename"),
    *("warc_record_offset", "warc_record_length", "title", "canonical", "depth", "found_on", "redirects"),
    *("duplicate_of", "duplicate_kind", "noindex", "nofollow", "soft_404", "body_bytes", "node", "record_id"),
)
FETCH_COLUMNS: Final = (
    *("url", "host", "fetch_time", "outcome", "fetch_status", "kind", "error", "duration_s", "attempt"),
    *("wire_bytes", "redirect_to", "protocol", "ip", "node", "record_id"),
)
LINK_COLUMNS: Final = ("url", "target", "kind", "rel", "text", "fetch_time")
_ID_COLUMNS: Final = ("url", "fetch_time", "record_id")

Row = dict[str, Any]


class Batch(msgspec.Struct):
    """Messages, and where the cursor stands when all of them are confirmed."""

    messages: list[Message]
    after: Cursor


def batches(tables: Path, name: str, cursor: Cursor, crawl: str) -> Iterator[Batch]:
    """The events of a segment that a cursor has not passed, as far as the segment is visible now. Reading in small
    parts leaves its caller time for other things."""
    if not (tables / tables_schema.PAGES / (name + PARQUET_SUFFIX)).exists():
        # A segment counts once its pages are there; they come last.
        return
    for rows, end in _parts(tables, tables_schema.PAGES, name, PAGE_COLUMNS, cursor.pages):
        cursor = msgspec.structs.replace(cursor, pages=end)
        yield Batch([_page(row, crawl) for row in rows], cursor)
    for rows, end in _parts(tables, tables_schema.FETCHES, name, FETCH_COLUMNS, cursor.fetches):
        cursor = msgspec.structs.replace(cursor, fetches=end)
        yield Batch([_fetch(row, crawl) for row in rows], cursor)
    yield from _link_batches(tables, name, cursor, crawl)


def _page(row: Row, crawl: str) -> Message:
    """The names of columns are those of the fields, except for a few."""
    url, time_us, port = row["url"], row["fetch_time"], row["url_port"]
    host = row["url_host_name"] if port is None else f"{row['url_host_name']}:{port}"
    row["title"] = row["title"] and row["title"][:TITLE_CHARS_MAX]
    told = {field: row[field] for field in _PAGE_FIELDS if row[field] is not None}
    page = Page(
        id=row_id(row["record_id"], url, time_us, Outcome.FETCHED),
        crawl=crawl,
        v=VERSION,
        host=host,
        fetch_time_us=time_us,
        **told,
    )
    return message_of(RESULTS, page)


def _fetch(row: Row, crawl: str) -> Message:
    row["error"] = row["error"] and row["error"][:TEXT_CHARS_MAX]
    told = {field: row[field] for field in _FETCH_FIELDS if row[field] is not None}
    identity = row_id(row["record_id"], row["url"], row["fetch_time"], row["outcome"])
    fetch = Fetch(id=identity, crawl=crawl, v=VERSION, fetch_time_us=row["fetch_time"], **told)
    return message_of(RESULTS, fetch)


_PAGE_FIELDS: Final = tuple(field for field in PAGE_COLUMNS if field in Page.__struct_fields__)
_FETCH_FIELDS: Final = tuple(field for field in FETCH_COLUMNS if field in Fetch.__struct_fields__)


def _link_batches(tables: Path, name: str, cursor: Cursor, crawl: str) -> Iterator[Batch]:
    """Batches of whole pages' links, so a cursor never stands between two links of a page."""
    ids: dict[tuple[str, int], str] | None = None
    path = tables / tables_schema.LINKS / (name + PARQUET_SUFFIX)
    for columns, start in _column_parts(path, cursor.links):
        ids = _page_ids(tables, name) if ids is None else ids
        messages: list[Message] = []
        done = 0
        for first, end in _runs(columns["url"], columns["fetch_time"]):
            messages += _links_of_page(columns, first, end, ids, crawl)
            if end - done >= LINKS_AT_ONCE:
                yield Batch(messages, msgspec.structs.replace(cursor, links=start + end))
                messages, done = [], end
        yield Batch(messages, msgspec.structs.replace(cursor, links=start + len(columns["url"])))


def _links_of_page(
    columns: dict[str, list[Any]], first: int, end: int, ids: dict[tuple[str, int], str], crawl: str
) -> Iterator[Message]:
    url, time_us = columns["url"][first], columns["fetch_time"][first]
    identity = ids.get((url, time_us)) or row_id(None, url, time_us, Outcome.FETCHED)
    host = host_of(url)

    def told(start: int, stop: int) -> Iterator[Message]:
        event = Links(
            id=identity,
            crawl=crawl,
            v=VERSION,
            url=url,
            host=host,
            fetch_time_us=time_us,
            first=start - first,
            targets=columns["target"][start:stop],
            kinds=columns["kind"][start:stop],
            rels=columns["rel"][start:stop],
            texts=columns["text"][start:stop],
        )
        value = encode(event)
        if fits(host, value):
            yield Message(LINKS, host, value)
        elif stop - start > 1:
            middle = (start + stop) // 2
            yield from told(start, middle)
            yield from told(middle, stop)
        else:
            yield message_of(LINKS, event)

    for start in range(first, end, LINKS_PER_EVENT_MAX):
        yield from told(start, min(end, start + LINKS_PER_EVENT_MAX))


def _runs(urls: Sequence[str], times: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where the links of each page begin and end: those of one page stand together, and have its time."""
    if not urls:
        return
    changes = np.flatnonzero(np.diff(np.asarray(times, dtype=np.int64))) + 1
    first = 0
    for end in (*changes.tolist(), len(urls)):
        # Two pages may have arrived in the same microsecond.
        while urls[first] != urls[end - 1]:
            cut = next(place for place in range(first, end) if urls[place] != urls[first])
            yield first, cut
            first = cut
        yield first, end
        first = end


def _page_ids(tables: Path, name: str) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for rows, _ in _parts(tables, tables_schema.PAGES, name, _ID_COLUMNS, 0):
        for row in rows:
            url, time_us = row["url"], row["fetch_time"]
            found[url, time_us] = row_id(row["record_id"], url, time_us, Outcome.FETCHED)
    return found


def _parts(tables: Path, table: str, name: str, columns: Sequence[str], start: int) -> Iterator[tuple[list[Row], int]]:
    """The rows of a file from row `start` on, some at a time, each part with the number of the row behind it."""
    path = tables / table / (name + PARQUET_SUFFIX)
    for group, first in _groups(path, columns, start):
        for place in range(0, group.num_rows, ROWS_AT_ONCE):
            part = group.slice(place, ROWS_AT_ONCE)
            lists = [_values(part, column) for column in columns]
            rows = [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
            yield rows, first + place + part.num_rows


def _column_parts(path: Path, start: int) -> Iterator[tuple[dict[str, list[Any]], int]]:
    """The columns of the links, a row group at a time (it has whole pages), with the number of its first row."""
    for group, first in _groups(path, LINK_COLUMNS, start):
        yield {column: _values(group, column) for column in LINK_COLUMNS}, first


def _groups(path: Path, columns: Sequence[str], start: int) -> Iterator[tuple[Any, int]]:
    """The row groups of a file without the rows before `start`, each with the number of its first row."""
    with pq.ParquetFile(path) as file:
        first = 0
        for number in range(file.num_row_groups):
            end = first + file.metadata.row_group(number).num_rows
            if end > start:
                skipped = max(0, start - first)
                # By this thread alone: the others of a node's machine are at work.
                rows = file.read_row_group(number, columns=list(columns), use_threads=False)
                yield rows.slice(skipped), first + skipped
            first = end


def _values(part: Any, column: str) -> list[Any]:
    values = part.column(column)
    if column == "fetch_time":
        # Viewed, not cast, which would import Arrow's compute module.
        values = pa.chunked_array([chunk.view(pa.int64()) for chunk in values.chunks], pa.int64())
    listed: list[Any] = values.to_pylist()
    return listed
