"""A node's journal: what it has archived, written down before the coordinator hears of it, and what it answered.

A segment's journal holds, batch by batch, the results sent and where their captures lie in the WARC files, and for each
batch that was answered the answer. It is deleted when the segment's tables are complete. So a journal found at start
belongs to a node that died: what was never answered is sent again (settling twice changes nothing), and the rows of all
that counted are read again from the archive.

A frame (`drumlin.store.frames`) is the MessagePack of one batch or answer.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from drumlin.protocol import Accepted, KnownPage, Result
from drumlin.store import FetchRecord
from drumlin.store.disk import AppendFile, remove
from drumlin.store.frames import framed, frames

NOT_YOURS = "not_yours"


class Entry(msgspec.Struct, array_like=True):
    """One result with what its table rows need beyond the archive. No `warc_filename`: nothing was captured."""

    result: Result
    fetch: FetchRecord
    warc_filename: str
    warc_offset: int
    found_on: str


class Batch(msgspec.Struct, array_like=True, tag=0):
    """What was archived together and is sent together."""

    entries: list[Entry]


class Answer(msgspec.Struct, array_like=True, tag=1):
    """What the coordinator made of batch number `batch` of this journal: which of its results did not count, which
    repeat an earlier page, and the receipts of those that counted, if they will go into a bundle."""

    batch: int
    rejected: list[int]
    duplicates: list[KnownPage]
    receipts: list[str] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Batch | Answer)


def answer_of(batch: int, accepted: Accepted) -> Answer | None:
    """The answer worth keeping; none when the coordinator takes a result for another node's: that may change."""
    if any(rejected.reason == NOT_YOURS for rejected in accepted.rejected):
        return None
    return Answer(batch, accepted.rejected_at, accepted.duplicates, kept_receipts(accepted))


def kept_receipts(accepted: Accepted) -> list[str]:
    return [receipt for receipt in accepted.receipts if receipt]


class Journal:
    """The journal of the segment being written."""

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path = path
        self._batches = 0
        self._file = AppendFile(path, sync=sync)

    def append(self, entries: list[Entry]) -> int:
        """Write down a batch and give its number; it survives kill -9 once this returns, and power loss with `sync`."""
        self._file.append(_frame(Batch(entries)))
        self._batches += 1
        return self._batches - 1

    def answered(self, answer: Answer) -> None:
        self._file.append(_frame(answer))

    def delete(self) -> None:
        """Forget the segment: its tables are complete."""
        self._file.close()
        remove(self.path)

    def close(self) -> None:
        self._file.close()


class FoundJournal:
    """The journal of a dead node, up to its torn end if it has one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches: list[list[Entry]] = []
        self.answers: dict[int, Answer] = {}
        self._end = 0
        self._read(path.read_bytes())

    def _read(self, data: bytes) -> None:
        for content, end in frames(data):
            self._end = end
            frame = _decoder.decode(content)
            if isinstance(frame, Batch):
                self.batches.append(frame.entries)
            else:
                self.answers[frame.batch] = frame

    def answered(self, answer: Answer) -> None:
        """Write down an answer, so that whoever finds this journal next need not ask again."""
        self.answers[answer.batch] = answer
        frame = _frame(answer)
        with self.path.open("r+b") as file:
            os.truncate(file.fileno(), self._end)
            file.seek(self._end)
            file.write(frame)
        self._end += len(frame)

    def delete(self) -> None:
        remove(self.path)


def _frame(content: Batch | Answer) -> bytes:
    return framed(_encoder.encode(content))
