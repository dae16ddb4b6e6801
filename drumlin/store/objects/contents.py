"""What is in a store of objects, as its manifest says: the effect of all entries up to one number.

Everything here is plain data and the same in every process: what is there after an entry depends only on the entries.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Final

import msgspec
import zstandard

from drumlin.store.frames import decompressed
from drumlin.store.names import REMOVING, TOMBSTONES
from drumlin.store.warc.cdxj import INDEX_NAME
from drumlin.store.warc.file import WARC_SUFFIX

KEPT_S: Final = 24 * 3600.0
"""For how long an object stays after the manifest has ceased to name it: readers may have begun before."""
FORM: Final = 1
STATE_BYTES_MAX: Final = 4 * 1024**3


class Item(msgspec.Struct, frozen=True, array_like=True):
    """A file of the store: its path there, the object that holds it, when it became part of the store, and the segment
    that it came with; some came with none. One that retention has moved is in another `place`, since `moved`."""

    path: str
    name: str
    bytes: int
    written: float
    segment: str = ""
    place: str = ""
    moved: float = 0.0


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of the store, which happens as a whole. `id` is unique, so its writer knows it again. `segments` are
    those that it adds, `retired` the files that retention deletes by it, wholly or in part: their old objects are
    needed by nobody, not even for a while. `at` is when: by the service's time if files are joined or replaced,
    otherwise by its writer's clock."""

    id: str
    at: float
    by: str
    add: list[Item] = []
    remove: list[str] = []
    segments: list[str] = []
    retired: list[str] = []


class SegmentNames:
    """All segments that were ever added, in little room: of a node's names, which end in a serial number, the ranges of
    numbers are kept. So a segment that comes a second time is known, also when its files were compacted away."""

    def __init__(self, ranges: dict[str, list[tuple[int, int]]] | None = None) -> None:
        self.ranges = ranges or {}

    def __contains__(self, segment: str) -> bool:
        stem, serial = _split(segment)
        known = self.ranges.get(stem, [])
        place = bisect.bisect_right(known, (serial, 1 << 62)) - 1
        return place >= 0 and known[place][1] >= serial

    def add(self, segment: str) -> None:
        if segment in self:
            return
        stem, serial = _split(segment)
        known = self.ranges.setdefault(stem, [])
        place = bisect.bisect_right(known, (serial, 1 << 62))
        first = last = serial
        if place < len(known) and known[place][0] == serial + 1:
            last = known.pop(place)[1]
        if place and known[place - 1][1] == serial - 1:
            place -= 1
            first = known.pop(place)[0]
        known.insert(place, (first, last))


def _split(segment: str) -> tuple[str, int]:
    stem, _, serial = segment.rpartition("-")
    return f"{stem}-{len(serial)}", int(serial)


class _Kept(msgspec.Struct):
    """A checkpoint, as it is written."""

    form: int
    number: int
    items: list[Item]
    gone: list[tuple[Item, float]]
    ranges: dict[str, list[tuple[int, int]]]
    retired: dict[str, float] = {}
    rows_deleted: float = 0.0
    index_is_old: bool = False


