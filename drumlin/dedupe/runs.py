"""The fingerprints of one domain in memory, arranged so that few need comparing to find those within 3 bits.

The latest fingerprints (the tail) are candidates for every search. The earlier ones are in runs, at most two. A run has
four tables, one for each 16 bits of a fingerprint, that list the fingerprints by the lowest of these bits. Two
fingerprints that differ in at most three bits agree on at least one of the four, so they meet in some table: the
candidates miss none. With a million fingerprints they are about 60 of the runs and 500 of the tail.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

TAIL_FINGERPRINTS_MAX = 1_024
"""A longer tail becomes a run."""

RUN_RATIO = 16
"""The second run joins the first when it is more than this fraction of it: rebuilding stays below 2 µs an insert."""

CAPACITY_MIN = 16
"""Fingerprints that there is room for in the smallest domain; the room doubles as needed."""

DOMAIN_BYTES = 800
"""What a domain takes in memory, roughly, beside its arrays."""

TABLES = 4
TABLE_BITS = 16
PREFIX_BITS_MIN = 4

Simhashes = npt.NDArray[np.uint64]
Ordinals = npt.NDArray[np.int32]


class Run:
    """Four tables over the fingerprints from one ordinal (inclusive) to another (exclusive)."""

    def __init__(self, simhashes: Simhashes, begin: int, end: int) -> None:
        self.end = end
        # About four fingerprints to a list, as long as 16 bits can tell that many lists apart.
        bits = min(max((end - begin).bit_length() - 2, PREFIX_BITS_MIN), TABLE_BITS)
        self._mask = (1 << bits) - 1
        quarters = simhashes[begin:end].astype("<u8", copy=False).view("<u2").reshape(-1, TABLES)
        starts = np.zeros(TABLES * (1 << bits) + 1, np.int32)
        ordinals = np.empty((TABLES, end - begin), np.int32)
        for table in range(TABLES):
            lists = quarters[:, table] & np.uint16(self._mask)
            ordinals[table] = np.argsort(lists, kind="stable")
            starts[1 + (table << bits) : 1 + (table + 1 << bits)] = np.bincount(lists, minlength=1 << bits)
        ordinals += np.int32(begin)
        # Memoryviews give plain integers and slices several times faster than arrays do.
        self._ordinals = ordinals.ravel().data
        self._starts = np.cumsum(starts, dtype=np.int32).data

    @property
    def size_bytes(self) -> int:
        return self._ordinals.nbytes + self._starts.nbytes

    def lists(self, simhash: int) -> list[memoryview]:
        """The ordinals that each table lists with this SimHash."""
        starts, ordinals, mask = self._starts, self._ordinals, self._mask
        size = mask + 1
        first = simhash & mask
        second = (simhash >> 16 & mask) + size
        third = (simhash >> 32 & mask) + 2 * size
        fourth = (simhash >> 48 & mask) + 3 * size
        return [
            ordinals[starts[first] : starts[first + 1]],
            ordinals[starts[second] : starts[second + 1]],
            ordinals[starts[third] : starts[third + 1]],
            ordinals[starts[fourth] : starts[fourth + 1]],
        ]


class DomainFingerprints:
    """The distinct SimHashes of a domain in order of arrival; the place of each is its ordinal."""

    def __init__(self, simhashes: Simhashes) -> None:
        self.count = len(simhashes)
        self._simhashes = np.empty(max(CAPACITY_MIN, 1 << self.count.bit_length()), np.uint64)
        self._simhashes[: self.count] = simhashes
        self._runs: list[Run] = []
        self._tail_begin = 0
        self.size_bytes = DOMAIN_BYTES + self._simhashes.nbytes
        if self.count > TAIL_FINGERPRINTS_MAX:
            self._arrange()

    @property
    def arranged(self) -> bool:
        """Some of the fingerprints are in runs: each search has candidates of its own. Else all are, for every one."""
        return bool(self._runs)

    def candidates(self, simhash: int) -> list[Simhashes]:
        """The SimHashes to compare with this one, those of the tail first. One may occur more than once."""
        tail = self._simhashes[self._tail_begin : self.count]
        return [tail, self._simhashes.take(self._listed(simhash))] if self._runs else [tail]

    def ordinal(self, simhash: int, place: int) -> int:
        """The ordinal of the candidate at this place."""
        tail_length = self.count - self._tail_begin
        return self._tail_begin + place if place < tail_length else int(self._listed(simhash)[place - tail_length])

    def _listed(self, simhash: int) -> Ordinals:
        lists: list[memoryview] = []
        for run in self._runs:
            lists += run.lists(simhash)
        return np.frombuffer(b"".join(lists), np.int32)

    def append(self, simhash: int) -> None:
        if self.count == len(self._simhashes):
            self.size_bytes += self._simhashes.nbytes
            self._simhashes = np.concatenate((self._simhashes, np.empty_like(self._simhashes)))
        self._simhashes[self.count] = simhash
        self.count += 1
        if self.count - self._tail_begin > TAIL_FINGERPRINTS_MAX:
            self._arrange()

    def _arrange(self) -> None:
        """Move the tail into the second run, or everything into the first when the second would be large."""
        first_end = self._runs[0].end if self._runs else 0
        if (self.count - first_end) * RUN_RATIO > first_end:
            self._runs = [Run(self._simhashes, 0, self.count)]
        else:
            self._runs = [self._runs[0], Run(self._simhashes, first_end, self.count)]
        self._tail_begin = self.count
        self.size_bytes = DOMAIN_BYTES + self._simhashes.nbytes + sum(run.size_bytes for run in self._runs)
