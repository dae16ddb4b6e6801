"""Where a node keeps what it fetched: WARC files, a journal, and tables, in segments.

Order is what makes it safe: capture into the WARC file, entry into the journal, result to the coordinator, and only
after its answer the rows into the tables. A segment ends after `SEGMENT_PAGES_MAX` pages; when all its results are
answered its tables are completed and its journal is deleted. After a crash `recover` repairs the WARC files, sends the
journals' results again and makes the tables from the archive.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from drumlin.errors import SiteError
from drumlin.fetch.decode import decode
from drumlin.model import Capture, Outcome
from drumlin.node.spool import JOURNAL_SUFFIX, Answer, Entry, FoundJournal, Journal, answer_of
from drumlin.pipeline import Pipeline
from drumlin.protocol import Accepted, Result, read_assignment_id
from drumlin.store import FetchRecord, SegmentWriter, WarcWriter, read_capture, repair
from drumlin.urls import domain_of

SEGMENT_PAGES_MAX = 10_000
LOCK_POLL_S = 0.05

Submit = Callable[[list[Result]], Accepted]


class Arrival(msgspec.Struct):
    """One leased URL that has come to an end: what to tell the coordinator, the fetch log, and the capture, if any."""

    result: Result
    fetch: FetchRecord
    capture: Capture | None = None


class CrawlPaths(msgspec.Struct, frozen=True):
    """Where things are in a crawl directory."""

    root: Path

    @property
    def warc(self) -> Path:
        return self.root / "warc"

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    @property
    def spools(self) -> Path:
        return self.root / "nodes"

    def spool(self, node: str) -> Path:
        return self.spools / node

    def blackbox(self, node: str) -> Path:
        return self.spool(node) / "parsing"


class _Segment:
    """Rows and journal of one stretch of pages; `waiting` counts batches the coordinator has not answered."""

    def __init__(self, paths: CrawlPaths, node: str, name: str, *, sync: bool) -> None:
        self.journal = Journal(paths.spool(node) / (name + JOURNAL_SUFFIX), sync=sync)
        self.tables = SegmentWriter(paths.tables, name, node=node, sync=sync)
        self.pages = 0
        self.waiting = 0

    def finish(self) -> None:
        self.tables.finish()
        self.journal.delete()


class StoredBatch(msgspec.Struct):
    """Arrivals that are archived and journalled, on their way to the coordinator."""

    segment: _Segment
    number: int
    arrivals: list[Arrival]


class Archive:
    """A node's WARC writer, journals and tables."""

    def __init__(self, root: Path, node: str, *, software: str, info: dict[str, str], now: float, sync: bool) -> None:
        self.paths = CrawlPaths(root)
        self._node = node
        self._sync = sync
        self._serial = 0
        self._stamp = f"{node}-{int(now * 1000):x}"
        self._warc = WarcWriter(self.paths.warc, node, software=software, info=info, now=now, sync=sync)
        self._segment: _Segment | None = None
        self._closing: list[_Segment] = []

    def store(self, arrivals: list[Arrival]) -> StoredBatch:
        """Make a batch durable: captures in the WARC file, then all results in the journal."""
        captures = [arrival.capture for arrival in arrivals if arrival.capture is not None]
        self._warc.append(captures)
        segment = self._open_segment()
        number = segment.journal.append([_entry(arrival) for arrival in arrivals])
        segment.pages += len(captures)
        segment.waiting += 1
        return StoredBatch(segment, number, arrivals)

    def publish(self, batch: StoredBatch, accepted: Accepted) -> None:
        """Write the rows of what the coordinator counted."""
        segment = batch.segment
        answer = Answer(batch.number, accepted.rejected_at, accepted.duplicates)
        segment.journal.answered(answer)
        add_rows(segment.tables, batch.arrivals, answer)
        segment.waiting -= 1
        if segment in self._closing and not segment.waiting:
            self._closing.remove(segment)
            segment.finish()

    def close(self) -> None:
        """Complete everything that is answered; a segment with unanswered batches stays as a spool to be recovered."""
        if self._segment is not None:
            self._closing.append(self._segment)
            self._segment = None
        for segment in self._closing:
            if segment.waiting:
                segment.journal.close()
            else:
                segment.finish()
        self._closing.clear()
        self._warc.close()

    def _open_segment(self) -> _Segment:
        if self._segment is not None and self._segment.pages >= SEGMENT_PAGES_MAX:
            self._closing.append(self._segment)
            self._segment = None
        if self._segment is None:
            self._serial += 1
            name = f"{self._stamp}-{self._serial:05}"
            self._segment = _Segment(self.paths, self._node, name, sync=self._sync)
        return self._segment


