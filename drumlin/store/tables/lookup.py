"""What a store says about one URL: every attempt, by which node and when, where its page is, and which pages link to
it; and the last attempts on a host.

Segments are searched newest first, within a time limit. A segment that has an index (`url_index`) is looked into, the
others are read through. Only rows that readers can see are found (`segments`); what nodes have written since is in
their journals. A file may be a stranger's, who sent it as a bundle, so it is read in small pieces (`reading`).
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.errors import StorageError
from drumlin.logs import Event, event
from drumlin.store.files import StoredFile, StoreFiles
from drumlin.store.ledger import Retired
from drumlin.store.tables.reading import InTime, TimeUp, batches, check_time, compute, places_in, rows_at
from drumlin.store.tables.rows import MICROSECONDS, FetchRecord, moment_of
from drumlin.store.tables.schema import FETCHES, LINKS, PAGES
from drumlin.store.tables.segments import PARQUET_SUFFIX
from drumlin.store.tables.spellings import Spellings
from drumlin.store.tables.url_index import COLUMNS, INDEX_SUFFIX, INDEXES, UrlIndex, key_of, make_index

FOUND_MAX: Final = 100
LINKS_FOUND_MAX: Final = 20
SETTLED_S: Final = 120.0
"""A segment that was not written to for so long is taken to be complete, and worth an index."""
WORD_CHARS_MAX: Final = 100
ERROR_CHARS_MAX: Final = 1_000
"""A node of a stranger may have written more into its rows than anybody can look at."""
_FETCH_COLUMNS: Final = [
    "url",
    "fetch_time",
    "outcome",
    "fetch_status",
    "kind",
    "error",
    "attempt",
    "node",
    "record_id",
    "redirect_to",
]
_PAGE_COLUMNS: Final = [
    "url",
    "fetch_time",
    "warc_filename",
    "warc_record_offset",
    "depth",
    "found_on",
    "duplicate_of",
    "duplicate_kind",
    "redirects",
]
_TOLD_COLUMNS: Final = [
    "url",
    "fetch_time",
    "title",
    "text",
    "content_mime_detected",
    "content_charset",
    "content_languages",
    "body_bytes",
]
SAME_MOMENT_S: Final = 1e-3
CLOCKS_DIFFER_S: Final = 60.0
"""By how much the clock of a node may be ahead of the one by which the store notes when a file was written."""

log = logging.getLogger("drumlin.store")


class StoredFetch(msgspec.Struct):
    """One attempt as the store has it. `segment` names the files that hold its rows, `page` says whether it has a row
    in `pages`, and the WARC's name is empty if there is no record. One that is `unsettled` was read in a node's
    journal, and no coordinator has said yet whether it counts; one that is `unshown` is in a journal only. `written` is
    when the file with its row was; `retired` is what retention has done with its record since."""

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
    attempt: int = 0
    depth: int | None = None
    url: str = ""
    unshown: bool = False
    unsettled: bool = False
    redirects: Sequence[str] = ()
    written: float = math.inf
    retired: Retired | None = None

    @property
    def when(self) -> float:
        """When it counts as made, among others. A row is not younger than its file: so nobody can put his own before
        all that others tell later, by a time that is still to come."""
        return min(self.fetched, self.written + CLOCKS_DIFFER_S)

    @property
    def tells_origin(self) -> bool:
        """Whether it says where its URL was found: on a page, or, with a depth of 0, on none."""
        return bool(self.found_on) or self.depth == 0


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


class _Segment:
    """One segment, and the index of its URLs, if there is one and it is about its files. A file is opened when it is
    needed: most indexes say that nothing is."""

    def __init__(self, name: str, written: float, opened: Callable[[str], BinaryIO], index: UrlIndex | None) -> None:
        self.name = name
        self.written = written
        self.opened = opened
        self.index = index

    def rows(
        self, part: str, columns: list[str], url: str, in_time: InTime, limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """The rows that one list of the index is about and that have this URL, newest row group first; any of them if
        there is a limit."""
        table, column = COLUMNS[part]
        indexed = None if self.index is None else self.index.groups(part, key_of(url))
        if indexed == []:
            return
        spellings = Spellings(url)
        with pq.ParquetFile(self.opened(table)) as file:
            for group in reversed(range(file.num_row_groups) if indexed is None else indexed):
                places = _places(file, group, column, spellings.among, in_time, limit)
                yield from rows_at(file, group, columns, places, in_time)
                if limit is not None and (limit := limit - len(places)) <= 0:
                    return

    def pages(self, urls: set[str], columns: list[str], in_time: InTime) -> dict[str, dict[str, Any]]:
        """The rows of these pages, spelled as they are in the tables, by their URLs."""
        pc, found = compute(), dict[str, dict[str, Any]]()
        wanted = pa.array(list(urls), pa.string())
        among = lambda values: places_in(pc.is_in(values, value_set=wanted))  # noqa: E731
        with pq.ParquetFile(self.opened(PAGES)) as file:
            index = self.index
            all_groups = range(file.num_row_groups)
            groups = all_groups if index is None else {g for url in urls for g in index.groups("pages", key_of(url))}
            for group in groups:
                places = _places(file, group, "url", among, in_time)
                found |= {row["url"]: row for row in rows_at(file, group, columns, places, in_time)}
        return found


class StoreReader:
    """Answers for the store in these files. Calls block; they belong beside an event loop."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._odd: set[str] = set()
        """Segments that cannot be read, for reasons nobody foresaw."""

    def fetches(self, url: str, in_time: InTime) -> tuple[list[StoredFetch], bool]:
        """The attempts on a URL, and whether all segments were searched. The search stops when `in_time` says no, or at
        `FOUND_MAX`. `StorageError` if the store cannot be reached."""
        found: list[StoredFetch] = []
        with suppress(TimeUp):
            for versions in self._segments(in_time):
                check_time(in_time)
                if len(found) >= FOUND_MAX:
                    return found, False
                with self._segment(versions) as segment:
                    found += _attempts(segment, url, in_time)
            return found, True
        return found, False

    def links(self, url: str, in_time: InTime) -> tuple[list[StoredLink], bool]:
        """Some of the links and redirects to a URL, and whether the search ended by itself: with enough of them, or
        with all segments."""
        found: list[StoredLink] = []
        with suppress(TimeUp, StorageError):
            for versions in self._segments(in_time):
                if len(found) >= LINKS_FOUND_MAX:
                    break
                check_time(in_time)
                with self._segment(versions) as segment:
                    found += _links(segment, url, LINKS_FOUND_MAX - len(found), in_time)
                    found += _redirects(segment, url, LINKS_FOUND_MAX - len(found), in_time)
            return found, True
        return found, False

    def host_fetches(self, host: str, limit: int, in_time: InTime) -> tuple[list[StoredFetch], bool]:
        """The last attempts on a host's URLs, newest first, and whether the search ended by itself. Several nodes write
        at once, so their segments overlap in time: the search ends with the first that was complete before the oldest
        attempt that is kept."""
        found: list[StoredFetch] = []
        with suppress(TimeUp, StorageError):
            for versions in self._segments(in_time):
                if versions[PAGES].written < _oldest(found, limit) - CLOCKS_DIFFER_S:
                    break
                check_time(in_time)
                with self._segment(versions) as segment:
                    found = _of_host(segment, host, limit, found, in_time)
            return found, True
        return found, False

    def page(self, url: str, segment: str, fetched: float, in_time: InTime) -> dict[str, Any]:
        """What the table of pages says in one segment about the capture of this moment; empty if it has no row, or if
        there is no time to find it."""
        with suppress(TimeUp, StorageError):
            for versions in self._segments(in_time):
                if _name(versions) == segment:
                    with self._segment(versions) as found:
                        for row in found.rows("pages", _TOLD_COLUMNS, url, in_time):
                            if abs(moment_of(row["fetch_time"]) - fetched) < SAME_MOMENT_S:
                                return row
        return {}

    def index_some(self, now: float, in_time: InTime) -> int:
        """Make indexes of complete segments that have none, for as long as there is time. Returns how many are left; 0
        also if the store cannot be written. Two coordinators that do this at once write the same."""
        left = 0
        try:
            indexed = {one.name: one.written for one in self._files.files(INDEXES, INDEX_SUFFIX)}
            segments = self._segments(lambda: True)
        except StorageError:
            return 0
        for versions in segments:
            newest = max(file.written for file in versions.values())
            if indexed.get(_name(versions) + INDEX_SUFFIX, 0.0) >= newest or now - newest < SETTLED_S:
                continue
            if not in_time():
                left += 1
            elif not self._make_index(versions):
                return 0
        return left

    def _make_index(self, versions: dict[str, StoredFile]) -> bool:
        """Make and keep the index of a segment. False if it cannot be written."""
        name, made = _name(versions), b""
        try:
            with suppress(OSError, pa.ArrowException), ExitStack() as stack:
                files = {table: stack.enter_context(self._open(table, name)) for table in versions}
                made = make_index(files, {table: file.version for table, file in versions.items()})
        except Exception:
            # Whatever a stranger's rows may cause, the other segments get their indexes.
            log.exception("cannot make an index of %s, for a reason nobody foresaw", name, extra=event(Event.BUG))
        try:
            # That of a damaged segment is empty, so it is not tried again; the segment is read as far as it goes.
            self._files.write(f"{INDEXES}/{name}{INDEX_SUFFIX}", made)
        except (OSError, StorageError):
            return False
        return True

    def _segments(self, in_time: InTime) -> list[dict[str, StoredFile]]:
        """The files of each segment by table, newest segment first. A segment counts once its `pages` file has its
        final name, which is the last to get it. To list the files of a large store takes a while: who waited for his
        turn until his time was over does not do that."""
        check_time(in_time)
        tables = {
            table: {file.name: file for file in self._files.files(f"tables/{table}", PARQUET_SUFFIX)}
            for table in (PAGES, LINKS, FETCHES)
        }
        names = sorted(tables[PAGES], key=lambda name: (tables[PAGES][name].written, name), reverse=True)
        return [
            {table: files[name] for table, files in tables.items()}
            for name in names
            if name in tables[LINKS] and name in tables[FETCHES]
        ]

    @contextmanager
    def _segment(self, versions: dict[str, StoredFile]) -> Iterator[_Segment]:
        """A segment to read from. If one of its files is gone or damaged, what was not found yet counts as not found:
        those who need all rows report it."""
        name = _name(versions)
        try:
            with suppress(OSError, pa.ArrowException), ExitStack() as stack:
                opened = lambda table: stack.enter_context(self._open(table, name))  # noqa: E731
                yield _Segment(name, versions[FETCHES].written, opened, self._index(stack, name, versions))
        except TimeUp:
            raise
        except Exception:
            # Whatever a stranger's rows may cause, the other segments are searched. It is said once: people look often.
            if name not in self._odd:
                self._odd.add(name)
                log.exception("cannot read %s, for a reason nobody foresaw", name, extra=event(Event.BUG))

    def _open(self, table: str, name: str) -> BinaryIO:
        return self._files.open(f"tables/{table}/{name}{PARQUET_SUFFIX}")

    def _index(self, stack: ExitStack, name: str, versions: dict[str, StoredFile]) -> UrlIndex | None:
        try:
            index = UrlIndex(stack.enter_context(self._files.open(f"{INDEXES}/{name}{INDEX_SUFFIX}")))
        except (OSError, msgspec.MsgspecError):
            return None
        return index if index.is_of({table: file.version for table, file in versions.items()}) else None


