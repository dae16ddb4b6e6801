"""Journals of results that coordinators took from workers and that are not in complete tables yet; how to finish them.

A coordinator that stores is a writer like a node. It has a name and a spool folder `STORE/nodes/NAME`, whose lock it
holds while it lives, with the journal of each unfinished segment. A journal holds, batch by batch, all that is needed
to make the rows, and for each settled batch which results counted. It is deleted when the tables of its segment are
complete. The next coordinator that finds the journal of a dead one settles the batches that have no verdict, and makes
the tables.

A worker that got no answer sends its result again, perhaps to another coordinator, so two journals may hold the same
result. The engine counts it once and calls it `repeated` the second time, but does not say which journal was first. So
before a repeated result is stored, the other journals and tables are searched for its row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from drumlin.coordinator.taking.settling import Taken
from drumlin.disk import AppendFile, remove, translated_disk_errors
from drumlin.lifecycle.removal.texts import Filtered
from drumlin.model import Capture
from drumlin.protocol import KnownPage, Result, Results
from drumlin.store import FetchRecord, SegmentWriter, repair
from drumlin.store.frames import framed, frames
from drumlin.store.spools import KEPT_SUFFIX, SPOOLS, SpoolLock
from drumlin.store.tables.counted import add_counted
from drumlin.store.tables.rows import micros

if TYPE_CHECKING:
    from drumlin.lifecycle.removal.targets import Targets
    from drumlin.store.moves import Moves

NAME_PREFIX = "coordinator-"

Owe = Callable[[str], None]
"""Called with the name of a segment before its rows can be seen, because their events are owed to a broker."""
Submit = Callable[[Results], Awaitable[Taken]]
Row = tuple[str, int]
"""Identifies one attempt in the tables: its URL and its time in microseconds."""


class Entry(msgspec.Struct, array_like=True):
    """One result, the line of the fetch log, and the capture without its body."""

    result: Result
    fetch: FetchRecord
    capture: Capture | None = None

    @property
    def row(self) -> Row:
        return self.fetch.url, micros(self.fetch.fetched)


class TakenBatch(msgspec.Struct, array_like=True, tag=0):
    entries: list[Entry]


class Verdict(msgspec.Struct, array_like=True, tag=1):
    """What became of batch number `batch`: which of its results must not be stored, and which repeat a page."""

    batch: int
    left_out: list[int]
    duplicates: list[KnownPage]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(TakenBatch | Verdict)


class KeptJournal:
    """The journal of a segment that is being written."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path = path
        self._batches = 0
        self._file = AppendFile(path, sync=sync)

    def append(self, entries: list[Entry]) -> int:
        """Append a batch and return its number. Once this returns the batch survives kill -9, and with `sync` also
        power loss."""
        self._file.append(framed(_encoder.encode(TakenBatch(entries))))
        self._batches += 1
        return self._batches - 1

    @property
    def size(self) -> int:
        return self._file.size

    def judged(self, verdict: Verdict) -> None:
        self._file.append(framed(_encoder.encode(verdict)))

    def close(self) -> None:
        self._file.close()

    def delete(self) -> None:
        self._file.close()
        remove(self.path)


