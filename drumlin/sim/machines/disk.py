"""The disk of a simulated node: its name, its journal, and nothing else. It survives the process, and can be full.

The journal is the real one, on a file in memory. What is archived beside it is only counted: WARC files and tables
decide nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from drumlin.disk import AppendFile, storage_error
from drumlin.node.keeping.archive import Archive, Arrival, Contact, StoredBatch
from drumlin.node.keeping.blackbox import BlackBox
from drumlin.node.keeping.journal import Answer, Entry, Journal, JournalBatch, kept_receipts
from drumlin.protocol import Accepted, Result
from drumlin.sim.machines.loop import VirtualLoop

SEGMENT_BATCHES = 10
"""After so many batches a journal is deleted when all of them are answered, as that of a complete segment is. A real
segment has more, but in memory the journals of thousands of nodes add up."""


class NodeDisk:
    """What a machine keeps of a node. `journals` are those that were not deleted."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.boots = 0
        self.full = False
        self.journals: list[JournalFile] = []


class JournalFile(AppendFile):
    """A file in memory that only grows."""

    def __init__(self, disk: NodeDisk, number: int) -> None:
        self.path = Path(f"journal-{number}")
        self.size = 0
        self.content = bytearray()
        self._disk = disk

    def append(self, content: bytes) -> None:
        if self._disk.full:
            cause = OSError(errno.ENOSPC, "No space left on device")
            raise storage_error(self.path, cause) from cause
        self.content += content

    def close(self) -> None:
        """There is nothing to close."""


class _Segment:
    """A journal that is being written, how many batches it has, and since when those wait that are not answered."""

    def __init__(self, disk: NodeDisk, number: int) -> None:
        self.file = JournalFile(disk, number)
        self.journal = Journal(self.file)
        self.batches = 0
        self.waiting: dict[int, float] = {}


class SimArchive(Archive):
    """The archive of a simulated node: the order of writing is the real one, on a simulated disk."""

    def __init__(
        self,
        disk: NodeDisk,
        loop: VirtualLoop,
        on_wait: Callable[[float], None],
        on_publish: Callable[[Sequence[str]], None],
    ) -> None:
        self._disk = disk
        self._loop = loop
        self._on_wait = on_wait
        self._on_publish = on_publish
        self._numbers = 0
        self._open: _Segment | None = None

    def store(self, arrivals: list[Arrival], now: float, contacts: Sequence[Contact] = ()) -> StoredBatch:
        segment = self._open or self._begin()
        entries = [Entry(one.result, one.fetch, "", 0, "") for one in arrivals]
        number = segment.journal.append(JournalBatch(entries))
        segment.batches += 1
        segment.waiting[number] = self._loop.now
        return StoredBatch(cast(Any, segment), number, arrivals)

    def _begin(self) -> _Segment:
        self._numbers += 1
        self._open = _Segment(self._disk, self._numbers)
        self._disk.journals.append(self._open.file)
        return self._open

    def publish(self, batch: StoredBatch, accepted: Accepted) -> None:
        segment: Any = batch.segment
        answer = Answer(batch.number, accepted.rejected_at, accepted.duplicates, kept_receipts(accepted))
        segment.journal.answered(answer)
        self._on_wait(self._loop.now - segment.waiting.pop(batch.number))
        self._on_publish(that_count([arrival.result for arrival in batch.arrivals], answer))
        if segment.batches >= SEGMENT_BATCHES and segment is self._open:
            self._open = None
        if segment is not self._open and not segment.waiting:
            self._disk.journals.remove(segment.file)

    def show_old_rows(self, now: float) -> None:
        """There are no tables."""


def that_count(results: Sequence[Result], answer: Answer) -> list[str]:
    """The URLs of those results that count, by the answer to their batch."""
    rejected = frozenset(answer.rejected)
    return [result.url for place, result in enumerate(results) if place not in rejected]


class NoBlackBox(BlackBox):
    """Nothing is parsed in a simulation, so no page can end a process by being parsed."""

    def __init__(self) -> None:
        """There is no file."""

    def reading(self, assignments: object) -> None: ...

    def clear(self) -> None: ...
