"""Where a node keeps what it fetched: WARC files, a journal, and tables, in segments.

Order is what makes it safe: capture into the WARC file, entry into the journal, result to the coordinator, and only
after its answer the answer into the journal, and then what follows from it: a line in the index and rows in the tables,
or, for a result that did not count, a mark in the WARC file. A segment ends after so many pages; when all its results
are answered its tables are completed and its journal is deleted. What a crash leaves is finished by `recovery`.
Tables are shown before they are complete, so that a row is seen within a minute of its page.

A node that cannot write to the store keeps all this in a folder of its own, in smaller segments, each with its own WARC
files, so that a complete segment can be sent as one bundle (`bundles`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from drumlin.model import Capture, Outcome
from drumlin.node.bundles import make_bundle
from drumlin.node.spool import Answer, Entry, Journal, kept_receipts
from drumlin.protocol import Accepted, Result
from drumlin.store import FetchRecord, SegmentWriter, StoredCapture, WarcWriter
from drumlin.store.names import segment_name
from drumlin.store.spools import JOURNAL_SUFFIX, SPOOLS


class Arrival(msgspec.Struct):
    """One leased URL that has come to an end: what to tell the coordinator, the fetch log, and the capture, if any.
    `arrived` is when, by the node's own clock."""

    result: Result
    fetch: FetchRecord
    capture: Capture | None = None
    arrived: float = 0.0


class CrawlPaths(msgspec.Struct, frozen=True):
    """Where things are in a crawl directory, or in the folder of a node that cannot write there."""

    root: Path
    bundled: bool = False
    """Whether segments leave as bundles."""

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
        return self.spool(node) / "parsing"


class SegmentLimits(msgspec.Struct, frozen=True):
    """When a segment ends."""

    pages: int = 10_000
    bytes: float = float("inf")
    age_s: float = float("inf")


BUNDLE_LIMITS = SegmentLimits(1_000, 64 * 1024 * 1024, 60.0)
SHOWN_WITHIN_S = 30.0
"""How old a row gets before it is seen; with the wait for its answer and a node that looks seldom, within a minute."""
SHOWN_PAGES_MAX = 2_500
"""A segment with more is ended, not shown: showing it again and again would cost more than further files."""


class _Segment:
    """Rows and journal of one stretch of pages; `waiting` counts batches the coordinator has not answered."""

    def __init__(self, paths: CrawlPaths, node: str, name: str, *, now: float, sync: bool) -> None:
        self.name = name
        self.started = now
        self.journal = Journal(paths.spool(node) / (name + JOURNAL_SUFFIX), sync=sync)
        self.tables = SegmentWriter(paths.tables, name, node=node, sync=sync)
        self.warcs: set[str] = set()
        self.receipts: list[str] = []
        self.pages = 0
        self.bytes = 0
        self.waiting = 0
        self.unshown_since = float("inf")
        """When the first row came that readers do not see yet, as of the last look."""
        self._paths = paths

    def finish(self) -> None:
        self.tables.finish()
        if self._paths.bundled:
            make_bundle(self._paths.root, self.journal.path.parent, self.name, self.warcs, self.receipts)
        self.journal.delete()


class StoredBatch(msgspec.Struct):
    """Arrivals that are archived and journalled, on their way to the coordinator. `bundle` is the segment whose bundle
    they will leave in, if they will."""

    segment: _Segment
    number: int
    arrivals: list[Arrival]
    captures: list[StoredCapture] = []
    bundle: str = ""


class Archive:
    """A node's WARC writer, journals and tables."""

    def __init__(
        self, paths: CrawlPaths, node: str, *, software: str, info: dict[str, str], now: float, sync: bool
    ) -> None:
        self.paths = paths
        self._node = node
        self._sync = sync
        self._serial = 0
        self._started = now
        self._limits = BUNDLE_LIMITS if paths.bundled else SegmentLimits()
        self._warc = WarcWriter(paths.warc, node, software=software, info=info, now=now, sync=sync)
        self._segment: _Segment | None = None
        self._closing: list[_Segment] = []

    def store(self, arrivals: list[Arrival], now: float) -> StoredBatch:
        """Make a batch durable: captures in the WARC file, then all results in the journal."""
        captures = [arrival.capture for arrival in arrivals if arrival.capture is not None]
        segment = self._open_segment(now)
        stored = self._warc.store(captures)
        number = segment.journal.append([_entry(arrival) for arrival in arrivals])
        size = sum(capture.warc_length for capture in captures)
        segment.warcs.update({capture.warc_filename for capture in captures})
        segment.pages += len(captures)
        segment.bytes += size
        segment.waiting += 1
        return StoredBatch(segment, number, arrivals, stored, segment.name if self.paths.bundled else "")

    def publish(self, batch: StoredBatch, accepted: Accepted) -> None:
        """Write down the answer, then index and tabulate what the coordinator counted, and mark the rest."""
        segment = batch.segment
        answer = Answer(batch.number, accepted.rejected_at, accepted.duplicates, kept_receipts(accepted))
        # First, so that whatever a kill leaves undone of the rest is done again, in the same way.
        segment.journal.answered(answer)
        segment.receipts += answer.receipts
        self._warc.settle(batch.captures, _surplus(batch.arrivals, answer))
        add_rows(segment.tables, batch.arrivals, answer)
        segment.waiting -= 1
        if segment in self._closing and not segment.waiting:
            self._closing.remove(segment)
            self._finish(segment)

    def show_old_rows(self, now: float) -> None:
        """Have rows seen that have waited for long. A bundle is sent whole, so that its segment ends."""
        segment = self._segment
        if segment is None:
            return
        if segment.tables.has_unshown_rows:
            segment.unshown_since = min(segment.unshown_since, now)
        due = not self.paths.bundled and now - segment.unshown_since >= SHOWN_WITHIN_S
        if now - segment.started >= self._limits.age_s or (due and segment.pages >= SHOWN_PAGES_MAX):
            self._end_segment()
        elif due:
            segment.tables.show()
            segment.unshown_since = float("inf")

    def close(self) -> None:
        """Complete everything that is answered; a segment with unanswered batches stays as a spool to be recovered."""
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
        # From now on no journal tells what counted.
        self._warc.sync_index()
        segment.finish()


def _surplus(arrivals: Sequence[Arrival], answer: Answer) -> set[int]:
    """The places, among the captures of a batch, of those that did not count."""
    if not answer.rejected:
        return set()
    captured = [place for place, arrival in enumerate(arrivals) if arrival.capture is not None]
    rejected = frozenset(answer.rejected)
    return {number for number, place in enumerate(captured) if place in rejected}


def add_rows(tables: SegmentWriter, arrivals: Sequence[Arrival], answer: Answer) -> None:
    """Rows for the arrivals that counted: every one in `fetches`, the pages among them in `pages` and `links`."""
    rejected = frozenset(answer.rejected)
    for known in answer.duplicates:
        capture = arrivals[known.index].capture
        if capture is not None:
            capture.duplicate = known.duplicate
    counted = [arrival for index, arrival in enumerate(arrivals) if index not in rejected]
    pages = [arrival.capture for arrival in counted if arrival.capture and arrival.result.outcome == Outcome.FETCHED]
    tables.add(pages, [arrival.fetch for arrival in counted])


def _entry(arrival: Arrival) -> Entry:
    capture = arrival.capture
    if capture is None:
        return Entry(arrival.result, arrival.fetch, "", 0, "")
    return Entry(arrival.result, arrival.fetch, capture.warc_filename, capture.warc_offset, capture.found_on)
