"""A node's journal: what it has archived, written before the coordinator is told, and what the coordinator answered.

For each batch, the journal of a segment has the results and the places of their captures in the WARC files, and later
the answer to the batch. It is deleted when the segment's tables are complete. So a journal that is found at start is
that of a node that died: batches without an answer are sent again (settling twice changes nothing), and the rows of
everything that counted are made again from the archive.

A frame (`drumlin.store.frames`) is one batch or answer in MessagePack.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import msgspec

from drumlin.disk import AppendFile, remove
from drumlin.lifecycle.removal.texts import Filtered
from drumlin.protocol import Accepted, KnownPage, Rejection, Result
from drumlin.store import FetchRecord
from drumlin.store.frames import framed, frames, frames_in
from drumlin.store.tables.reading import InTime, check_time

if TYPE_CHECKING:
    from drumlin.lifecycle.removal.targets import Targets
    from drumlin.store.moves import Moves

NOTHING_SENT = Accepted(0, 0, [])
"""The answer to a batch that has only contacts, about which no coordinator is asked."""


class Entry(msgspec.Struct, array_like=True):
    """One result, with what its table rows need and the archive does not have. If `warc_filename` is empty, nothing was
    captured."""

    result: Result
    fetch: FetchRecord
    warc_filename: str
    warc_offset: int
    found_on: str


class ContactEntry(msgspec.Struct, array_like=True):
    """A contact that settles no URL: its row, the lease under which it was made, and the place of its answer in the
    archive, if there was one."""

    fetch: FetchRecord
    lease_id: str
    warc_filename: str
    warc_offset: int


class JournalBatch(msgspec.Struct, array_like=True, tag=0):
    """What was archived together. The results of the entries are sent together; the contacts are not sent."""

    entries: list[Entry]
    contacts: list[ContactEntry] = []


class Answer(msgspec.Struct, array_like=True, tag=1):
    """What the coordinator made of batch number `batch` of this journal: which of its results did not count, which
    repeat an earlier page, and the receipts of those that counted, if they will go into a bundle."""

    batch: int
    rejected: list[int]
    duplicates: list[KnownPage]
    receipts: list[str] = []


class LinklessResult(msgspec.Struct):
    """What a look at attempts needs of a result. Its links, which may be many, are skipped when it is decoded."""

    assignment_id: str
    redirect_chain: list[str] = []


class LinklessEntry(msgspec.Struct, array_like=True):
    """An entry without its links."""

    result: LinklessResult
    fetch: FetchRecord
    warc_filename: str
    warc_offset: int
    found_on: str


class LinklessBatch(msgspec.Struct, array_like=True, tag=0):
    """A batch without the links of its results."""

    entries: list[LinklessEntry]
    contacts: list[ContactEntry] = []


Batch = TypeVar("Batch", JournalBatch, LinklessBatch)

_BATCH_TAG = b"\x00"
"""The second byte of an encoded batch: its tag, after the head of the array."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(JournalBatch | Answer)


def answer_of(batch: int, accepted: Accepted) -> Answer | None:
    """The answer as it is kept in a journal. None if the coordinator says that a result belongs to another node,
    because a later answer may be different."""
    if any(rejected.reason == Rejection.NOT_YOURS for rejected in accepted.rejected):
        return None
    return Answer(batch, accepted.rejected_at, accepted.duplicates, kept_receipts(accepted))


def kept_receipts(accepted: Accepted) -> list[str]:
    return [receipt for receipt in accepted.receipts if receipt]


class Journal:
    """The journal of the segment being written."""

    def __init__(self, file: AppendFile) -> None:
        self.path = file.path
        self._batches = 0
        self._file = file

    def append(self, batch: JournalBatch) -> int:
        """Write a batch and return its number. Once this returns, the batch survives kill -9, and with `sync` a power
        loss."""
        self._file.append(_frame(batch))
        self._batches += 1
        return self._batches - 1

    def answered(self, answer: Answer) -> None:
        self._file.append(_frame(answer))

    def delete(self) -> None:
        """Remove the journal, because the segment's tables are complete."""
        self._file.close()
        remove(self.path)

    def close(self) -> None:
        self._file.close()


