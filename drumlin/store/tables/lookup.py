"""What the tables of a store say about one URL: every attempt, by which node and when, where its page is, and which
pages link to it.

Rows are in order of arrival, not sorted by URL, so all segments must be searched: newest first, within a time limit.
Only complete segments are seen.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.store.tables.rows import MICROSECONDS
from drumlin.store.tables.schema import FETCHES, LINKS, PAGES
from drumlin.store.tables.segments import PARQUET_SUFFIX
from drumlin.urls import identity

FOUND_MAX: Final = 100
LINKS_FOUND_MAX: Final = 20
_FETCH_COLUMNS: Final = ["fetch_time", "outcome", "fetch_status", "kind", "error", "node", "record_id", "redirect_to"]
_SPELLED: Final = re.compile("[%?;]")
_PAGE_COLUMNS: Final = [
    "fetch_time",
    "warc_filename",
    "warc_record_offset",
    "found_on",
    "duplicate_of",
    "duplicate_kind",
]


class StoredFetch(msgspec.Struct):
    """One attempt as the tables have it. `segment` names the files that hold its rows, `page` says whether it has a row
    in `pages`, and the WARC's name is empty if there is no record."""

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
    redirect_to: str = ""
    found_on: str = ""
    duplicate_of: str = ""
    duplicate_kind: str = ""


REDIRECT: Final = "redirect"


class StoredLink(msgspec.Struct, frozen=True):
    """A link to a URL: the page that has it, how far that page is from a seed, and what may keep the link from being
    followed: its kind, its `rel`, the page's own nofollow, and whether the page is a soft 404."""

    page: str
    kind: str
    rel: str
    depth: int
    nofollow: bool
    soft_404: bool


def find_fetches(tables: Path, url: str, in_time: Callable[[], bool]) -> tuple[list[StoredFetch], bool]:
    """The attempts on a URL, and whether all segments were searched. The search stops when `in_time` says no, or at
    `FOUND_MAX`."""
    found: list[StoredFetch] = []
    for path in _segments(tables, FETCHES):
        if not in_time() or len(found) >= FOUND_MAX:
            return found, False
        found += _in_segment(tables, path, url)
    return found, True


def find_links(tables: Path, url: str, in_time: Callable[[], bool]) -> tuple[list[StoredLink], bool]:
    """Some of the links and redirects to a URL, and whether the search ended by itself: with enough of them, or
    with all segments."""
    found: list[StoredLink] = []
    for path in _segments(tables, LINKS):
        if len(found) >= LINKS_FOUND_MAX:
            break
        if not in_time():
            return found, False
        rows = _spelled(_read(path, ["url", "kind", "rel", "target"], _may_be(url, "target")), url, "target")
        found += _links(tables / PAGES / path.name, rows[: LINKS_FOUND_MAX - len(found)])
        found += _redirects(tables / FETCHES / path.name, url)[: LINKS_FOUND_MAX - len(found)]
    return found, True


def _segments(tables: Path, table: str) -> list[Path]:
    """The files of a table, newest first. A segment counts once its `pages` file has its final name."""
    files = sorted((tables / table).glob("*" + PARQUET_SUFFIX), key=_written, reverse=True)
    return [path for path in files if (tables / PAGES / path.name).exists()]


def _links(pages: Path, rows: list[dict[str, Any]]) -> list[StoredLink]:
    """These rows of `links`, joined with their pages' rows."""
    if not rows:
        return []
    names = _compute().field("url").isin([row["url"] for row in rows])
    said = {page["url"]: page for page in _read(pages, ["url", "depth", "nofollow", "soft_404"], names).to_pylist()}
    return [
        StoredLink(
            row["url"],
            row["kind"],
            row["rel"] or "",
            page["depth"] or 0,
            bool(page["nofollow"]),
            bool(page["soft_404"]),
        )
        for row in rows
        if (page := said.get(row["url"])) is not None
    ]


def _redirects(fetches: Path, url: str) -> list[StoredLink]:
    """The URLs that redirect to this one, as links of the kind `REDIRECT`."""
    rows = _spelled(_read(fetches, ["url", "redirect_to"], _may_be(url, "redirect_to")), url, "redirect_to")
    return [StoredLink(row["url"], REDIRECT, "", 0, nofollow=False, soft_404=False) for row in rows]


def _in_segment(tables: Path, path: Path, url: str) -> list[StoredFetch]:
    rows = _rows(path, _FETCH_COLUMNS, url)
    if not rows:
        return []
    pages = {row["fetch_time"]: row for row in _rows(tables / PAGES / path.name, _PAGE_COLUMNS, url)}
    return [_stored(row, pages.get(row["fetch_time"]), path.name.removesuffix(PARQUET_SUFFIX)) for row in rows]


def _rows(path: Path, columns: list[str], url: str) -> list[dict[str, Any]]:
    table = _read(path, [*columns, "url"], _may_be(url, "url"))
    if not table.num_rows:
        return []
    return _spelled(table.set_column(0, "fetch_time", table["fetch_time"].cast("int64")), url, "url")


def _read(path: Path, columns: list[str], wanted: Any) -> Any:
    try:
        return pq.read_table(path, columns=columns, filters=wanted)
    except (OSError, pa.ArrowException):
        # The file was replaced or removed meanwhile.
        return pa.table({})


def _compute() -> Any:
    """Arrow's compute module. It is imported at the first look-up, because the import would delay every start."""
    return importlib.import_module("pyarrow.compute")


def _spelled(table: Any, url: str, column: str) -> list[dict[str, Any]]:
    """The rows whose URL is a spelling of this one."""
    rows: list[dict[str, Any]] = table.to_pylist()
    page = identity(url)
    return [row for row in rows if identity(row[column]) == page]


def _may_be(url: str, name: str) -> Any:
    """A filter that lets pass every row that may be a spelling of the URL: spellings are alike up to the first `%`, `?`
    or `;`, unless an earlier character is percent-encoded. `_spelled` compares the rest exactly."""
    pc = _compute()
    place, column = identity(url), pc.field(name)
    common = _SPELLED.split(place, maxsplit=1)[0]
    escaped = pc.starts_with(column, place[: place.index("/", len("https://")) + 1]) & pc.match_substring(column, "%")
    return pc.starts_with(column, common) & (pc.match_substring_regex(column, "[%?;]") | (column == place)) | escaped


def _stored(row: dict[str, Any], page_row: dict[str, Any] | None, segment: str) -> StoredFetch:
    page = page_row or {}
    return StoredFetch(
        row["fetch_time"] / MICROSECONDS,
        row["outcome"],
        row["fetch_status"] or 0,
        row["kind"] or "",
        row["error"] or "",
        row["node"] or "",
        row["record_id"] or "",
        segment,
        page_row is not None,
        page.get("warc_filename") or "",
        page.get("warc_record_offset"),
        row["redirect_to"] or "",
        page.get("found_on") or "",
        page.get("duplicate_of") or "",
        page.get("duplicate_kind") or "",
    )


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