class Contents:
    """The store after entry `number`."""

    def __init__(self) -> None:
        self.number = 0
        self.segments = SegmentNames()
        self._items: dict[str, Item] = {}
        self._folders: dict[str, dict[str, Item]] = {}
        self.gone: dict[str, tuple[Item, float]] = {}
        """What was removed or replaced lately, by the names of objects, and when."""
        self.retired: dict[str, float] = {}
        """When retention deleted these files: WARC files for good, because rows may name them; others lately."""
        self.rows_deleted = 0.0
        """When retention deleted rows of tables last."""
        self.index_is_old = False
        """Whether retention has deleted WARC files since their indexes were merged."""

    def __len__(self) -> int:
        return len(self._items)

    @property
    def removals(self) -> str:
        """Different after each removal on request that has begun or ended. It deletes objects that nothing names, so
        whoever has uploaded some, or has seen that they are there, must not name them after that."""
        items = [self._items[path] for path in (TOMBSTONES, REMOVING) if path in self._items]
        return " ".join(item.name for item in items)

    @property
    def is_being_removed_from(self) -> bool:
        return REMOVING in self._items

    def item(self, path: str) -> Item | None:
        return self._items.get(path)

    def items(self) -> list[Item]:
        """All files. A list of its own, since other threads may add some meanwhile."""
        return list(self._items.values())

    def folder(self, folder: str) -> dict[str, Item]:
        """The files in a folder by their names, in a dictionary of its own."""
        return dict(self._folders.get(folder, {}))

    def past(self, path: str) -> Item | None:
        """What had this path lately, for readers who learnt of it before."""
        return next((item for item, _ in reversed(list(self.gone.values())) if item.path == path), None)

    def apply(self, number: int, entry: Entry) -> None:
        if number != self.number + 1:
            raise ValueError(f"entry {number} cannot follow entry {self.number}")
        self.number = number
        for path in entry.remove:
            self._take(path, entry.at)
        for item in entry.add:
            self._take(item.path, entry.at)
            self._put(item)
        for segment in entry.segments:
            self.segments.add(segment)
        self._retire(entry)
        # Only an entry that joins files has the service's time; a writer's own clock may be wrong by days.
        for name in list(self._expired(entry.at)) if entry.remove and not entry.retired else ():
            path = self.gone.pop(name)[0].path
            if not path.endswith(WARC_SUFFIX):
                self.retired.pop(path, None)

    def _retire(self, entry: Entry) -> None:
        self.retired |= dict.fromkeys(entry.retired, entry.at)
        if any(path.endswith(WARC_SUFFIX) for path in entry.retired):
            self.index_is_old = f"warc/{INDEX_NAME}" in self._items
        elif any(item.path == f"warc/{INDEX_NAME}" for item in entry.add):
            self.index_is_old = False
        if any(path.startswith("tables/") and path not in self._items for path in entry.retired):
            self.rows_deleted = entry.at

    def useless(self) -> list[Item]:
        """What retention has replaced or deleted lately: nobody may read it any more."""
        return [item for item, _ in self.gone.values() if item.path in self.retired]

    def _expired(self, now: float) -> Iterator[str]:
        """What is gone for so long that nobody can be reading it: those that went first stand first."""
        for name, (_, at) in self.gone.items():
            if now - at <= 2 * KEPT_S:
                return
            yield name

    def _take(self, path: str, at: float) -> None:
        item = self._items.pop(path, None)
        if item is not None:
            folder, _, name = path.rpartition("/")
            del self._folders[folder][name]
            self.gone[item.name] = (item, at)

    def _put(self, item: Item) -> None:
        folder, _, name = item.path.rpartition("/")
        self._items[item.path] = item
        self._folders.setdefault(folder, {})[name] = item
        if not item.place:
            self.gone.pop(item.name, None)

    def packed(self) -> bytes:
        kept = _Kept(FORM, self.number, list(self._items.values()), list(self.gone.values()), self.segments.ranges)
        kept.retired, kept.rows_deleted, kept.index_is_old = self.retired, self.rows_deleted, self.index_is_old
        return zstandard.compress(msgspec.msgpack.encode(kept))

    @classmethod
    def unpacked(cls, packed: bytes) -> Contents:
        content = decompressed(packed, STATE_BYTES_MAX)
        kept = msgspec.msgpack.decode(content, type=_Kept)
        contents = cls()
        contents.number = kept.number
        contents.segments = SegmentNames(kept.ranges)
        for item in kept.items:
            contents._put(item)
        contents.gone = {item.name: (item, at) for item, at in kept.gone}
        contents.retired, contents.rows_deleted = kept.retired, kept.rows_deleted
        contents.index_is_old = kept.index_is_old
        return contents
