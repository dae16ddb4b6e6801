"""The sketches of every domain: searched in memory, kept in a key-value store.

In the store a domain is a list of chunks of `CHUNK_ENTRIES` entries in order of arrival. An entry is a sketch and the
reference of its capture; inserting rewrites only the last chunk. In memory there is a copy of the sketches of the
domains in use (`drumlin.dedupe.runs`), read from the store when it is needed and bounded in bytes. Searching the store
itself, in buckets, would take four random reads and four writes for each sketch, 40 to 80 µs.

The format of sketches is part of the chunks' keys, so sketches of an earlier version of drumlin are never read. New
ones are made from the texts in the store (`drumlin.coordinator.resketching`). Exact duplicates stay known.

Limits: there may be one writer for each store, since a copy in memory does not see what others write. A sketch in use
takes 110 to 220 bytes of memory. A domain keeps its first `DOMAIN_SKETCHES_MAX` sketches, so the largest is bounded
too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from drumlin.dedupe.runs import DomainSketches
from drumlin.dedupe.search import Match, as_words, nearest
from drumlin.dedupe.sketches import FORMAT, SKETCH_BYTES, Words
from drumlin.errors import EngineError
from drumlin.memory import machine_bytes

CHUNK_ENTRIES = 4
"""Entries in one value of the store: more make reading a domain cheaper, fewer make inserting cheaper."""

MEMORY_BYTES_MIN = 128 << 20
MEMORY_SHARE = 32
"""Copies of sketches may take this fraction of the machine's memory, or so many bytes if that is more: 128 MB are
about 800,000 sketches, or 50,000 small domains. A domain that is larger by itself is kept in memory while it is in use.
If the domains that are in use at the same time do not fit, nearly every page makes its whole domain be read again: with
128 MB, 2,000 domains of 600 pages were crawled at a third of the speed."""

DOMAIN_SKETCHES_MAX = 1 << 21
"""How many sketches one domain keeps (0.25 GB in memory while it is in use)."""

REFERENCE_BYTES = 8
DOMAIN_KEY_BYTES = 9

_ENTRY_BYTES = SKETCH_BYTES + REFERENCE_BYTES
_CHUNK_BYTES = CHUNK_ENTRIES * _ENTRY_BYTES


class KeyValue(Protocol):
    """The store of an index. `put_many` is atomic and durable, and the next `get_many` sees what it wrote."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]: ...

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None: ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys that begin with `prefix`, in order, with their values."""


Scan = Callable[[bytes], Iterator[tuple[bytes, bytes]]]
"""All keys of such a store that begin with a prefix, in order, with their values; only to move an index."""


def memory_bytes_max() -> int:
    """How much memory the copies of sketches may take on this machine."""
    return max(MEMORY_BYTES_MIN, machine_bytes() // MEMORY_SHARE)


class Sketched(NamedTuple):
    """A sketch to look up and insert, under its domain's key, with the reference of its capture (8 bytes)."""

    domain: bytes
    sketch: bytes
    reference: bytes


class Near(NamedTuple):
    """The nearest earlier sketch: how much it overlaps, and whose it is."""

    overlap: float
    reference: bytes


class _Domain:
    """A domain in memory: its sketches, and its last chunk, which the next insert extends."""

    def __init__(self, key: bytes, chunks: list[bytes]) -> None:
        self._key = key
        stored = b"".join(chunks)
        entries = range(0, len(stored), _ENTRY_BYTES)
        self.sketches = DomainSketches()
        self.sketches.extend(as_words([stored[at : at + SKETCH_BYTES] for at in entries]))
        self.size_bytes = 0  # As counted by the index when it was last used.
        self._chunk = chunks[-1] if chunks else b""

    def insert(self, batch: Sequence[Sketched], words: Words) -> Iterator[tuple[bytes, bytes]]:
        """Add sketches, given both as they came and as words. Yields the keys and values that must be written."""
        number, begun = divmod(self.sketches.count, CHUNK_ENTRIES)
        self.sketches.extend(words)
        entries = (self._chunk if begun else b"") + b"".join([one.sketch + one.reference for one in batch])
        for at in range(0, len(entries), _CHUNK_BYTES):
            self._chunk = entries[at : at + _CHUNK_BYTES]
            yield _chunk_key(self._key, number), self._chunk
            number += 1