class FoundJournal:
    """The journal that an earlier writer left; if its end is torn, everything before that."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches: list[list[Entry]] = []
        self.verdicts: dict[int, Verdict] = {}
        self._end = 0
        for content, end in frames(path.read_bytes()):
            self._end = end
            frame = _decoder.decode(content)
            if isinstance(frame, TakenBatch):
                self.batches.append(frame.entries)
            else:
                self.verdicts[frame.batch] = frame

    def judged(self, verdict: Verdict) -> None:
        """Append a verdict, so the next reader of this journal uses the same one."""
        self.verdicts[verdict.batch] = verdict
        frame = framed(_encoder.encode(verdict))
        with translated_disk_errors(self.path), self.path.open("r+b") as file:
            file.truncate(self._end)
            file.seek(self._end)
            file.write(frame)
        self._end += len(frame)

    def captures(self) -> dict[str, dict[int, bool]]:
        """Which captures count, by the name of their WARC file and their offset in it."""
        told: dict[str, dict[int, bool]] = {}
        for number, entries in enumerate(self.batches):
            left_out = frozenset(self.verdicts[number].left_out)
            for place, entry in enumerate(entries):
                if entry.capture is not None and entry.capture.warc_filename:
                    told.setdefault(entry.capture.warc_filename, {})[entry.capture.warc_offset] = place not in left_out
        return told

    def rows(self) -> Iterator[tuple[Row, bool]]:
        """The rows that this journal has (True) or may still get (False)."""
        for number, entries in enumerate(self.batches):
            verdict = self.verdicts.get(number)
            left_out = frozenset(verdict.left_out) if verdict else frozenset[int]()
            for place, entry in enumerate(entries):
                if place not in left_out:
                    yield entry.row, verdict is not None


def without(data: bytes, targets: Targets, moves: Moves) -> Filtered:
    """The journal without what is removed on request (`drumlin.lifecycle.removal`), and with the new places of
    captures that have moved."""
    frames_left: list[bytes] = []
    places: list[dict[int, int]] = []
    removed = mentions = 0
    for content, _ in frames(data):
        frame = _decoder.decode(content)
        if isinstance(frame, TakenBatch):
            kept = [place for place, entry in enumerate(frame.entries) if not targets.covers(entry.result.url)]
            removed += len(frame.entries) - len(kept)
            places.append({place: at for at, place in enumerate(kept)})
            frame = TakenBatch([frame.entries[place] for place in kept])
            for entry in frame.entries:
                _follow(entry.capture, targets, moves)
                mentions += targets.names(_encoder.encode(entry))
        else:
            frame = _verdict_without(frame, places[frame.batch], targets)
        frames_left.append(framed(_encoder.encode(frame)))
    changed = b"".join(frames_left)
    return Filtered(changed, removed, mentions, changes=changed != data)


def _follow(capture: Capture | None, targets: Targets, moves: Moves) -> None:
    if capture is None:
        return
    if (moved := moves.get(capture.warc_filename)) is not None:
        capture.warc_filename, capture.warc_offset = moved.filename, moved.offset(capture.warc_offset)
    if targets.covers(capture.found_on):
        capture.found_on = ""


def _verdict_without(verdict: Verdict, places: dict[int, int], targets: Targets) -> Verdict:
    """What became of a batch whose results have these places now."""
    left_out = [places[place] for place in verdict.left_out if place in places]
    known = [one for one in verdict.duplicates if one.index in places and not targets.covers(one.duplicate.url)]
    return Verdict(verdict.batch, left_out, [KnownPage(places[one.index], one.duplicate) for one in known])


def add_rows(tables: SegmentWriter, entries: list[Entry], verdict: Verdict) -> int:
    """Add rows for what counted: every result to `fetches`, the pages among them to `pages` and `links`. Returns how
    many results counted."""
    return add_counted(tables, entries, verdict.left_out, verdict.duplicates)


def owe_nothing(segment: str) -> None:
    """Events are not wanted."""


async def finish_journal(
    store: Path, path: Path, submit: Submit, dead: Collection[Path] = (), owe: Owe = owe_nothing
) -> bool:
    """Settle the batches without a verdict and make the tables of a journal that nobody writes to any more. Returns
    False if that must wait, because a living coordinator is settling the same result. `dead` are further journals that
    nobody writes to."""
    journal = await asyncio.to_thread(FoundJournal, path)
    stored = {row for row, known in journal.rows() if known}
    for number, entries in enumerate(journal.batches):
        if number in journal.verdicts:
            continue
        taken = await submit(Results([entry.result for entry in entries]))
        repeated = {entries[place].row for place in taken.repeated}
        if repeated:
            elsewhere = await asyncio.to_thread(_rows_elsewhere, store, path, repeated, dead)
            if elsewhere is None:
                return False
            stored |= elsewhere
        again = [place for place in taken.repeated if entries[place].row in stored]
        verdict = Verdict(number, sorted({*taken.accepted.rejected_at, *again}), taken.accepted.duplicates)
        journal.judged(verdict)
        stored |= {entry.row for place, entry in enumerate(entries) if place not in verdict.left_out}
    await asyncio.to_thread(_complete, store, journal, owe)
    return True


def _complete(store: Path, journal: FoundJournal, owe: Owe) -> None:
    """Finish the WARC file and the tables of a segment whose verdicts are all known; then delete its journal."""
    name = journal.path.name.removesuffix(KEPT_SUFFIX)
    repair(store / "warc", name, journal.captures())
    tables = SegmentWriter(store / "tables", name, node=journal.path.parent.name)
    if sum(add_rows(tables, entries, journal.verdicts[number]) for number, entries in enumerate(journal.batches)):
        owe(name)
        tables.finish()
    else:
        tables.abandon()
    remove(journal.path)


def _rows_elsewhere(store: Path, but: Path, wanted: set[Row], dead: Collection[Path]) -> set[Row] | None:
    """Which of these rows are in other journals or tables of coordinators; None if that cannot be known yet."""
    found: set[Row] = set()
    for path in (store / SPOOLS).glob(f"{NAME_PREFIX}*/*{KEPT_SUFFIX}"):
        rows = _rows_of(path) if path != but else {}
        alike = wanted & rows.keys()
        if not all(rows[row] for row in alike) and path not in dead and not _is_dead(path):
            return None
        found |= {row for row in alike if rows[row]}
    urls = sorted({url for url, _ in wanted})
    for path in (store / "tables" / "fetches").glob(f"{NAME_PREFIX}*.parquet"):
        if path.stem == but.name.removesuffix(KEPT_SUFFIX):
            # This table was made from the journal in question by a process that died before deleting it. It is made
            # again.
            continue
        table = pq.read_table(path, columns=["url", "fetch_time"], filters=[("url", "in", urls)])
        times = table["fetch_time"].cast("int64").to_pylist()
        found |= wanted & set(zip(table["url"].to_pylist(), times, strict=True))
    return found


def _rows_of(journal: Path) -> dict[Row, bool]:
    try:
        return dict(FoundJournal(journal).rows())
    except FileNotFoundError:
        # Its segment was completed meanwhile, so its rows are in the tables.
        return {}


def _is_dead(journal: Path) -> bool:
    lock = SpoolLock.take(journal.parent)
    if lock is not None:
        lock.free()
    return lock is not None
