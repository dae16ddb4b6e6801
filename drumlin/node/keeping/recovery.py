"""Finishes what a dead node left: its WARC files, its journals, and the page on which it died.

A node holds a lock on its spool folder for as long as it lives, so a free lock means that the node is dead. A node that
finds one (its successor, or any other node of the same store) takes the lock, sends the results that were never
answered, and makes the tables from the archive. It may be killed too: every step can be done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from drumlin.disk import OPEN_SUFFIX, SCRATCH_PREFIX, discard_scratch, remove
from drumlin.errors import SiteError
from drumlin.events.owed import owe
from drumlin.fetch.decode import decode
from drumlin.model import Capture, FailureKind, Outcome
from drumlin.node.keeping.archive import Arrival, CrawlPaths, add_rows
from drumlin.node.keeping.blackbox import read_struck
from drumlin.node.keeping.bundles import BUNDLE_SUFFIXES, has_bundle, make_bundle
from drumlin.node.keeping.journal import NOTHING_SENT, Entry, FoundJournal, answer_of
from drumlin.pipeline import Pipeline
from drumlin.protocol import KILLED, KILLS_MAX, Accepted, Result, read_assignment_id
from drumlin.store import SegmentWriter, read_capture, repair
from drumlin.store.bundles import TABLES, lease_receipt
from drumlin.store.names import node_of_warc
from drumlin.store.spools import EVENTS_SUFFIX, JOURNAL_SUFFIX, SpoolLock
from drumlin.store.warc.cdxj import CDXJ_SUFFIX
from drumlin.store.warc.file import WARC_SUFFIX
from drumlin.urls import domain_of

Submit = Callable[[list[Result], str], Accepted]
"""A function that sends results and returns the answer. Its second argument is the name of the bundle that will have
their captures, or ""."""


def dead_spools(paths: CrawlPaths, but: str) -> Iterator[str]:
    """The names of dead nodes that left something. Each is locked while the caller works on it."""
    for folder in sorted(paths.spools.iterdir()):
        if folder.name == but or not any(_leftovers(folder, paths)):
            continue
        lock = SpoolLock.take(folder)
        if lock is not None:
            try:
                yield folder.name
            finally:
                lock.free()


def _leftovers(folder: Path, paths: CrawlPaths) -> Iterator[Path]:
    for suffix in (JOURNAL_SUFFIX, *BUNDLE_SUFFIXES, *((EVENTS_SUFFIX,) if paths.events else ())):
        yield from folder.glob("*" + suffix)
    yield from folder.glob(SCRATCH_PREFIX + "*")


def recover(paths: CrawlPaths, node: str, pipeline: Pipeline, submit: Submit) -> bool:
    """Finish what a dead node left. False if the coordinator does not accept all of it yet, because it still believes
    the node to be alive: then the journals keep the answers that came, and the rest is left for another time."""
    discard_scratch(paths.spool(node))
    journals = [FoundJournal(path) for path in _unbundled(paths, node)]
    answered = [_ask(journal, submit, bundled=paths.bundled) for journal in journals]
    if not all(answered):
        return False
    repair(paths.warc, node, _told(journals))
    for journal in journals:
        _complete(paths, node, journal, pipeline)
    if paths.bundled:
        _drop_unjournalled(paths.warc, node)
    return True


def _unbundled(paths: CrawlPaths, node: str) -> list[Path]:
    """The journals of segments that are not complete. If a segment's bundle exists, the process was killed between
    making it and cleaning up: then its journal and its tables are removed here."""
    left: list[Path] = []
    for journal in sorted(paths.spool(node).glob("*" + JOURNAL_SUFFIX)):
        name = journal.name.removesuffix(JOURNAL_SUFFIX)
        if not has_bundle(journal.parent, name):
            left.append(journal)
            continue
        for table in TABLES:
            remove(paths.tables / table / f"{name}.parquet")
        remove(journal)
    return left


def _ask(journal: FoundJournal, submit: Submit, *, bundled: bool) -> bool:
    """Send the batches that were never answered. Returns whether all are answered now."""
    bundle = journal.path.name.removesuffix(JOURNAL_SUFFIX) if bundled else ""
    for number, batch in enumerate(journal.batches):
        if number not in journal.answers:
            results = [entry.result for entry in batch.entries]
            answer = answer_of(number, submit(results, bundle) if results else NOTHING_SENT)
            if answer is not None:
                journal.answered(answer)
    return len(journal.answers) == len(journal.batches)


def _told(journals: list[FoundJournal]) -> dict[str, dict[int, bool]]:
    """Which captures count, by the name of their WARC file and their offset in it."""
    told: dict[str, dict[int, bool]] = {}
    for journal in journals:
        for number, batch in enumerate(journal.batches):
            rejected = frozenset(journal.answers[number].rejected)
            for place, entry in enumerate(batch.entries):
                if entry.warc_filename:
                    told.setdefault(entry.warc_filename, {})[entry.warc_offset] = place not in rejected
            for contact in batch.contacts:
                if contact.warc_filename:
                    told.setdefault(contact.warc_filename, {})[contact.warc_offset] = True
    return told


def _complete(paths: CrawlPaths, node: str, journal: FoundJournal, pipeline: Pipeline) -> None:
    """Make the tables of a segment whose WARC files are finished."""
    name = journal.path.name.removesuffix(JOURNAL_SUFFIX)
    tables = SegmentWriter(paths.tables, name, node=node)
    for number, batch in enumerate(journal.batches):
        answer, lines = journal.answers[number], [contact.fetch for contact in batch.contacts]
        add_rows(tables, rebuild(paths, batch.entries, pipeline, answer.rejected), answer, lines)
    if paths.events:
        owe(paths.spool(node), name)
    tables.finish()
    if paths.bundled:
        warcs = {entry.warc_filename for batch in journal.batches for entry in batch.entries} - {""}
        contacts = [contact for batch in journal.batches for contact in batch.contacts]
        warcs |= {contact.warc_filename for contact in contacts} - {""}
        receipts = [receipt for answer in journal.answers.values() for receipt in answer.receipts]
        receipts += [lease_receipt(contact.lease_id, contact.fetch.host) for contact in contacts]
        make_bundle(paths.root, paths.spool(node), name, warcs, receipts, packed=paths.packed)
    journal.delete()


def report_killer(blackbox: Path, submit: Submit) -> None:
    """Report the page that was being parsed when the last process died. The page is tried again, but not for ever."""
    url, assignment = read_struck(blackbox)
    key = read_assignment_id(assignment)
    if key is not None:
        kind = FailureKind.CRASH if key.attempts + 1 >= KILLS_MAX else KILLED
        error = "its process ended while parsing it"
        result = Result(assignment, url, 0, "", [], time.time(), outcome=Outcome.FAILED, kind=kind, error=error)
        result.capture_id = f"{key.lease_id}/{key.task_id}:{KILLED}"
        submit([result], "")
    remove(blackbox)


def _drop_unjournalled(warc: Path, node: str) -> None:
    """Remove the node's WARC files that belong to no segment. Their captures never reached a journal and were never
    sent, so their pages are fetched again. Files of other nodes stay: they may be at work in the same folder."""
    for path in warc.iterdir():
        stem = path.name.removesuffix(WARC_SUFFIX).removesuffix(CDXJ_SUFFIX)
        if node_of_warc(stem) == node:
            remove(path)


def rebuild(
    paths: CrawlPaths, entries: list[Entry], pipeline: Pipeline, rejected: Collection[int] = ()
) -> list[Arrival]:
    """The arrivals in these entries of a journal. Captures of pages are read from the archive and parsed again; those
    that did not count, or are not pages, are not needed for anything."""
    arrivals = [Arrival(entry.result, entry.fetch) for entry in entries]
    for place, entry in enumerate(entries):
        if entry.result.outcome == Outcome.FETCHED and place not in rejected:
            arrivals[place].capture = _read_back(paths, entry)
    pipeline.read([arrival.capture for arrival in arrivals if arrival.capture is not None])
    for arrival in arrivals:
        if arrival.capture is not None:
            arrival.capture.digest = bytes.fromhex(arrival.result.content_hash)
            arrival.capture.sketch = arrival.result.sketch
    return arrivals


def _read_back(paths: CrawlPaths, entry: Entry) -> Capture | None:
    if not entry.warc_filename:
        return None
    result = entry.result
    path = paths.warc / entry.warc_filename
    capture = read_capture(path if path.exists() else path.with_name(path.name + OPEN_SUFFIX), entry.warc_offset)
    key = read_assignment_id(result.assignment_id)
    if key is not None:
        capture.depth = key.depth
    capture.host, capture.domain = entry.fetch.host, domain_of(entry.fetch.host)
    capture.found_on, capture.redirects = entry.found_on, tuple(result.redirect_chain)
    capture.fetched, capture.duration_s = result.crawl_time, entry.fetch.duration_s
    capture.warc_filename = entry.warc_filename
    capture.record_id, capture.ip, capture.protocol = result.record_id, entry.fetch.ip, entry.fetch.protocol
    try:
        capture.body = decode(
            capture.body_raw, capture.headers.get("content-encoding", ""), len(capture.body_raw) * 1000
        )
    except SiteError:
        capture.body = capture.body_raw
    return capture
