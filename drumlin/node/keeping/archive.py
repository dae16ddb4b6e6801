"""Where a node keeps what it fetched: WARC files, a journal, and tables, in segments.

The order of writing makes it safe against a kill at any moment:
1. The capture is written to the WARC file, then an entry to the journal. Only then is the result sent.
2. The coordinator's answer is written to the journal.
3. Then comes what follows from the answer: a line in the index and rows in the tables or, if the result did not count,
   a mark in the WARC file.
After a kill before step 2 the result is sent again, which changes nothing if it had arrived. After a kill in step 3 the
journal has the answer, and the step is done again in the same way (`recovery`).

A segment ends after a number of pages. When all its results are answered, its tables are completed and its journal is
deleted. Tables can be read before they are complete, so a row is visible within a minute of its page.

A node that cannot write to the store keeps all this in a folder of its own, in smaller segments. Each has WARC files of
its own, so a complete segment can be sent or uploaded as one bundle (`bundles`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import msgspec

from drumlin.clock import monotonic
from drumlin.disk import AppendFile
from drumlin.events.owed import owe
from drumlin.model import Capture
from drumlin.node.keeping.bundles import make_bundle
from drumlin.node.keeping.journal import Answer, ContactEntry, Entry, Journal, JournalBatch, kept_receipts
from drumlin.protocol import Accepted, Result
from drumlin.store import FetchRecord, SegmentWriter, StoredCapture, WarcWriter
from drumlin.store.bundles import is_robots_txt, lease_receipt
from drumlin.store.names import segment_name
from drumlin.store.spools import JOURNAL_SUFFIX, SPOOLS
from drumlin.store.tables.counted import add_counted


class Arrival(msgspec.Struct):
    """The end of one leased URL: the result for the coordinator, the line of the fetch log, and the capture, if there
    is one. `arrived` is the time by the node's own clock."""

    result: Result
    fetch: FetchRecord
    capture: Capture | None = None
    arrived: float = 0.0


class Contact(msgspec.Struct):
    """A contact that settles no URL, such as one for robots.txt: the line of the fetch log, the lease under which it
    was made, and the answer, if any. Coordinators are not asked whether it counts: once it is in the journal, it
    does."""

    fetch: FetchRecord
    lease_id: str
    capture: Capture | None = None


class CrawlPaths(msgspec.Struct, frozen=True):
    """The places in a crawl directory, or in the folder of a node that cannot write to the crawl directory."""

    root: Path
    bundled: bool = False
    """Whether segments are sent to the store as bundles."""
    packed: bool = True
    """Whether a bundle is a tar, as coordinators take it, or a folder of files that the node uploads itself."""
    events: bool = False
    """Whether events of what is stored here are owed to a broker (`drumlin.events`)."""

    @property
    def warc(self) -> Path:
        return self.root / "warc"

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    @property
    def spools(self) -> Path:
        return self.root / SPOOLS

    def spool(self, node: str) -> Path:
        return self.spools / node

    def blackbox(self, node: str) -> Path:
        return self.spool(node) / BLACK_BOX


class SegmentLimits(msgspec.Struct, frozen=True):
    """When a segment ends."""

    pages: int = 10_000
    bytes: float = float("inf")
    age_s: float = float("inf")


BLACK_BOX = "parsing"
"""The name of the file in a spool that has the URL that its node reads (`blackbox`)."""
BUNDLE_LIMITS = SegmentLimits(1_000, 64 * 1024 * 1024, 60.0)
UPLOAD_LIMITS = SegmentLimits(2_500, 64 * 1024 * 1024, 60.0)
"""For a node that uploads its segments itself. Each costs it some requests and an entry in the manifest, and nobody has
to check it as a whole."""
SHOWN_WITHIN_S = 30.0
"""After how long a row is shown to readers. With the wait for its answer, it is visible within a minute."""
SHOWN_PAGES_MAX = 2_500
"""A segment with more pages than this is ended instead of shown: showing rewrites its files, which would cost more than
having more files."""


