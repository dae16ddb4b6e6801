"""What the tables of a store say of one URL: every attempt, by whom and when, and where its page is.

Tables are in the order of arrival, so that all segments must be looked through; the newest are first, and a time limit
bounds the work. Only complete segments are seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drumlin.store.rows import MICROSECONDS
from drumlin.store.schema import FETCHES, PAGES
from drumlin.store.tables import PARQUET_SUFFIX
from drumlin.urls import identity

FOUND_MAX: Final = 100
_FETCH_COLUMNS: Final = ["fetch_time", "outcome", "fetch_status", "kind", "error", "node", "record_id"]
_SPELLED: Final = re.compile("[%?;]")
_PAGE_COLUMNS: Final = ["fetch_time", "warc_filename", "warc_record_offset"]


class StoredFetch(msgspec.Struct):
    """One attempt as the tables have it. `segment` names the files in which its rows are; `page` says whether one of
    them is a page, and the WARC's name is empty where there is no record."""

    fetched: float
    outcome: str
    status: int
    kind: str
    error: str
    node: str
    record_id: str
    segment: str
    page: bool = False
    warc_filename: str = ""
    warc_offset: int | None = None


def find_fetches(tables: Path, url: str, in_time: Callable[[], bool]) -> tuple[list[StoredFetch], bool]:
    """The attempts on a URL, and whether all segments were looked through: none is any more once not `in_time`."""
    found: list[StoredFetch] = []
    for path in sorted((tables / FETCHES).glob("*" + PARQUET_SUFFIX), key=_written, reverse=True):
        if not in_time() or len(found) >= FOUND_MAX:
            return found, False
        # A segment counts once its pages have their name.
        if (tables / PAGES / path.name).exists():
            found += _in_segment(tables, path, url)
    return found, True


def _in_segment(tables: Path, path: Path, url: str) -> list[StoredFetch]:
    rows = _rows(path, _FETCH_COLUMNS, url)
    if not rows:
        return []
    pages = {row["fetch_time"]: row for row in _rows(tables / PAGES / path.name, _PAGE_COLUMNS, url)}
    return [_stored(row, pages.get(row["fetch_time"]), path.name.removesuffix(PARQUET_SUFFIX)) for row in rows]


def _rows(path: Path, columns: list[str], url: str) -> list[dict[str, Any]]:
    try:
        table = pq.read_table(path, columns=[*columns, "url"], filters=_may_be(url))
    except (OSError, pa.ArrowException):
        # It was replaced or removed meanwhile.
        return []
    rows: list[dict[str, Any]] = table.set_column(0, "fetch_time", table["fetch_time"].cast("int64")).to_pylist()
    page = identity(url)
    return [row for row in rows if identity(row["url"]) == page]


def _may_be(url: str) -> pc.Expression:
    """What every spelling of a URL has: its beginning, up to where spellings differ, unless it is escaped there."""
    place, column = identity(url), pc.field("url")
    common = _SPELLED.split(place, maxsplit=1)[0]
    escaped = pc.starts_with(column, place[: place.index("/", len("https://")) + 1]) & pc.match_substring(column, "%")
    return pc.starts_with(column, common) & (pc.match_substring_regex(column, "[%?;]") | (column == place)) | escaped


def _stored(row: dict[str, Any], page: dict[str, Any] | None, segment: str) -> StoredFetch:
    return StoredFetch(
        row["fetch_time"] / MICROSECONDS,
        row["outcome"],
        row["fetch_status"] or 0,
        row["kind"] or "",
        row["error"] or "",
        row["node"] or "",
        row["record_id"] or "",
        segment,
        page is not None,
        (page or {}).get("warc_filename") or "",
        (page or {}).get("warc_record_offset"),
    )


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
