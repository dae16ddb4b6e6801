"""Dead letters in the order of kind, host and arrival, and how many there are of each kind and host.

A letter itself is in `dead`, under its task's id. In `meta` it is listed under its place; each group has its count
there, and stands in an index with the largest first. All three change in the same batch as the letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from struct import Struct

from rocksdict import WriteBatch

from drumlin.engines.paging import KINDS_IN_ORDER
from drumlin.engines.rocksdb.layout import ID_BYTES, decode_letter, pack_id
from drumlin.engines.rocksdb.storage import Storage
from drumlin.model import DeadGroup, DeadLetter, FailureKind, GroupPlace, LetterPlace

LISTED = b"letters"
COUNTED = b"letter_count"
LARGEST = b"letter_groups"
COUNT_MAX = (1 << 64) - 1

_count = Struct(">Q")


def place_key(kind: str, host: str, task_id: int) -> bytes:
    """The place of a letter. Neither kinds nor hosts contain a zero, so the order of bytes is that of places."""
    return group_key(kind, host) + b"\0" + pack_id(task_id)


def group_key(kind: str, host: str) -> bytes:
    return f"{kind}\0{host}".encode()


def _largest_key(prefix: bytes, group: bytes, letters: int) -> bytes:
    kind, _, host = group.partition(b"\0")
    return LARGEST + prefix + kind + b"\0" + _count.pack(COUNT_MAX - letters) + host


class Listing:
    """The lists of one shard, whose keys begin with `prefix` after their names."""

    def __init__(self, storage: Storage, prefix: bytes) -> None:
        self._storage = storage
        self._prefix = prefix

    # Writing

    def put(self, batch: WriteBatch, letter: DeadLetter) -> bytes:
        """List a letter; returns its group."""
        batch.put(LISTED + self._prefix + place_key(*letter.place), b"", self._storage.handles["meta"])
        return group_key(letter.kind, letter.host)

    def remove(self, batch: WriteBatch, letter: DeadLetter) -> bytes:
        """Take a letter off the list; returns its group."""
        batch.delete(LISTED + self._prefix + place_key(*letter.place), self._storage.handles["meta"])
        return group_key(letter.kind, letter.host)

    def count(self, batch: WriteBatch, changes: Counter[bytes]) -> None:
        """Let groups have so many letters more or fewer."""
        handle = self._storage.handles["meta"]
        for group, change in changes.items():
            key = COUNTED + self._prefix + group
            value = self._storage.get("meta", key)
            before = _count.unpack(value)[0] if value else 0
            after = before + change
            if before and change:
                batch.delete(_largest_key(self._prefix, group, before), handle)
            if after:
                batch.put(key, _count.pack(after), handle)
                batch.put(_largest_key(self._prefix, group, after), b"", handle)
            else:
                batch.delete(key, handle)

    def put_all(self, batch: WriteBatch) -> None:
        """List every letter of a shard, for one whose letters an earlier version did not list."""
        self.count(batch, Counter(self.put(batch, letter) for letter in self._unordered()))

    # Reading

    def letters(
        self, kind: FailureKind | None, host: str, after: LetterPlace | None, limit: int
    ) -> Iterable[DeadLetter]:
        ids = islice(self._ids(kind, host, after), limit)
        found = self._storage.get_many("dead", [self._prefix + one for one in ids])
        return [decode_letter(value) for value in found if value is not None]

    def _ids(self, kind: FailureKind | None, host: str, after: LetterPlace | None) -> Iterator[bytes]:
        begin = LISTED + self._prefix
        # The first key after that of the place: ids have a fixed length, so no other key begins with that one.
        start = begin + place_key(*after) + b"\0" if after is not None else b""
        if kind is None and not host:
            ranges = [begin]
        else:
            kinds = KINDS_IN_ORDER if kind is None else [kind]
            ranges = [begin + (group_key(one, host) + b"\0" if host else f"{one}\0".encode()) for one in kinds]
        for each in ranges:
            for key, _ in self._storage.scan("meta", each, start):
                yield key[-ID_BYTES:]

    def groups(self, kind: FailureKind | None, after: GroupPlace | None, limit: int) -> list[DeadGroup]:
        kinds = KINDS_IN_ORDER if kind is None else [kind]
        found = merge(*(self._of_kind(one, after) for one in kinds), key=lambda group: group.place)
        return list(islice(found, limit))

    def _of_kind(self, kind: FailureKind, after: GroupPlace | None) -> Iterator[DeadGroup]:
        begin = LARGEST + self._prefix + f"{kind}\0".encode()
        letters = -after[0] if after is not None else COUNT_MAX
        start = begin + _count.pack(COUNT_MAX - letters)
        if after is not None:
            # Of groups as large as that one, those of an earlier kind were told, and those of a later one were not.
            start += b"\xff" if kind < after[1] else after[2].encode() + b"\0" if kind == after[1] else b""
        for key, _ in self._storage.scan("meta", begin, start):
            rest = key[len(begin) :]
            yield DeadGroup(kind, rest[_count.size :].decode(), COUNT_MAX - _count.unpack_from(rest)[0])

    def _unordered(self) -> Iterator[DeadLetter]:
        return (decode_letter(value) for _, value in self._storage.scan("dead", self._prefix))


class Unlisted(Listing):
    """A shard that an earlier version wrote and that is only read: its letters are sorted when they are asked for."""

    def letters(
        self, kind: FailureKind | None, host: str, after: LetterPlace | None, limit: int
    ) -> Iterable[DeadLetter]:
        found = sorted(self._unordered(), key=lambda letter: letter.place)
        chosen = (one for one in found if kind in (None, one.kind) and host in ("", one.host))
        return islice((one for one in chosen if after is None or one.place > after), limit)

    def groups(self, kind: FailureKind | None, after: GroupPlace | None, limit: int) -> list[DeadGroup]:
        counts = Counter((one.kind, one.host) for one in self._unordered() if kind in (None, one.kind))
        found = sorted((DeadGroup(*of, many) for of, many in counts.items()), key=lambda group: group.place)
        return [one for one in found if after is None or one.place > after][:limit]
