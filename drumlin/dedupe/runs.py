"""The sketches of one domain in memory, arranged so that few need comparing to find those that agree in a band.

The latest sketches (the tail) are looked at in every search. The earlier ones are in runs, at most two. A run has four
tables, one for each band of 16 bits, that list the sketches by the lowest bits of that band: those that agree in it are
in the same list. With a million sketches the lists of a search hold about 60, and the tail 250 on average. Where
thousands of pages share a band, made from one template, the latest `LIST_MAX` of each list are looked at.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from drumlin.dedupe.sketches import BANDS_AT, WORDS, Words

TAIL_MAX = 512
"""A longer tail becomes a run."""

RUN_RATIO = 16
"""The second run joins the first when it is more than this fraction of it: rebuilding stays below 2 µs an insert."""

CAPACITY_MIN = 16
"""Sketches that there is room for in the smallest domain; the room doubles as needed."""

DOMAIN_BYTES = 800
"""What a domain takes in memory, roughly, beside its arrays."""

LIST_MAX = 512
"""Of one list of a table so many are looked at, the latest: it bounds what a search costs."""

TABLES = 4
TABLE_BITS = 16
PREFIX_BITS_MIN = 4

Ordinals = npt.NDArray[np.int32]


class Run:
    """Four tables over the sketches from one ordinal (inclusive) to another (exclusive)."""

    def __init__(self, bands: Words, begin: int, end: int) -> None:
        self.end = end
        # About four sketches to a list, as long as 16 bits can tell that many lists apart.
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
        """The ordinals that each table lists with these bands."""
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

    def __init__(self, sketches: Words) -> None:
        self.count = len(sketches)
        self._sketches = np.empty((max(CAPACITY_MIN, 1 << self.count.bit_length()), WORDS), np.uint64)
        self._sketches[: self.count] = sketches
        # The bands are searched, and are together for that.
        self._bands = self._sketches[:, BANDS_AT].copy()
        self._runs: list[Run] = []
        self._tail_begin = 0
        if self.count > TAIL_MAX:
            self._arrange()
        self.size_bytes = self._count_bytes()

    def sketches(self, ordinals: Ordinals) -> Words:
        return self._sketches[ordinals]

    def bands(self, ordinals: Ordinals) -> Words:
        return self._bands[ordinals]

    def tail(self) -> tuple[Words, int]:
        """The bands of the latest sketches, which every search looks at, and the ordinal of the first of them."""
        return self._bands[self._tail_begin : self.count], self._tail_begin

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
            room = np.empty(((1 << count.bit_length()) - len(self._sketches), WORDS), np.uint64)
            self._sketches = np.concatenate((self._sketches, room))
            self._bands = np.concatenate((self._bands, room[:, BANDS_AT]))
            self.size_bytes = self._count_bytes()
        self._sketches[self.count : count] = sketches
        self._bands[self.count : count] = sketches[:, BANDS_AT]
        self.count = count
        if count - self._tail_begin > TAIL_MAX:
            self._arrange()
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
