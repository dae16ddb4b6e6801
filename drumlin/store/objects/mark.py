"""How far the events of a store of objects have been told (`drumlin.events`): the number of an entry of the manifest.

The mark is an object of the store, so it outlives every disk. A store whose events nobody wants has none. Segments that
were added after the mark are not compacted: their events are made from the files that the entry has named.
"""

from __future__ import annotations

from typing import Final

import msgspec

from drumlin.store.objects.files import ObjectFiles

MARK: Final = "events/told.json"
ENTRIES_AT_ONCE: Final = 1_000


class Mark(msgspec.Struct, frozen=True):
    """All events of entries up to `number` are confirmed."""

    number: int


def read_mark(files: ObjectFiles) -> int | None:
    """None if nobody has ever wanted events of this store."""
    try:
        return msgspec.json.decode(files.bucket.get(MARK), type=Mark).number
    except FileNotFoundError:
        return None


def begin_mark(files: ObjectFiles) -> int:
    """The mark. If there is none, events are told of what is stored from now on."""
    known = read_mark(files)
    if known is not None:
        return known
    files.bucket.create(MARK, msgspec.json.encode(Mark(files.manifest.contents().number)))
    # Another coordinator may have been faster.
    return read_mark(files) or 0


def keep_mark(files: ObjectFiles, number: int) -> None:
    files.bucket.put(MARK, msgspec.json.encode(Mark(number)))


def untold_segments(files: ObjectFiles) -> set[str]:
    """The segments whose events are still to be told; none if nobody wants events."""
    number, untold = read_mark(files), set[str]()
    while number is not None and (entries := files.manifest.entries(number, ENTRIES_AT_ONCE)):
        for number, entry in entries:  # noqa: B007  # the last one is where the next look begins
            untold.update(entry.segments if not entry.remove else ())
    return untold