def add_rows(tables: SegmentWriter, arrivals: Sequence[Arrival], answer: Answer) -> None:
    """Rows for the arrivals that counted: every one in `fetches`, the pages among them in `pages` and `links`."""
    rejected = frozenset(answer.rejected)
    for known in answer.duplicates:
        capture = arrivals[known.index].capture
        if capture is not None:
            capture.duplicate = known.duplicate
    counted = [arrival for index, arrival in enumerate(arrivals) if index not in rejected]
    pages = [arrival.capture for arrival in counted if arrival.capture and arrival.result.outcome == Outcome.FETCHED]
    for page in pages:
        if page.duplicate is not None and page.duplicate.distance is None:
            # The same bytes are in the table already, in the row of the page this one repeats.
            page.text = b""
    tables.add(pages, [arrival.fetch for arrival in counted])


def _entry(arrival: Arrival) -> Entry:
    capture = arrival.capture
    if capture is None:
        return Entry(arrival.result, arrival.fetch, "", 0, "")
    return Entry(arrival.result, arrival.fetch, capture.warc_filename, capture.warc_offset, capture.found_on)


class SpoolLock:
    """Held by a node over its spool folder for as long as it lives; a free lock marks the spool of a dead node."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, folder: Path, *, wait_s: float = 0.0) -> SpoolLock | None:
        """The lock, or None when another process holds it still after `wait_s`."""
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return cls(fd)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(fd)
                    return None
                time.sleep(LOCK_POLL_S)

    def free(self) -> None:
        os.close(self._fd)


def recover(paths: CrawlPaths, node: str, pipeline: Pipeline, submit: Submit) -> bool:
    """Finish what a dead node left: repair its WARC files, settle its journals, complete its tables. False when the
    coordinator does not take all of it yet, because to it the dead node is still at work."""
    repair(paths.warc, node)
    journals = [FoundJournal(path) for path in sorted(paths.spool(node).glob("*" + JOURNAL_SUFFIX))]
    unfinished = [one for one in journals if not _recover_journal(paths, node, one, pipeline, submit)]
    return not unfinished


def _recover_journal(paths: CrawlPaths, node: str, journal: FoundJournal, pipeline: Pipeline, submit: Submit) -> bool:
    for number, entries in enumerate(journal.batches):
        if number not in journal.answers:
            answer = answer_of(number, submit([entry.result for entry in entries]))
            if answer is not None:
                journal.answered(answer)
    if len(journal.answers) < len(journal.batches):
        return False
    tables = SegmentWriter(paths.tables, journal.path.name.removesuffix(JOURNAL_SUFFIX), node=node)
    for number, entries in enumerate(journal.batches):
        add_rows(tables, _rebuild(paths, entries, pipeline), journal.answers[number])
    tables.finish()
    journal.delete()
    return True


def _rebuild(paths: CrawlPaths, entries: list[Entry], pipeline: Pipeline) -> list[Arrival]:
    """The arrivals that the journal tells of, their captures read back from the archive and parsed again."""
    arrivals = [Arrival(entry.result, entry.fetch, _read_back(paths, entry)) for entry in entries]
    pages = [a.capture for a in arrivals if a.capture is not None and a.result.outcome == Outcome.FETCHED]
    pipeline.read(pages)
    for arrival in arrivals:
        if arrival.capture is not None:
            arrival.capture.digest = bytes.fromhex(arrival.result.content_hash)
            arrival.capture.simhash = arrival.result.simhash
    return arrivals


def _read_back(paths: CrawlPaths, entry: Entry) -> Capture | None:
    if not entry.warc_filename:
        return None
    result = entry.result
    capture = read_capture(paths.warc / entry.warc_filename, entry.warc_offset)
    key = read_assignment_id(result.assignment_id)
    if key is not None:
        capture.task_id, capture.lease_token, capture.depth = key.task_id, key.lease_id, key.depth
    capture.host, capture.domain = entry.fetch.host, domain_of(entry.fetch.host)
    capture.found_on, capture.redirects = entry.found_on, tuple(result.redirect_chain)
    capture.fetched, capture.duration_s = result.crawl_time, entry.fetch.duration_s
    capture.record_id, capture.ip, capture.protocol = result.record_id, entry.fetch.ip, entry.fetch.protocol
    try:
        capture.body = decode(
            capture.body_raw, capture.headers.get("content-encoding", ""), len(capture.body_raw) * 1000
        )
    except SiteError:
        capture.body = capture.body_raw
    return capture