class _Segment:
    """Rows and journal of one segment; `waiting` counts the batches that the coordinator has not answered."""

    def __init__(self, paths: CrawlPaths, node: str, name: str, *, now: float, sync: bool) -> None:
        self.name = name
        self.started = now
        if paths.events:
            owe(paths.spool(node), name)
        self.journal = Journal(AppendFile(paths.spool(node) / (name + JOURNAL_SUFFIX), sync=sync))
        self.tables = SegmentWriter(paths.tables, name, node=node, sync=sync)
        self.warcs: set[str] = set()
        self.receipts: list[str] = []
        self.pages = 0
        self.bytes = 0
        self.waiting = 0
        self.unshown_since = float("inf")
        """Since when, as of the last look, there are rows that readers do not see yet."""
        self._paths = paths

    def finish(self) -> None:
        self.tables.finish()
        if self._paths.bundled:
            paths, folder = self._paths, self.journal.path.parent
            make_bundle(paths.root, folder, self.name, self.warcs, self.receipts, packed=paths.packed)
        self.journal.delete()


class StoredBatch(msgspec.Struct):
    """Arrivals that are archived and journalled, on their way to the coordinator. `bundle` is the name of the bundle in
    which their captures will be sent, if they will."""

    segment: _Segment
    number: int
    arrivals: list[Arrival]
    contacts: Sequence[Contact] = ()
    captures: list[StoredCapture] = []
    """The captures of the arrivals, then those of the contacts."""
    bundle: str = ""


Arguments = ParamSpec("Arguments")
Given = TypeVar("Given")


