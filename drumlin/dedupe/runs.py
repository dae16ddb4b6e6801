"""The sketches of one domain in memory, arranged so a search for those that agree in a band compares only a few.

The latest sketches (the tail) are looked at in every search. The earlier ones are in at most two runs. A run has four
tables, one for each band of 16 bits. A table lists the sketches by the lowest bits of that band, so sketches that agree
in the band are in the same list. With a million sketches, the lists of a search hold about 60 sketches together, and
the tail 250 on average. If thousands of pages made from one template share a band, only the latest `LIST_MAX` of each
list are looked at.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from drumlin.dedupe.sketches import BANDS_AT, WORDS, Words

TAIL_MAX = 512
"""A tail with more sketches becomes a run."""

RUN_RATIO = 16
"""When the second run is larger than this fraction of the first, both become one run. So rebuilding takes less than
2 µs for each insert."""

CAPACITY_MIN = 16
"""How many sketches the smallest domain has room for; the room doubles when it is full."""

DOMAIN_BYTES = 800
"""How much memory a domain takes beside its arrays, roughly."""

LIST_MAX = 512
"""How many sketches of one list are looked at, the latest ones. It bounds the cost of a search."""

TABLES = 4
TABLE_BITS = 16
PREFIX_BITS_MIN = 4

Ordinals = npt.NDArray[np.int32]

_NO_SKETCHES, _NO_BANDS = np.empty((0, WORDS), np.uint64), np.empty(0, np.uint64)


class Run:
    """Four tables over the sketches from one ordinal (inclusive) to another (exclusive)."""

    def __init__(self, bands: Words, begin: int, end: int) -> None:
        self.end = end
        # So many lists that each has about four sketches, as far as the 16 bits of a band allow.
        bits = min(max((end - begin).bit_length() - 2, PREFIX_BITS_MIN), TABLE_BITS)
        self._mask = (1 << bits) - 1
        quarters = bands[begin:end].astype("<u8", copy=False).view("<u2").reshape(-1, TABLES)
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

    def lists(self, bands: int) -> list[memoryview]:
        """The list of ordinals in each table that belongs to these bands."""
        starts, ordinals, mask = self._starts, self._ordinals, self._mask
        size = mask + 1
        first = bands & mask
        second = (bands >> 16 & mask) + size
        third = (bands >> 32 & mask) + 2 * size
        fourth = (bands >> 48 & mask) + 3 * size
        return [
            ordinals[starts[first] : starts[first + 1]],
            ordinals[starts[second] : starts[second + 1]],
            ordinals[starts[third] : starts[third + 1]],
            ordinals[starts[fourth] : starts[fourth + 1]],
        ]


class DomainSketches:
    """The distinct sketches of a domain in order of arrival; the place of each is its ordinal."""

    def __init__(self) -> None:
        self.count = 0
        # Many domains are looked up once and never get a sketch, so room is made for the first one.
        self._sketches = _NO_SKETCHES
        # A second copy of the bands, side by side, because searches read them all.
        self._bands = _NO_BANDS
        self._runs: list[Run] = []
        self._tail_begin = 0
        self.size_bytes = DOMAIN_BYTES

    def sketches(self, ordinals: Ordinals) -> Words:
        return self._sketches[ordinals]

    def bands(self, ordinals: Ordinals) -> Words:
        return self._bands[ordinals]

    def tail(self) -> tuple[Words, int]:
        """The bands of the latest sketches, which every search looks at, and the ordinal of the first one."""
        return self._bands[self._tail_begin : self.count], self._tail_begin

    @property
    def has_runs(self) -> bool:
        """Whether `lists` has anything to find."""
        return bool(self._runs)

    def lists(self, bands: int) -> list[memoryview]:
        """Ordinals of earlier sketches that may agree with these bands. One may occur more than once."""
        lists: list[memoryview] = []
        for run in self._runs:
            lists += run.lists(bands)
        return lists if sum(map(len, lists)) <= LIST_MAX else [one[-LIST_MAX:] for one in lists]

    def extend(self, sketches: Words) -> None:
        """Append sketches."""
        count = self.count + len(sketches)
        if count > len(self._sketches):
            self._make_room(max(CAPACITY_MIN, 1 << count.bit_length()))
        self._sketches[self.count : count] = sketches
        self._bands[self.count : count] = sketches[:, BANDS_AT]
        self.count = count
        if count - self._tail_begin > TAIL_MAX:
            self._arrange()
            self.size_bytes = self._count_bytes()

    def _make_room(self, capacity: int) -> None:
        sketches, bands = np.empty((capacity, WORDS), np.uint64), np.empty(capacity, np.uint64)
        if self.count:
            sketches[: self.count], bands[: self.count] = self._sketches[: self.count], self._bands[: self.count]
        self._sketches, self._bands = sketches, bands
        self.size_bytes = self._count_bytes()

    def _count_bytes(self) -> int:
        tables = sum(run.size_bytes for run in self._runs)
        return DOMAIN_BYTES + self._sketches.nbytes + self._bands.nbytes + tables

    def _arrange(self) -> None:
        """Move the tail into the second run, or everything into the first when the second would be large."""
        first_end = self._runs[0].end if self._runs else 0
        if (self.count - first_end) * RUN_RATIO > first_end:
            self._runs = [Run(self._bands, 0, self.count)]
        else:
            self._runs = [self._runs[0], Run(self._bands, first_end, self.count)]
        self._tail_begin = self.count
