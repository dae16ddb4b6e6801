"""Which fingerprint of a domain is nearest to a given one: searched in memory, kept in a key-value store.

In the store a domain is a list of chunks of `CHUNK_ENTRIES` entries, each a fingerprint and the reference of its
capture, in order of arrival; inserting rewrites the last chunk only. In memory there is a copy of the fingerprints of
the domains in use (`drumlin.dedupe.runs`), up to a number of bytes, read from the store when needed. A store of
buckets instead of a copy in memory would take four random reads and four writes per fingerprint, 40 to 80 µs.

Limits: one writer per store, since a copy in memory does not see what others write. Memory is about 28 bytes per
fingerprint in use. A domain keeps its first `DOMAIN_FINGERPRINTS_MAX` fingerprints, so the largest is bounded too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from drumlin.dedupe.runs import DomainFingerprints, Simhashes
from drumlin.errors import EngineError

DISTANCE_BITS_MAX = 3
"""Fingerprints that differ in at most so many bits are near-duplicates. The four tables of a run depend on it."""

CHUNK_ENTRIES = 32
"""Entries per value in the store: more make reading a domain cheaper, fewer make inserting cheaper."""

LOAD_CHUNKS_MAX = 4_096
"""Chunks of a domain read at a time (2 MB)."""

DOMAIN_FINGERPRINTS_MAX = 1 << 23
"""Fingerprints that one domain keeps (0.25 GB in memory while in use)."""

REFERENCE_BYTES = 8

_ENTRY_BYTES = 8 + REFERENCE_BYTES
_CHUNK_BYTES = CHUNK_ENTRIES * _ENTRY_BYTES


class KeyValue(Protocol):
    """Where an index lives. `put_many` is atomic and durable; what it put, the next `get_many` sees."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]: ...

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None: ...


class Fingerprint(NamedTuple):
    """A SimHash to look up and insert, under its domain's key, with the reference of its capture (8 bytes)."""

    domain: bytes
    simhash: int
    reference: bytes


class Match(NamedTuple):
    """The nearest earlier fingerprint: how many bits away, and whose it is."""

    distance: int
    reference: bytes


class _Domain:
    """A domain in memory: its fingerprints, and its last chunk, which the next insert extends."""

    def __init__(self, key: bytes, chunks: list[bytes]) -> None:
        self._key = key
        entries = np.frombuffer(b"".join(chunks), "<u8").reshape(-1, 2)
        self.fingerprints = DomainFingerprints(entries[:, 0])
        self.size_bytes = 0  # As counted by the index when it was last used.
        self._chunk = chunks[-1] if chunks else b""

    def insert(self, fingerprint: Fingerprint) -> tuple[bytes, bytes]:
        """Add a fingerprint; the answer is what to write."""
        chunk_number = self.fingerprints.count // CHUNK_ENTRIES
        chunk = self._chunk if len(self._chunk) < _CHUNK_BYTES else b""
        self._chunk = chunk + fingerprint.simhash.to_bytes(8, "little") + fingerprint.reference
        self.fingerprints.append(fingerprint.simhash)
        return _chunk_key(self._key, chunk_number), self._chunk


