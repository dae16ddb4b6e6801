"""Stores the pages of workers that have no store: WARC, journal, settlement, tables.

The order is the same as in a node. A page goes into the WARC file, if its headers are known, and its result into the
journal; then the result is settled; then the verdict goes into the journal and the rows into the tables. Only then does
the worker get its answer. So whatever was acknowledged is durable, and whatever is durable but not acknowledged can be
finished from the journal. A segment is completed after `SEGMENT_AGE_S` at the latest, so results of a few workers can
be seen soon.

If anything fails in between, the segment is given up as it is and finished from its journal (`kept`), like that of a
dead coordinator. Disk and tables are used by one thread at a time, beside the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from drumlin.api.intake.kept import (
    NAME_PREFIX,
    Entry,
    KeptJournal,
    Owe,
    Submit,
    Verdict,
    add_rows,
    finish_journal,
    owe_nothing,
)
from drumlin.api.intake.telling import Telling
from drumlin.coordinator.taking.settling import Taken
from drumlin.disk import storage_error
from drumlin.errors import BusyError, DrumlinError, StorageError
from drumlin.model import Outcome
from drumlin.store import SegmentWriter, WarcWriter
from drumlin.store.names import machine_name, segment_name
from drumlin.store.spools import KEPT_SUFFIX, SPOOLS, SpoolLock
from drumlin.store.tables.lookup import StoredFetch, of_record
from drumlin.store.warc.file import StoredCapture
from drumlin.urls import host_of, identity

log = logging.getLogger("drumlin.coordinator")

SEGMENT_AGE_S = 20.0
SEGMENT_BYTES_MAX = 64 * 1024 * 1024
"""The largest size of a segment's journal, which holds texts and links uncompressed."""
FINISH_EVERY_S = 10.0
NAMES_TRIED_MAX = 1_000
HOSTNAME_CHARS_MAX = 24
SERIALS = 10**9
"""Serial numbers are random, so no segment gets the name of one that a coordinator of the same name made before."""
RECOVERY = ".recovery"
"""The folder among the spools whose lock must be held to finish journals of dead coordinators. So only one process does
that at a time, and each sees what the one before has stored."""


class _Counted:
    """What counted of a segment, by the identities of URLs and by hosts: no table has it until the segment is
    complete. It is asked for by everybody who looks at a URL or a host, so nothing is gone through for that."""

    def __init__(self) -> None:
        self._of_page: dict[str, list[StoredFetch]] = {}
        self._of_host: dict[str, list[StoredFetch]] = {}

    def add(self, fetch: StoredFetch) -> None:
        self._of_page.setdefault(identity(fetch.url), []).append(fetch)
        self._of_host.setdefault(host_of(fetch.url), []).append(fetch)

    def of_page(self, page: str) -> Sequence[StoredFetch]:
        return self._of_page.get(page, ())

    def of_host(self, host: str) -> Sequence[StoredFetch]:
        return self._of_host.get(host, ())


class _Segment:
    """A stretch of results, with its own WARC file if some of them make records. `waiting` counts batches that are
    being settled. Once it is `given_up`, its tables are made from the journal."""

    def __init__(self, store: Path, writer: str, name: str, *, now: float, sync: bool) -> None:
        self.name = name
        self.started = now
        self.journal = KeptJournal(store / SPOOLS / writer / (name + KEPT_SUFFIX), sync=sync)
        self.tables = SegmentWriter(store / "tables", name, node=writer, sync=sync)
        self.warc: WarcWriter | None = None
        self.rows = 0
        self.counted = _Counted()
        self.waiting = 0
        self.given_up = False

    def finish(self, owe: Owe) -> None:
        if self.warc is not None:
            self.warc.close()
        if self.rows:
            owe(self.name)
            self.tables.finish()
        else:
            self.tables.abandon()
        self.journal.delete()

    def let_go(self) -> None:
        """Close everything; the tables will be made from the journal."""
        if self.warc is not None:
            self.warc.close()
        self.tables.abandon()
        self.journal.close()


class _Stored(msgspec.Struct):
    """A batch that is in the journal; `captures` are in the WARC file, `places` are their positions in the batch."""

    segment: _Segment
    number: int
    entries: list[Entry]
    captures: list[StoredCapture]
    places: list[int]