def _name(versions: dict[str, StoredFile]) -> str:
    return versions[PAGES].name.removesuffix(PARQUET_SUFFIX)


def _attempts(segment: _Segment, url: str, in_time: InTime) -> list[StoredFetch]:
    rows = list(segment.rows("fetches", _FETCH_COLUMNS, url, in_time))
    if not rows:
        return []
    pages = {row["fetch_time"]: row for row in segment.rows("pages", _PAGE_COLUMNS, url, in_time)}
    return [_stored(row, pages.get(row["fetch_time"]), segment) for row in rows]


def _links(segment: _Segment, url: str, limit: int, in_time: InTime) -> list[StoredLink]:
    """Links to the URL, joined with the rows of the pages that have them."""
    rows = list(segment.rows("links", ["url", "kind", "rel"], url, in_time, limit))
    columns = ["url", "depth", "nofollow", "soft_404"]
    pages = segment.pages({row["url"] for row in rows}, columns, in_time) if rows else {}
    return [
        StoredLink(
            row["url"],
            row["kind"],
            row["rel"] or "",
            page.get("depth") or 0,
            bool(page.get("nofollow")),
            bool(page.get("soft_404")),
        )
        for row in rows
        if (page := pages.get(row["url"])) is not None
    ]


def _redirects(segment: _Segment, url: str, limit: int, in_time: InTime) -> list[StoredLink]:
    """The URLs that redirect to this one, as links of the kind `REDIRECT`."""
    rows = segment.rows("redirects", ["url"], url, in_time, limit) if limit > 0 else []
    return [StoredLink(row["url"], REDIRECT, "", 0, nofollow=False, soft_404=False) for row in rows]


