"""What this coordinator's store says about a URL or a host, if it has one: its tables, and the journals of nodes.

Nothing here is on the way of a page. Somebody asks; a thread searches for at most `LOOK_S_MAX`. From the first question
on, a coordinator of a running crawl makes indexes of segments in the background, resting as long as it works, so the
next questions are answered from them. For a crawl that does not run nothing is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, Protocol

from drumlin.api.explaining.open_segments import unshown_fetches, unshown_links, unshown_of_host
from drumlin.clock import monotonic
from drumlin.coordinator.taking.fair_line import FairLine
from drumlin.errors import StorageError
from drumlin.logs import Event, event
from drumlin.model import Capture
from drumlin.store.copies import stored_capture
from drumlin.store.files import StoreFiles
from drumlin.store.tables.contents import ContentsReader, Summed
from drumlin.store.tables.lookup import StoredFetch, StoredLink, StoreReader, newest_first
from drumlin.store.tables.reading import InTime
from drumlin.urls import identity

LOOK_S_MAX = 2.0
"""How long a store is searched for one question."""
LOOKS_AT_ONCE = 2
LOOKS_MAX, LOOKS_EACH_MAX = 64, 16
"""How many looks may be under way or wait, in all and of one asker. Further ones are refused: nobody would wait for
them, and those who come later would stand behind them."""
BUSY_RETRY_S = 2.0
SUM_S_MAX = 0.2
"""How long segments are read for one look at what all pages are."""
INDEX_S_MAX = 0.5
"""How long indexes are made in one go."""
INDEX_REST_S = 30.0
"""How long to rest when every segment that is complete has its index."""

log = logging.getLogger("drumlin.coordinator")


class Attempts(NamedTuple):
    """What the store says about a URL or a host, newest first. Without `complete` not all of it was searched, or there
    is no store."""

    fetches: list[StoredFetch]
    complete: bool
    has_store: bool
    linkers: Sequence[StoredLink] = ()
    """Pages that link to it, if nothing else says where it was found."""
    rows_deleted: float = 0.0
    """When retention deleted rows of the store last; 0 if it never did."""
    away: str = ""
    """Why the store could not be searched at all."""


class Linkers(NamedTuple):
    """Links to a URL in the store. Without `complete` not all of it was searched, or there is no store."""

    links: list[StoredLink]
    complete: bool
    has_store: bool


NO_STORE = Attempts([], complete=False, has_store=False)


class Recent(Protocol):
    """Tells what this coordinator itself has stored for workers of others and no table shows yet."""

    def recent_of_page(self, page: str) -> list[StoredFetch]:
        """The attempts on URLs with this identity."""

    def recent_of_host(self, host: str) -> list[StoredFetch]:
        """The attempts on a host's URLs."""


