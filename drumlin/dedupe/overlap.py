"""How much two texts overlap, as far as their sketches tell (`drumlin.dedupe.sketches`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from drumlin.dedupe.sketches import BANDS_AT, COLUMNS, COLUMNS_AT, ROWS_AT, SIZE_AT, SLOTS, TINY, Words

OVERLAP_MIN = 0.9
"""Texts whose overlap is estimated to be so much or more are near-duplicates, unless another figure is given."""

_SIZE_MASK = np.uint64(0xFFFF)
# A quarter of the bands, all of whose bits are the same, gives the highest bit of its place.
_LOWEST = np.uint64(0x0001_0001_0001_0001)
_HIGHEST = np.uint64(0x8000_8000_8000_8000)


def _expected() -> npt.NDArray[np.float64]:
    """By the number of columns that differ: how many slots do, most likely. From half of the columns on, any number."""
    shares = np.minimum(2 * np.arange(COLUMNS + 1) / COLUMNS, 1 - 1 / COLUMNS)
    expected: npt.NDArray[np.float64] = -COLUMNS / 2 * np.log(1 - shares)
    return expected


_DIFFERENT = _expected()


def _shingles(slots: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How many shingles fill so many slots, most likely: some fall into the same one."""
    expected: npt.NDArray[np.float64] = -SLOTS * np.log1p(-np.minimum(slots, SLOTS - 1) / SLOTS)
    return expected


def bands_agreeing(bands: Words, others: Words) -> Words:
    """Not zero for the pairs that agree in at least one of their four bands: all bits of a quarter are the same."""
    different = bands ^ others
    agreeing = different - _LOWEST
    np.invert(different, out=different)
    agreeing &= different
    agreeing &= _HIGHEST
    return agreeing


def overlaps(ones: Words, others: Words) -> npt.NDArray[np.float64]:
    """The estimated overlap of each pair of sketches, 0 to 1."""
    one_sizes, other_sizes = ((words[:, SIZE_AT] & _SIZE_MASK).astype(np.float64) for words in (ones, others))
    columns = np.bitwise_count(ones[:, COLUMNS_AT:] ^ others[:, COLUMNS_AT:]).sum(axis=1, dtype=np.int64)
    rows = np.bitwise_count(ones[:, ROWS_AT] ^ others[:, ROWS_AT])
    # At least as many slots differ as rows do, and as the sizes do.
    different = np.maximum(np.maximum(_DIFFERENT.take(columns), rows), np.abs(one_sizes - other_sizes))
    union = _shingles((one_sizes + other_sizes + different) / 2)
    estimate = (_shingles(one_sizes) + _shingles(other_sizes)) / np.maximum(union, 1) - 1
    estimate = np.clip(estimate, 0, 1)
    tiny = np.minimum(one_sizes, other_sizes) < TINY
    same = (ones[:, BANDS_AT] == others[:, BANDS_AT]) & (one_sizes == other_sizes)
    found: npt.NDArray[np.float64] = np.where(tiny, np.where(same, 1.0, 0.0), estimate)
    return found