def _of_host(segment: _Segment, host: str, limit: int, found: list[StoredFetch], in_time: InTime) -> list[StoredFetch]:
    """The last attempts on a host, of those found and those that a segment has. Row groups say between which hosts and
    times theirs are, so most of a large store is not read."""
    with pq.ParquetFile(segment.opened(FETCHES)) as file:
        for group in reversed(range(file.num_row_groups)):
            if _may_have(file, group, host, _oldest(found, limit)):
                rows = rows_at(file, group, _FETCH_COLUMNS, _last_of_host(file, group, host, limit, in_time), in_time)
                found = _newest([*found, *(_stored(row, None, segment) for row in rows)], limit)
    return found


def _may_have(file: pq.ParquetFile, group: int, host: str, since: float) -> bool:
    """Whether a row group may have an attempt on this host that is as late as this."""
    columns, said = file.schema_arrow, file.metadata.row_group(group)
    hosts, times = (said.column(columns.get_field_index(name)).statistics for name in ("host", "fetch_time"))
    if hosts is not None and hosts.has_min_max and not hosts.min <= host <= hosts.max:
        return False
    return times is None or not times.has_min_max or bool(times.max_raw >= since * MICROSECONDS)


def _last_of_host(file: pq.ParquetFile, group: int, host: str, limit: int, in_time: InTime) -> list[int]:
    """The places of the last attempts on a host in a row group, in order."""
    pc, start, last = compute(), 0, list[tuple[int, int]]()
    for batch in batches(file, group, ["host", "fetch_time"], in_time):
        here = places_in(pc.equal(batch.column("host"), host))
        times = batch.column("fetch_time").take(pa.array(here, pa.int64())).cast(pa.int64()).fill_null(0).to_pylist()
        last = heapq.nlargest(limit, [*last, *zip(times, (start + place for place in here), strict=True)])
        start += len(batch)
    return sorted(place for _, place in last)


