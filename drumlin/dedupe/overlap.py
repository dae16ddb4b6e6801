"""Estimates from two sketches how much their texts overlap; `drumlin.dedupe.sketches` explains the sketches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from drumlin.dedupe.sketches import BANDS_AT, COLUMNS, COLUMNS_AT, ROWS_AT, SIZE_AT, SLOTS, TINY, Words

OVERLAP_MIN = 0.9
"""Texts with at least this estimated overlap are near-duplicates, unless the crawl has another setting."""

_SIZE_MASK = np.uint64(0xFFFF)
# The four bands of a sketch are the quarters of one word. `bands_agreeing` finds a quarter that is zero in the
# difference of two words by the usual trick: subtracting 1 from it borrows, which sets its highest bit.
_LOWEST = np.uint64(0x0001_0001_0001_0001)
_HIGHEST = np.uint64(0x8000_8000_8000_8000)


def _expected() -> npt.NDArray[np.float64]:
    """For each number of columns that differ, how many slots most likely differ. If half of the columns or more differ,
    any number of slots may, so the table stops growing there."""
    shares = np.minimum(2 * np.arange(COLUMNS + 1) / COLUMNS, 1 - 1 / COLUMNS)
    expected: npt.NDArray[np.float64] = -COLUMNS / 2 * np.log(1 - shares)
    return expected


_DIFFERENT = _expected()


def _shingles(slots: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How many shingles most likely fill so many slots. It is more than the number of slots, since some shingles fall
    into the same slot."""
    expected: npt.NDArray[np.float64] = -SLOTS * np.log1p(-np.minimum(slots, SLOTS - 1) / SLOTS)
    return expected


def bands_agreeing(bands: Words, others: Words) -> Words:
    """Not zero for the pairs that agree in at least one of their four bands, that is in a quarter of the word."""
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
    # There are at least as many different slots as different rows, and at least as many as the sizes differ by.
    different = np.maximum(np.maximum(_DIFFERENT.take(columns), rows), np.abs(one_sizes - other_sizes))
    # Slots in both or either: the sizes count shared slots twice, and `different` counts those of only one. The shared
    # shingles are those of both texts together minus the union, so shared / union is the expression below.
    union = _shingles((one_sizes + other_sizes + different) / 2)
    estimate = (_shingles(one_sizes) + _shingles(other_sizes)) / np.maximum(union, 1) - 1
    estimate = np.clip(estimate, 0, 1)
    tiny = np.minimum(one_sizes, other_sizes) < TINY
    same = (ones[:, BANDS_AT] == others[:, BANDS_AT]) & (one_sizes == other_sizes)
    found: npt.NDArray[np.float64] = np.where(tiny, np.where(same, 1.0, 0.0), estimate)
    return found