class Keeper:
    """Makes a coordinator a writer of the store. It takes a name there with the first result that it stores."""

    def __init__(self, store: Path, *, software: str, info: Mapping[str, str], sync: bool = False) -> None:
        self._store_folder = store
        self._software = software
        self._info = dict(info) | {"description": "captures that workers sent to a coordinator"}
        self._sync = sync
        self._lock: SpoolLock | None = None
        self._name = ""
        self._segment: _Segment | None = None
        self._ended: list[_Segment] = []
        self._finished_at = 0.0
        self._turn = asyncio.Lock()
        self.owe: Owe = owe_nothing

    async def keep(self, tellings: list[Telling], settle: Callable[[], Awaitable[Taken]], now: float) -> Taken:
        """Make results durable, settle them, and store those that count."""
        if not tellings:
            return await settle()
        async with self._turn:
            stored = await asyncio.to_thread(self._store, tellings, now)
        try:
            taken = await settle()
        except BaseException:
            # Nobody knows whether it counts. It will be settled again from the journal when the engine answers.
            stored.segment.waiting -= 1
            stored.segment.given_up = True
            raise
        async with self._turn:
            await asyncio.to_thread(self._publish, stored, taken)
        return taken

    def _store(self, tellings: list[Telling], now: float) -> _Stored:
        segment = self._open_segment(now)
        try:
            return self._write(segment, tellings, now)
        except StorageError:
            # The WARC file may have a capture that is not in the journal; repair will mark it as surplus.
            segment.given_up = True
            raise

    def _write(self, segment: _Segment, tellings: list[Telling], now: float) -> _Stored:
        places = [place for place, one in enumerate(tellings) if one.capture and one.with_head and one.with_body]
        captures = [capture for place in places if (capture := tellings[place].capture) is not None]
        stored = self._open_warc(segment, now).store(captures) if captures else []
        entries = [Entry(one.result, one.fetch, one.capture) for one in tellings]
        for entry in entries:
            if entry.capture is not None:
                entry.capture.body_raw = entry.capture.body = b""
        number = segment.journal.append(entries)
        segment.waiting += 1
        return _Stored(segment, number, entries, stored, places)

    def _publish(self, stored: _Stored, taken: Taken) -> None:
        """Write down what counted, and its rows. If that fails, the rows are made from the journal later: the results
        are durable and settled already."""
        segment, accepted = stored.segment, taken.accepted
        segment.waiting -= 1
        left_out = {*accepted.rejected_at, *taken.repeated}
        verdict = Verdict(stored.number, sorted(left_out), accepted.duplicates)
        try:
            segment.journal.judged(verdict)
            if not segment.given_up:
                if segment.warc is not None:
                    surplus = [nth for nth, place in enumerate(stored.places) if place in left_out]
                    segment.warc.settle(stored.captures, surplus)
                segment.rows += add_rows(segment.tables, stored.entries, verdict)
            for entry in (one for place, one in enumerate(stored.entries) if place not in left_out):
                segment.counted.add(_as_stored(entry, segment.name))
        except StorageError as broken:
            log.warning("results wait in %s: %s", segment.journal.path, broken)
            segment.given_up = True

    def _open_segment(self, now: float) -> _Segment:
        segment = self._segment
        if segment is not None and (segment.given_up or segment.journal.size >= SEGMENT_BYTES_MAX):
            self._end_segment()
        if self._segment is None:
            writer = self._take_name()
            name = segment_name(writer, now, secrets.randbelow(SERIALS))
            self._segment = _Segment(self._store_folder, writer, name, now=now, sync=self._sync)
        return self._segment

    def _take_name(self) -> str:
        """Take the first name of this machine that no living coordinator has and whose spool has no unfinished
        journal."""
        if self._lock is not None:
            return self._name
        machine = machine_name(HOSTNAME_CHARS_MAX)
        for number in range(1, NAMES_TRIED_MAX + 1):
            self._name = f"{NAME_PREFIX}{machine}-{number}"
            folder = self._store_folder / SPOOLS / self._name
            try:
                lock = SpoolLock.take(folder)
            except OSError as cause:
                raise storage_error(folder, cause) from cause
            if lock is not None and not any(folder.glob("*" + KEPT_SUFFIX)):
                self._lock = lock
                return self._name
            if lock is not None:
                lock.free()
        raise BusyError(f"{NAMES_TRIED_MAX} coordinators of this machine store in {self._store_folder}.")

    def _open_warc(self, segment: _Segment, now: float) -> WarcWriter:
        if segment.warc is None:
            folder, info = self._store_folder / "warc", self._info
            # Named after the segment, so it can be repaired while this coordinator writes others.
            segment.warc = WarcWriter(
                folder, segment.name, software=self._software, info=info, now=now, sync=self._sync
            )
        return segment.warc

    def _end_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            self._ended.append(segment)

    def recent_of_page(self, page: str) -> list[StoredFetch]:
        """What was stored of URLs with this identity and is not in a complete table yet."""
        return [one for segment in self._unseen() for one in segment.counted.of_page(page)]

    def recent_of_host(self, host: str) -> list[StoredFetch]:
        """The same of a host's URLs."""
        return [one for segment in self._unseen() for one in segment.counted.of_host(host)]

    def _unseen(self) -> list[_Segment]:
        """The segments whose tables are not complete."""
        return [*self._ended, *([self._segment] if self._segment is not None else [])]

    # As time passes

    async def step(self, submit: Submit, now: float, *, ending: bool = False) -> None:
        """Complete segments that are old enough, or all when the crawl is `ending`, and finish what dead coordinators
        left."""
        if self._lock is not None:
            async with self._turn:
                await asyncio.to_thread(self._complete, now, ending)
                if ending and self._segment is None and not self._ended:
                    # The store counts as complete only when no writer holds a name in it.
                    self._leave()
        if now - self._finished_at >= FINISH_EVERY_S:
            self._finished_at = now
            await self.finish_found(submit)

    def _complete(self, now: float, ending: bool) -> None:
        segment = self._segment
        if segment is not None and (ending or segment.given_up or now - segment.started >= SEGMENT_AGE_S):
            self._end_segment()
        for segment in [one for one in self._ended if not one.waiting]:
            if self._finish(segment):
                self._ended.remove(segment)

    def _finish(self, segment: _Segment) -> bool:
        if not segment.given_up:
            try:
                segment.finish(self.owe)
                return True
            except StorageError as broken:
                log.warning("results wait in %s: %s", segment.journal.path, broken)
                segment.given_up = True
        segment.let_go()
        return False

    async def finish_found(self, submit: Submit) -> None:
        """Finish the journals of dead coordinators, and our own journals that were given up."""
        mine = [one for one in self._ended if one.given_up and not one.waiting]
        given_up = {one.journal.path for one in mine}
        spools = self._store_folder / SPOOLS
        if not mine and not any(spools.glob(f"{NAME_PREFIX}*/*{KEPT_SUFFIX}")):
            return
        recovery = SpoolLock.take(spools / RECOVERY)
        if recovery is None:
            return
        try:
            for segment in mine:
                if await finish_journal(self._store_folder, segment.journal.path, submit, given_up, self.owe):
                    self._ended.remove(segment)
            for folder in sorted(spools.glob(NAME_PREFIX + "*")):
                await self._finish_spool(folder, submit)
        except DrumlinError as broken:
            log.warning("results that dead coordinators took still wait in %s: %s", spools, broken)
        finally:
            recovery.free()

    async def _finish_spool(self, folder: Path, submit: Submit) -> None:
        """Finish the journals in a coordinator's spool if that coordinator is dead."""
        lock = SpoolLock.take(folder) if any(folder.glob("*" + KEPT_SUFFIX)) else None
        if lock is None:
            return
        try:
            for path in sorted(folder.glob("*" + KEPT_SUFFIX)):
                await finish_journal(self._store_folder, path, submit, owe=self.owe)
        finally:
            lock.free()

    async def close(self) -> None:
        """Complete everything that is settled. The rest waits in its journal for the next coordinator."""
        async with self._turn:
            await asyncio.to_thread(self._complete, 0.0, True)
            for segment in self._ended:
                segment.journal.close()
            self._ended.clear()
        self._leave()

    def _leave(self) -> None:
        if self._lock is not None:
            self._lock.free()
            self._lock = None


def _as_stored(entry: Entry, segment: str) -> StoredFetch:
    found, capture = of_record(entry.fetch, segment), entry.capture
    if capture is not None:
        found.page = entry.fetch.outcome == Outcome.FETCHED
        found.found_on, found.depth = capture.found_on, capture.depth
        if capture.warc_filename:
            found.warc_filename, found.warc_offset = capture.warc_filename, capture.warc_offset
        if capture.duplicate:
            found.duplicate_of = capture.duplicate.url
            found.duplicate_kind = "exact" if capture.duplicate.exact else "near"
    return found