def _oldest(found: list[StoredFetch], limit: int) -> float:
    """Since when attempts are worth looking for, if these are the newest so far."""
    return found[-1].when if len(found) >= limit else -math.inf


def _newest(found: list[StoredFetch], limit: int) -> list[StoredFetch]:
    return newest_first(found)[:limit]


def newest_first(found: Iterable[StoredFetch]) -> list[StoredFetch]:
    """Attempts that count as made at the same moment, as in a file that is older than its rows say, go by their own
    times."""
    return sorted(found, key=lambda one: (-one.when, -one.fetched))


def _places(
    file: Any,
    group: int,
    column: str,
    among: Callable[[Any], list[int]],
    in_time: InTime,
    limit: int | None = None,
) -> list[int]:
    """The rows of a row group whose values in a column `among` finds, in order; the first ones if there is a limit."""
    places: list[int] = []
    start = 0
    for batch in batches(file, group, [column], in_time):
        places += [start + place for place in among(batch.column(0))]
        start += len(batch)
        if limit is not None and len(places) >= limit:
            return places[:limit]
    return places


def of_record(fetch: FetchRecord, segment: str) -> StoredFetch:
    """An attempt whose row is not in a table yet. Whoever knows its page adds where that is."""
    return StoredFetch(
        fetch.fetched,
        fetch.outcome,
        fetch.status,
        fetch.kind,
        fetch.error,
        fetch.node,
        fetch.record_id,
        segment,
        redirect_to=fetch.redirect_to,
        attempt=fetch.attempt,
        url=fetch.url,
    )


def _stored(row: dict[str, Any], page_row: dict[str, Any] | None, segment: _Segment) -> StoredFetch:
    page = page_row or {}
    return StoredFetch(
        fetched=moment_of(row["fetch_time"]),
        outcome=row["outcome"][:WORD_CHARS_MAX],
        status=row["fetch_status"] or 0,
        kind=(row["kind"] or "")[:WORD_CHARS_MAX],
        error=(row["error"] or "")[:ERROR_CHARS_MAX],
        node=row["node"] or "",
        record_id=row["record_id"] or "",
        segment=segment.name,
        page=page_row is not None,
        warc_filename=page.get("warc_filename") or "",
        warc_offset=page.get("warc_record_offset"),
        redirect_to=row["redirect_to"] or "",
        found_on=page.get("found_on") or "",
        duplicate_of=page.get("duplicate_of") or "",
        duplicate_kind=page.get("duplicate_kind") or "",
        attempt=row.get("attempt") or 0,
        depth=page.get("depth"),
        url=row["url"],
        redirects=page.get("redirects") or (),
        written=segment.written,
    )