class StoreAnswers:
    """Answers from a store, and of what is about to be in it. Each question names its `asker`, so that nobody can take
    all places; `Refused` if too many wait."""

    def __init__(self, files: StoreFiles | None, recent: Recent) -> None:
        self._files = files
        self._reader = StoreReader(files) if files is not None else None
        self._contents = ContentsReader(files) if files is not None else None
        self._summing: asyncio.Task[Summed] | None = None
        self._recent = recent
        self._line = FairLine(
            what="looks into the store",
            at_once=LOOKS_AT_ONCE,
            each=LOOKS_AT_ONCE,
            most=LOOKS_MAX,
            each_most=LOOKS_EACH_MAX,
            retry_after_s=BUSY_RETRY_S,
        )
        self._asked = asyncio.Event()

    async def attempts(self, url: str, asker: str) -> Attempts:
        """What the store says about a URL, newest first."""
        reader, files = self._reader, self._files
        if reader is None or files is None:
            return NO_STORE
        recent, in_time = self._recent.recent_of_page(identity(url)), _within(LOOK_S_MAX)

        def look() -> Attempts:
            # Journals first: a segment that is completed meanwhile is then found at least once.
            unshown = unshown_fetches(files, url, in_time)
            try:
                found, complete = reader.fetches(url, in_time)
            except StorageError as away:
                return Attempts(_each_once([*recent, *unshown]), complete=False, has_store=True, away=away.message)
            told = _each_once([*found, *recent, *unshown])
            with contextlib.suppress(StorageError):
                _note_retired(files, told)
                return Attempts(told, complete, has_store=True, rows_deleted=files.rows_deleted())
            return Attempts(told, complete=False, has_store=True)

        async with self._look(asker):
            return await asyncio.to_thread(look)

    async def host_fetches(self, host: str, limit: int, asker: str) -> Attempts:
        """The last attempts on a host's URLs, newest first."""
        reader, files = self._reader, self._files
        if reader is None or files is None:
            return NO_STORE
        recent, in_time = self._recent.recent_of_host(host), _within(LOOK_S_MAX)

        def look() -> Attempts:
            unshown = unshown_of_host(files, host, in_time)
            found, complete = reader.host_fetches(host, limit, in_time)
            return Attempts(_each_once([*found, *recent, *unshown])[:limit], complete, has_store=True)

        async with self._look(asker):
            return await asyncio.to_thread(look)

    async def linkers(self, url: str, asker: str) -> Linkers:
        """Some of the stored pages that link to a URL."""
        reader, files = self._reader, self._files
        if reader is None or files is None:
            return Linkers([], complete=False, has_store=False)
        in_time = _within(LOOK_S_MAX)

        def look() -> Linkers:
            unshown = unshown_links(files, url, in_time)
            found, complete = reader.links(url, in_time)
            shown = {link.page for link in found}
            return Linkers([*found, *(link for link in unshown if link.page not in shown)], complete, has_store=True)

        async with self._look(asker):
            return await asyncio.to_thread(look)

    async def contents(self) -> Summed | None:
        """Sums over all stored pages that tables show, as far as there is time to read them; None without a store."""
        if self._contents is None:
            return None
        # One at a time, and who comes meanwhile gets the same answer: even with nothing to read it lists a folder.
        if self._summing is None or self._summing.done():
            self._summing = asyncio.create_task(asyncio.to_thread(self._contents.sum_up, _within(SUM_S_MAX)))
        return await asyncio.shield(self._summing)

    async def capture(self, stored: StoredFetch, bytes_max: int, asker: str) -> Capture:
        """The capture of an attempt that this store told of. `OSError` or `StorageError` if it cannot be read."""
        if self._files is None:
            raise FileNotFoundError(stored.warc_filename)
        async with self._look(asker):
            offset = stored.warc_offset or 0
            return await asyncio.to_thread(stored_capture, self._files, stored.warc_filename, offset, bytes_max)

    async def page(self, stored: StoredFetch, asker: str) -> dict[str, Any]:
        """What the table of pages says about the page of such an attempt; empty if it does not show it yet."""
        if self._reader is None or stored.unshown:
            return {}
        async with self._look(asker):
            in_time = _within(LOOK_S_MAX)
            return await asyncio.to_thread(self._reader.page, stored.url, stored.segment, stored.fetched, in_time)

    @contextlib.asynccontextmanager
    async def _look(self, asker: str) -> AsyncIterator[None]:
        self._asked.set()
        async with self._line.turn(asker):
            yield

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Make indexes in the background, once somebody has asked something, for as long as the context lasts."""
        indexing = asyncio.create_task(self._index())
        try:
            yield
        finally:
            indexing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await indexing

    async def _index(self) -> None:
        while self._reader is not None:
            await self._asked.wait()
            left = 0
            try:
                left = await asyncio.to_thread(self._reader.index_some, time.time(), _within(INDEX_S_MAX))
            except Exception:
                # Look-ups are slower without indexes; nothing else may suffer.
                log.exception("cannot make indexes, for a reason nobody foresaw", extra=event(Event.BUG))
            await asyncio.sleep(INDEX_S_MAX if left else INDEX_REST_S)


def _note_retired(files: StoreFiles, fetches: Sequence[StoredFetch]) -> None:
    """Note what retention has done with the records of these attempts."""
    for one in fetches:
        if one.warc_filename:
            one.retired = files.retired(f"warc/{one.warc_filename}")


def _within(seconds: float) -> InTime:
    deadline = monotonic() + seconds
    return lambda: monotonic() < deadline


def _each_once(found: list[StoredFetch]) -> list[StoredFetch]:
    """Attempts without repetition, newest first: a row may be in a table and still in the journal. The table's comes
    first. Many URLs of a host may be settled at the same moment: those that its robots.txt denies."""
    distinct: dict[tuple[str, str, str, int], StoredFetch] = {}
    for one in found:
        distinct.setdefault((one.url, one.segment, one.outcome, round(one.fetched * 1e3)), one)
    return newest_first(distinct.values())