class NearIndex:
    """The fingerprints of all domains. What `place` says to write must be written before the next call, or `forget`."""

    def __init__(self, kv: KeyValue, memory_bytes_max: int) -> None:
        self._kv = kv
        self._memory_bytes_max = memory_bytes_max
        self._domains: dict[bytes, _Domain] = {}  # The least recently used first.
        self._memory_bytes = 0

    def place(self, fingerprints: Sequence[Fingerprint]) -> tuple[list[Match | None], dict[bytes, bytes]]:
        """The nearest earlier fingerprint of each, and what to write so that these are found from now on.

        Those given earlier in the batch count as earlier. A SimHash that is there already is not inserted again.
        """
        used = {fingerprint.domain for fingerprint in fingerprints}
        self._load(used)
        matches = self._nearest(fingerprints)
        changes: dict[bytes, bytes] = {}
        for fingerprint, match in zip(fingerprints, matches, strict=True):
            domain = self._domains[fingerprint.domain]
            if (match is None or match.distance > 0) and domain.fingerprints.count < DOMAIN_FINGERPRINTS_MAX:
                key, chunk = domain.insert(fingerprint)
                changes[key] = chunk
        self._evict(used)
        return matches, changes

    def forget(self) -> None:
        """Drop the copies in memory, which may be ahead of the store after a failed write."""
        self._domains.clear()
        self._memory_bytes = 0

    def _load(self, keys: set[bytes]) -> None:
        """Bring these domains into memory, and to the end of the order of use."""
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
        chunks = [first_chunk] if first_chunk else []
        while chunks and len(chunks[-1]) == _CHUNK_BYTES:
            more = min(2 * len(chunks), LOAD_CHUNKS_MAX)
            wanted = [_chunk_key(key, number) for number in range(len(chunks), len(chunks) + more)]
            found = [chunk for chunk in self._kv.get_many(wanted) if chunk]
            chunks += found
            if len(found) < more:
                break
        return chunks

    def _evict(self, used: set[bytes]) -> None:
        """Count what the domains in use have grown by, and drop those least recently used beyond the limit."""
        for key in used:
            domain = self._domains[key]
            self._memory_bytes += domain.fingerprints.size_bytes - domain.size_bytes
            domain.size_bytes = domain.fingerprints.size_bytes
        while self._memory_bytes > self._memory_bytes_max and self._domains:
            oldest = self._domains.pop(next(iter(self._domains)))
            self._memory_bytes -= oldest.size_bytes

    def _nearest(self, fingerprints: Sequence[Fingerprint]) -> list[Match | None]:
        """The nearest of the stored and of those before it in the batch, for each; a stored one if tied."""
        simhashes = np.array([fingerprint.simhash for fingerprint in fingerprints], np.uint64)
        matches: list[Match | None] = [None] * len(fingerprints)
        for position, match in self._stored_neighbours(fingerprints, simhashes) + _neighbours_in_batch(
            fingerprints, simhashes
        ):
            best = matches[position]
            if best is None or match.distance < best.distance:
                matches[position] = match
        return matches

    def _stored_neighbours(self, fingerprints: Sequence[Fingerprint], simhashes: Simhashes) -> list[tuple[int, Match]]:
        """Position in the batch and match, for every stored fingerprint near to one of the batch."""
        near = self._stored_near(fingerprints, simhashes)
        if not near:
            return []
        keys = [_chunk_key(fingerprints[position].domain, ordinal // CHUNK_ENTRIES) for position, ordinal, _ in near]
        chunks = dict(zip(keys, self._kv.get_many(keys), strict=True))
        return [
            (position, Match(distance, _reference(chunks[key], ordinal)))
            for (position, ordinal, distance), key in zip(near, keys, strict=True)
        ]

    def _stored_near(self, fingerprints: Sequence[Fingerprint], simhashes: Simhashes) -> list[tuple[int, int, int]]:
        """Position in the batch, ordinal in the domain and distance, of all pairs that are near."""
        parts: list[Simhashes] = []
        lengths: list[int] = []
        for key, simhash, _ in fingerprints:
            candidates = self._domains[key].fingerprints.candidates(simhash)
            parts += candidates
            lengths.append(sum(map(len, candidates)))
        distances = np.bitwise_count(np.concatenate(parts) ^ simhashes.repeat(lengths))
        hits = np.flatnonzero(distances <= DISTANCE_BITS_MAX)
        ends = np.cumsum(lengths)
        near = []
        for hit, position in zip(hits.tolist(), np.searchsorted(ends, hits, side="right").tolist(), strict=True):
            key, simhash, _ = fingerprints[position]
            place = hit - int(ends[position]) + lengths[position]
            near.append((position, self._domains[key].fingerprints.ordinal(simhash, place), int(distances[hit])))
        return near


def _neighbours_in_batch(fingerprints: Sequence[Fingerprint], simhashes: Simhashes) -> list[tuple[int, Match]]:
    """Position and match, for every fingerprint near to one that stands before it in the batch."""
    distances = np.bitwise_count(simhashes[:, None] ^ simhashes)
    later, earlier = np.nonzero(distances <= DISTANCE_BITS_MAX)
    return [
        (after, Match(int(distances[after, before]), fingerprints[before].reference))
        for after, before in zip(later.tolist(), earlier.tolist(), strict=True)
        if before < after and fingerprints[before].domain == fingerprints[after].domain
    ]


def _chunk_key(domain: bytes, number: int) -> bytes:
    return domain + number.to_bytes(4, "big")


def _reference(chunk: bytes | None, ordinal: int) -> bytes:
    if chunk is None:
        raise EngineError("The near-duplicate index has lost a part.", "Was the store written by two processes?")
    end = (ordinal % CHUNK_ENTRIES + 1) * _ENTRY_BYTES
    return chunk[end - REFERENCE_BYTES : end]