def _timed(
    storing: Callable[Concatenate[Archive, Arguments], Given],
) -> Callable[Concatenate[Archive, Arguments], Given]:
    """Add to the archive's `disk_s` for how long a call neither computed nor returned."""

    @functools.wraps(storing)
    def timed(archive: Archive, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Given:
        began, computed = monotonic(), time.process_time()
        try:
            return storing(archive, *arguments, **named)
        finally:
            archive.disk_s += max(0.0, (monotonic() - began) - (time.process_time() - computed))

    return timed


class Archive:
    """A node's WARC writer, journals and tables."""

    disk_s = 0.0
    """For how long it has waited for the disk: what storing took beside computing."""

    def __init__(
        self, paths: CrawlPaths, node: str, *, software: str, info: dict[str, str], now: float, sync: bool
    ) -> None:
        self.paths = paths
        self._node = node
        self._sync = sync
        self._serial = 0
        self._started = now
        self._limits = _limits_of(paths)
        self._warc = WarcWriter(paths.warc, node, software=software, info=info, now=now, sync=sync)
        self._segment: _Segment | None = None
        self._closing: list[_Segment] = []

    @_timed
    def store(self, arrivals: list[Arrival], now: float, contacts: Sequence[Contact] = ()) -> StoredBatch:
        """Make a batch durable: captures in the WARC file, then all results and contacts in the journal."""
        if self.paths.bundled:
            _leave_out_strange(contacts)
        captures = [arrival.capture for arrival in arrivals if arrival.capture is not None]
        captures += [contact.capture for contact in contacts if contact.capture is not None]
        segment = self._open_segment(now)
        stored = self._warc.store(captures)
        number = segment.journal.append(JournalBatch(list(map(_entry, arrivals)), list(map(_contact_entry, contacts))))
        size = sum(capture.warc_length for capture in captures)
        segment.warcs.update({capture.warc_filename for capture in captures})
        segment.pages += len(captures)
        segment.bytes += size
        segment.waiting += 1
        for contact in contacts:
            # Only its row is needed later.
            contact.capture = None
        return StoredBatch(segment, number, arrivals, contacts, stored, segment.name if self.paths.bundled else "")

    @_timed
    def publish(self, batch: StoredBatch, accepted: Accepted) -> None:
        """Write the answer to the journal, then add what counted to the index and the tables, and mark the rest."""
        segment = batch.segment
        answer = Answer(batch.number, accepted.rejected_at, accepted.duplicates, kept_receipts(accepted))
        # This must come first: if we are killed during the rest, the rest is done again in the same way.
        segment.journal.answered(answer)
        segment.receipts += answer.receipts
        segment.receipts += [lease_receipt(contact.lease_id, contact.fetch.host) for contact in batch.contacts]
        self._warc.settle(batch.captures, _surplus(batch.arrivals, answer))
        add_rows(segment.tables, batch.arrivals, answer, [contact.fetch for contact in batch.contacts])
        segment.waiting -= 1
        if segment in self._closing and not segment.waiting:
            self._closing.remove(segment)
            self._finish(segment)

    def show_old_rows(self, now: float) -> None:
        """Show rows to readers that have waited for long. A bundle is sent as a whole, so its segment is ended
        instead."""
        segment = self._segment
        if segment is None:
            return
        if segment.tables.has_unshown_rows:
            segment.unshown_since = min(segment.unshown_since, now)
        due = not self.paths.bundled and now - segment.unshown_since >= SHOWN_WITHIN_S
        if now - segment.started >= self._limits.age_s or (due and segment.pages >= SHOWN_PAGES_MAX):
            self._end_segment()
        elif due:
            self._show(segment)

    @_timed
    def _show(self, segment: _Segment) -> None:
        segment.tables.show()
        segment.unshown_since = float("inf")

    def rows_lag_s(self, now: float) -> float:
        """How long the oldest row waits that readers do not see yet, as of the last look."""
        segments = self._closing if self._segment is None else [*self._closing, self._segment]
        return max(0.0, now - min((segment.unshown_since for segment in segments), default=now))

    def close(self) -> None:
        """Complete every segment that is answered. One with unanswered batches keeps its journal, to be recovered."""
        self._end_segment()
        self._warc.close()
        for segment in self._closing:
            segment.journal.close()
        self._closing.clear()

    def _open_segment(self, now: float) -> _Segment:
        segment, limits = self._segment, self._limits
        if segment is not None and (segment.pages >= limits.pages or segment.bytes >= limits.bytes):
            self._end_segment()
        if self._segment is None:
            self._serial += 1
            name = segment_name(self._node, self._started, self._serial)
            self._segment = _Segment(self.paths, self._node, name, now=now, sync=self._sync)
        return self._segment

    def _end_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is None:
            return
        if self.paths.bundled:
            # A bundle holds whole WARC files, so the next segment begins another.
            self._warc.end_file()
        if segment.waiting:
            self._closing.append(segment)
        else:
            self._finish(segment)

    def _finish(self, segment: _Segment) -> None:
        # Once the journal is deleted, only the index tells what counted, so it must be on disk before.
        self._warc.sync_index()
        segment.finish()


def _limits_of(paths: CrawlPaths) -> SegmentLimits:
    if not paths.bundled:
        return SegmentLimits()
    return BUNDLE_LIMITS if paths.packed else UPLOAD_LIMITS


def _leave_out_strange(contacts: Sequence[Contact]) -> None:
    """Drop the captures that a coordinator would not believe."""
    for contact in contacts:
        if not is_robots_txt(contact.fetch.url):
            contact.capture, contact.fetch.record_id = None, ""


def _surplus(arrivals: Sequence[Arrival], answer: Answer) -> set[int]:
    """The places of the captures that did not count, among the captures of a batch."""
    if not answer.rejected:
        return set()
    captured = [place for place, arrival in enumerate(arrivals) if arrival.capture is not None]
    rejected = frozenset(answer.rejected)
    return {number for number, place in enumerate(captured) if place in rejected}


def add_rows(
    tables: SegmentWriter, arrivals: Sequence[Arrival], answer: Answer, contacts: Sequence[FetchRecord]
) -> None:
    """Add rows for the arrivals that counted: each in `fetches`, and pages also in `pages` and `links`. All contacts
    have a row in `fetches` too."""
    add_counted(tables, arrivals, answer.rejected, answer.duplicates, contacts)


def _entry(arrival: Arrival) -> Entry:
    capture = arrival.capture
    if capture is None:
        return Entry(arrival.result, arrival.fetch, "", 0, "")
    return Entry(arrival.result, arrival.fetch, capture.warc_filename, capture.warc_offset, capture.found_on)


def _contact_entry(contact: Contact) -> ContactEntry:
    capture = contact.capture
    if capture is None:
        return ContactEntry(contact.fetch, contact.lease_id, "", 0)
    return ContactEntry(contact.fetch, contact.lease_id, capture.warc_filename, capture.warc_offset)