class FoundJournal:
    """The journal of a dead node. If its last frame is torn, it is read up to that."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches, self.answers, self._end = read_journal(path.read_bytes())

    def answered(self, answer: Answer) -> None:
        """Write an answer to the journal, so the next node that finds this journal need not ask again."""
        self.answers[answer.batch] = answer
        frame = _frame(answer)
        with self.path.open("r+b") as file:
            os.truncate(file.fileno(), self._end)
            file.seek(self._end)
            file.write(frame)
        self._end += len(frame)

    def delete(self) -> None:
        remove(self.path)


def read_journal(data: bytes) -> tuple[list[JournalBatch], dict[int, Answer], int]:
    """The batches of a journal, the answers to some of them by their numbers, and where its last whole frame ends."""
    batches: list[JournalBatch] = []
    answers: dict[int, Answer] = {}
    last_end = 0
    for content, end in frames(data):
        last_end = end
        frame = _decoder.decode(content)
        if isinstance(frame, JournalBatch):
            batches.append(frame)
        else:
            answers[frame.batch] = frame
    return batches, answers, last_end


def without(data: bytes, targets: Targets, moves: Moves) -> Filtered:
    """The journal without what is removed on request (`drumlin.lifecycle.removal`), and with the new places of
    captures that have moved."""
    frames_left: list[bytes] = []
    places: list[dict[int, int]] = []
    removed = mentions = 0
    for content, _ in frames(data):
        frame = _decoder.decode(content)
        if isinstance(frame, JournalBatch):
            kept = [place for place, entry in enumerate(frame.entries) if not targets.covers(entry.result.url)]
            contacts = [one for one in frame.contacts if not targets.covers_host(one.fetch.host)]
            contacts = [one for one in contacts if not targets.covers(one.fetch.url)]
            removed += len(frame.entries) - len(kept) + len(frame.contacts) - len(contacts)
            places.append({place: at for at, place in enumerate(kept)})
            frame = JournalBatch([frame.entries[place] for place in kept], contacts)
            left: list[Entry | ContactEntry] = [*frame.entries, *frame.contacts]
            for one in left:
                _follow(one, targets, moves)
                mentions += targets.names(_encoder.encode(one))
        else:
            frame = _answer_without(frame, places[frame.batch], targets)
        frames_left.append(_frame(frame))
    changed = b"".join(frames_left)
    return Filtered(changed, removed, mentions, changes=changed != data)


def _follow(entry: Entry | ContactEntry, targets: Targets, moves: Moves) -> None:
    moved = moves.get(entry.warc_filename)
    if moved is not None:
        entry.warc_filename, entry.warc_offset = moved.filename, moved.offset(entry.warc_offset)
    if isinstance(entry, Entry) and targets.covers(entry.found_on):
        entry.found_on = ""


def _answer_without(answer: Answer, places: dict[int, int], targets: Targets) -> Answer:
    """The answer to a batch whose results have these places now."""
    rejected = [places[place] for place in answer.rejected if place in places]
    known = [one for one in answer.duplicates if one.index in places and not targets.covers(one.duplicate.url)]
    return Answer(
        answer.batch, rejected, [KnownPage(places[one.index], one.duplicate) for one in known], answer.receipts
    )


def look_through(
    journal: BinaryIO, bytes_max: int, kind: type[Batch], needle: bytes, in_time: InTime
) -> Iterator[tuple[int, Batch] | Answer]:
    """The batches in whose bytes `needle` occurs, with their numbers, and all answers, as they come. Others are not
    decoded, and the file is read frame by frame: a journal has thousands of pages with all their links, and those of
    a hostile site take hundreds of megabytes. Raises `TimeUp`."""
    number = 0
    for content, _ in frames_in(journal, bytes_max):
        check_time(in_time)
        if content[1:2] != _BATCH_TAG:
            yield msgspec.msgpack.decode(content, type=Answer)
            continue
        if needle in content:
            yield number, msgspec.msgpack.decode(content, type=kind)
        number += 1


def _frame(content: JournalBatch | Answer) -> bytes:
    return framed(_encoder.encode(content))