class NearIndex:
    """The sketches of all domains. The caller must write the changes that `place` returns before it calls again, or
    call `forget` if it could not."""

    def __init__(self, kv: KeyValue, memory_bytes: int) -> None:
        self._kv = kv
        self._memory_bytes_max = memory_bytes
        self._domains: dict[bytes, _Domain] = {}  # The least recently used first.
        self._memory_bytes = 0

    def place(self, batch: Sequence[Sketched], overlap_min: float) -> tuple[list[Near | None], dict[bytes, bytes]]:
        """The nearest earlier sketch of each, and the changes to write, after which these sketches are found too.

        Those before a sketch in the batch count as earlier. A sketch that is stored already is not inserted again.
        """
        used = {one.domain for one in batch}
        self._load(used)
        words = as_words([one.sketch for one in batch])
        matches = self._nearest(batch, words, overlap_min)
        fresh: dict[bytes, list[int]] = {}
        # A sketch with an overlap of 1 adds nothing: whatever is near to it is as near to the one that it repeats.
        for place, match in enumerate(matches):
            if match is None or match.overlap < 1:
                fresh.setdefault(batch[place].domain, []).append(place)
        changes: dict[bytes, bytes] = {}
        for key, places in fresh.items():
            domain = self._domains[key]
            if domain.sketches.count + len(places) <= DOMAIN_SKETCHES_MAX:
                chosen = words[places] if len(places) > 1 else words[places[0] : places[0] + 1]
                changes.update(domain.insert([batch[place] for place in places], chosen))
        self._evict(used)
        return matches, changes

    def append(self, batch: Sequence[Sketched]) -> dict[bytes, bytes]:
        """The changes to write, after which these sketches, which another index had, are found here too."""
        used = {one.domain for one in batch}
        self._load(used)
        of_domain: dict[bytes, list[Sketched]] = {}
        for one in batch:
            of_domain.setdefault(one.domain, []).append(one)
        changes: dict[bytes, bytes] = {}
        for key, members in of_domain.items():
            changes.update(self._domains[key].insert(members, as_words([one.sketch for one in members])))
        self._evict(used)
        return changes

    def told(self, scan: Scan) -> Iterator[Sketched]:
        """All sketches of the present format, those of a domain in the order of their arrival."""
        for key, chunk in scan(b"n"):
            if key[DOMAIN_KEY_BYTES] == FORMAT:
                for at in range(0, len(chunk), _ENTRY_BYTES):
                    end = at + SKETCH_BYTES
                    yield Sketched(key[:DOMAIN_KEY_BYTES], chunk[at:end], chunk[end : at + _ENTRY_BYTES])

    def without(self, domain: bytes, gone: set[bytes], scan: Scan) -> tuple[dict[bytes, bytes], list[bytes], int]:
        """What to write and what to delete, so the sketches with these references are gone from a domain, and how many
        they are. The others keep their order. Call `forget` once it is written."""
        stored = list(scan(domain))
        before = [one for one in self.told(lambda _: iter(stored)) if one.domain == domain]
        kept = [one.sketch + one.reference for one in before if one.reference not in gone]
        if len(kept) == len(before):
            return {}, [], 0
        chunks = [b"".join(kept[at : at + CHUNK_ENTRIES]) for at in range(0, len(kept), CHUNK_ENTRIES)]
        written = {_chunk_key(domain, number): chunk for number, chunk in enumerate(chunks)}
        # Sketches of earlier versions go too: nobody reads them, and nobody can tell whose they are.
        return written, [key for key, _ in stored if key not in written], len(before) - len(kept)

    def forget(self) -> None:
        """Drop the copies in memory, which may be ahead of the store after a failed write."""
        self._domains.clear()
        self._memory_bytes = 0

    def _load(self, keys: set[bytes]) -> None:
        """Read these domains into memory, and mark them as used last."""
        missing = []
        for key in keys:
            domain = self._domains.pop(key, None)
            if domain is None:
                missing.append(key)
            else:
                self._domains[key] = domain
        first_chunks = self._kv.get_many([_chunk_key(key, 0) for key in missing]) if missing else []
        for key, chunk in zip(missing, first_chunks, strict=True):
            self._domains[key] = _Domain(key, self._chunks(key, chunk))

    def _chunks(self, key: bytes, first_chunk: bytes | None) -> list[bytes]:
        """All chunks of a domain: a chunk exists only when the one before it is full."""
        if not first_chunk or len(first_chunk) < _CHUNK_BYTES:
            return [first_chunk] if first_chunk else []
        # To scan costs less than half of asking for each key, which nobody knows in advance anyway.
        return [first_chunk, *(chunk for _, chunk in islice(self._kv.scan(_chunks_prefix(key)), 1, None))]

    def _evict(self, used: set[bytes]) -> None:
        """Count by how much the domains in use have grown. Beyond the limit, drop others, the least recently used
        first."""
        for key in used:
            domain = self._domains[key]
            self._memory_bytes += domain.sketches.size_bytes - domain.size_bytes
            domain.size_bytes = domain.sketches.size_bytes
        while self._memory_bytes > self._memory_bytes_max and len(self._domains) > len(used):
            oldest = self._domains.pop(next(iter(self._domains)))
            self._memory_bytes -= oldest.size_bytes

    def _nearest(self, batch: Sequence[Sketched], words: Words, overlap_min: float) -> list[Near | None]:
        matches = nearest([self._domains[one.domain].sketches for one in batch], words, overlap_min)
        stored = {
            place: _chunk_key(batch[place].domain, match.ordinal // CHUNK_ENTRIES)
            for place, match in enumerate(matches)
            if match is not None and match.ordinal >= 0
        }
        keys = list(set(stored.values()))
        chunks = dict(zip(keys, self._kv.get_many(keys), strict=True)) if keys else {}
        return [
            match and Near(match.overlap, self._reference(batch, match, chunks.get(stored.get(place, b""))))
            for place, match in enumerate(matches)
        ]

    @staticmethod
    def _reference(batch: Sequence[Sketched], match: Match, chunk: bytes | None) -> bytes:
        if match.ordinal < 0:
            return batch[match.place].reference
        if chunk is None:
            raise EngineError("The near-duplicate index has lost a part.", "Was the store written by two processes?")
        end = (match.ordinal % CHUNK_ENTRIES + 1) * _ENTRY_BYTES
        return chunk[end - REFERENCE_BYTES : end]


def _chunks_prefix(domain: bytes) -> bytes:
    return domain + bytes((FORMAT,))


def _chunk_key(domain: bytes, number: int) -> bytes:
    return _chunks_prefix(domain) + number.to_bytes(4, "big")
