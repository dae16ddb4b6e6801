"""The sketch of a text: 88 bytes. From two of them the overlap of the texts is estimated, and they are used to find
candidates for that comparison.

A word is a run of letters, digits and underscores; each Chinese, Japanese or Korean character is a word. A shingle is
three words that follow each other. A text is the *set* of its shingles: how often each occurs does not matter. The
overlap of two texts is the Jaccard index of their sets: the shared shingles, divided by all.

Every shingle is hashed into one of 16,384 slots. Slots whose numbers end in the same 9 bits form a column, slots whose
numbers begin with the same 6 bits form a row. A sketch keeps of the filled slots, in words of 64 bits:

- `columns` (8 words): for each column, whether the number of filled slots in it is odd. The number of bits in which the
  columns of two texts differ tells how many slots only one of them fills ("odd sketch", Mitzenmacher, Pagh and Pham
  2014). Every shingle has an influence, so the estimate is nearly exact for short texts and off by 0.01 for long ones;
  a MinHash of this size is off by 0.03.
- `rows` (1 word): the same for rows. These are fewer bits, but independent ones: among thousands of pages made from one
  template, differences cancel out by chance in the columns of some pair, but not in its rows as well.
- `bands` (1 word): four numbers of 16 bits, each made from the lowest filled slots of eight ranges. Texts with an
  overlap J agree in such a number with probability J^8. Texts that overlap by 0.95 agree in at least one of the four in
  99 % of cases, texts that overlap by a half in 2 %. Pages that agree in one of them are candidates.
- `size` (1 word): how many slots are filled, and the number of this format.

A text with fewer than `TINY` shingles overlaps another by 0.95 or more only if both are the same. For these, the bands
are a hash of the whole set, and two texts are near only if the hashes are equal. An estimate would find false matches
among thousands of one-line pages.

Everything is integer arithmetic of fixed width, in little-endian order and with fixed constants, so a text has the same
sketch in every process, on every machine and in every version. If you change what a sketch means, change `FORMAT`: then
stored sketches are not read any more, and new ones are made from the texts in the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

FORMAT = 1
"""The number of this format. Sketches of another format cannot be compared with these."""
SKETCH_FORMAT = b"%d" % FORMAT
"""The same number as a crawl notes it in its engine."""

TEXT_BYTES_MAX = 16_384
"""A sketch is made from this much of a text; two pages seldom differ only after it."""

GROUP_BYTES_MAX = 262144
"""Texts are worked on in groups of about this size, so the arrays between the steps stay in the CPU's cache."""

GROUP_TEXTS_MAX = 64
"""How many texts a group may have, since each needs a table of slots (16 KB)."""

TINY = 19
"""With fewer shingles than this, a single different one makes the overlap less than 0.95."""

WORD_BYTES_MAX = 64
"""Of a longer word, only this many bytes and its last bytes count."""

ROWS = 64
COLUMNS = 512
SLOT_BITS = 14
SLOTS = 1 << SLOT_BITS
BANDS = 4
RANGES = 32
RANGE_SLOTS = SLOTS // RANGES

WORDS = 11
"""Words of a sketch: bands, size and format, rows, columns."""
BANDS_AT, SIZE_AT, ROWS_AT, COLUMNS_AT = 0, 1, 2, 3
SKETCH_BYTES = WORDS * 8

Words = npt.NDArray[np.uint64]
_Bytes = npt.NDArray[np.uint8]
_Flags = npt.NDArray[np.bool_]
_Places = npt.NDArray[np.int64]

# Stands between two texts and after the last. It ends a word, and eight bytes can be read from any place in a word.
_GAP = b"\0" * 8
_WINDOW_BYTES = 8
# A shingle is one word and so many more after it.
_INNER = 2
# For each length of a word, how far to shift a window of eight bytes to remove what follows the word.
_SHIFTS = np.array([64 - 8 * length for length in range(_WINDOW_BYTES + 1)], np.uint64)
_MULTIPLIER_1 = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_2 = np.uint64(0xD6E8FEB86659FD93)
_MULTIPLIER_3 = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)
_SLOT_SHIFT = np.uint64(64 - SLOT_BITS)
_LOWEST_BITS = np.uint64(0x0101010101010101)
_FORMAT_SHIFT = 56
_SIZE_MASK = np.uint64(0xFFFF)
_BAND_SHIFT = np.uint64(48)
# Odd, and different for each place in a band, so the order of the values matters.
_BAND_FACTORS = (np.arange(RANGES // BANDS, dtype=np.uint64) * np.uint64(2) + np.uint64(3)) * _MULTIPLIER_3
# Not letters: characters of two bytes that begin with C2 (no-break space, «, ©) and characters of three bytes that
# begin with E2 (quotation marks, dashes, symbols).
_SYMBOLS_OF_TWO = 0xC2
_SYMBOLS_OF_THREE = 0xE2
_WIDE_LEAD_MIN = 0xE3
"""A character whose first byte is this or higher is a word by itself (Chinese, Japanese, Korean)."""


def digest(body: bytes) -> bytes:
    """The sha256 of a body: equal digests mean equal bodies."""
    return hashlib.sha256(body).digest()


def sketches(texts: Sequence[bytes]) -> list[bytes | None]:
    """The sketch of each UTF-8 text, or None where it has fewer than three words.

    A text's sketch does not depend on what else is in the batch; batches of 16 to 64 are several times cheaper than
    single texts.
    """
    found: list[bytes | None] = []
    group: list[bytes] = []
    group_bytes = 0
    for text in texts:
        group.append(text[:TEXT_BYTES_MAX])
        group_bytes += len(group[-1])
        if group_bytes >= GROUP_BYTES_MAX or len(group) == GROUP_TEXTS_MAX:
            found += _group_sketches(group)
            group, group_bytes = [], 0
    return found + _group_sketches(group) if group else found


def readable(sketch: bytes | None) -> bool:
    """Whether this is a sketch of the present format."""
    return sketch is not None and len(sketch) == SKETCH_BYTES and sketch[SIZE_AT * 8 + 7] == FORMAT


def _group_sketches(texts: list[bytes]) -> list[bytes | None]:
    source = b"".join([_GAP, _GAP.join(texts), _GAP])
    hashes, begins, ends = _shingles(source, texts)
    # One table for each text, and one more for the shingles that begin in one text and end in the next.
    table = np.zeros((len(texts) + 1) * SLOTS, np.uint8)
    slots = hashes >> _SLOT_SHIFT
    slots += _tables(begins, ends)[: len(slots)]
    table[slots.view(np.int64)] = 1
    made = _from_table(table[:-SLOTS].reshape(len(texts), SLOTS))
    sizes = (made[:, SIZE_AT] & _SIZE_MASK).tolist()
    for number, size in enumerate(sizes):
        if size < TINY:
            shingles = np.unique(hashes[begins[number] : max(begins[number], ends[number] - _INNER)])
            made[number, BANDS_AT] = xxh3_64_intdigest(shingles.astype("<u8").tobytes())
    packed = made.astype("<u8", copy=False).tobytes()
    places = range(0, len(packed) + 1, SKETCH_BYTES)
    return [packed[at:end] if size else None for (at, end), size in zip(pairwise(places), sizes, strict=True)]


def _shingles(source: bytes, texts: list[bytes]) -> tuple[Words, _Places, _Places]:
    """The hashes of all shingles, and for each text the numbers of its first word and of the word after its last."""
    buffer = np.frombuffer(source, np.uint8)
    starts, word_ends = _words(source, buffer)
    hashes = _word_hashes(buffer, starts, word_ends)
    text_ends = np.cumsum([len(text) + len(_GAP) for text in texts])
    last = np.searchsorted(starts, text_ends)
    first = np.concatenate(([0], last[:-1]))
    if len(hashes) <= _INNER:
        return hashes[:0], first, last
    mixed = hashes[:-2] * _MULTIPLIER_1
    mixed += hashes[1:-1] * _MULTIPLIER_3
    mixed += hashes[2:]
    mixed ^= mixed >> _HALF
    mixed *= _MULTIPLIER_2
    return mixed, first, last


def _tables(begins: _Places, ends: _Places) -> Words:
    """For each word, where the table of its text begins. For the last two words of a text, with which no shingle of it
    begins, it is the last table, which is thrown away."""
    tables = np.arange(0, len(ends) * SLOTS, SLOTS, dtype=np.uint64).repeat(ends - begins)
    last = ends[ends > begins]
    nobody = np.uint64(len(ends) * SLOTS)
    tables[last - 1] = nobody
    tables[np.maximum(last - _INNER, begins[ends > begins])] = nobody
    return tables


def _words(source: bytes, buffer: _Bytes) -> tuple[_Places, _Places]:
    """The places where words begin and where they end. `buffer` has the same bytes as an array."""
    outside = _outside(buffer)
    for lead, further in ((_SYMBOLS_OF_TWO, 1), (_SYMBOLS_OF_THREE, 2)):
        # This test is far quicker than comparing all bytes, and many texts have no such character.
        if lead in source:
            symbols = buffer == lead
            outside |= symbols
            for after in range(1, further + 1):
                outside[after:] |= symbols[:-after]
    if source.isascii() or not (wide := buffer >= _WIDE_LEAD_MIN).any():
        edges = np.flatnonzero(outside[1:] != outside[:-1])
        edges += 1
        return np.ascontiguousarray(edges[0::2]), np.ascontiguousarray(edges[1::2])
    # A wide character begins a word, and the word before it ends.
    inside = ~outside
    apart = wide | outside
    starts = np.flatnonzero(inside[1:] & (~inside[:-1] | apart[1:])) + 1
    return starts, np.flatnonzero(inside[:-1] & apart[1:]) + 1


def _outside(buffer: _Bytes) -> _Flags:
    """Which bytes are not part of a word: control characters, space and punctuation of ASCII. Comparing the whole array
    with a few ranges is far quicker than looking each byte up in a table."""
    outside = buffer < ord("0")
    outside |= buffer - np.uint8(ord(":")) <= ord("@") - ord(":")
    # Both [ \ ] ^ _ and { | } ~ DEL. The underscore counts as a letter, see below; the grave accent is tested by
    # itself.
    outside |= (buffer | np.uint8(0x20)) - np.uint8(ord("{")) <= 0x7F - ord("{")
    outside |= buffer == ord("`")
    outside &= buffer != ord("_")
    return outside


def _word_hashes(buffer: _Bytes, starts: _Places, ends: _Places) -> Words:
    """A hash of each word: of its first eight bytes, and for the few longer words of the further bytes too."""
    windows: Words = np.ndarray((len(buffer) - 7,), dtype="<u8", buffer=buffer, strides=(1,))
    lengths = ends - starts
    # Indexed, because `take` would copy all windows first.
    hashes = windows[starts]
    hashes <<= _SHIFTS.take(lengths, mode="clip")
    hashes *= _MULTIPLIER_1
    longer = np.flatnonzero(lengths > _WINDOW_BYTES)
    for at in range(_WINDOW_BYTES, WORD_BYTES_MAX + 1, _WINDOW_BYTES):
        if not len(longer):
            break
        part = hashes.take(longer)
        part ^= part >> _HALF
        part += windows[np.minimum(starts.take(longer) + at, ends.take(longer) - _WINDOW_BYTES)]
        part *= _MULTIPLIER_2
        hashes[longer] = part
        longer = longer[lengths.take(longer) > at + _WINDOW_BYTES]
    hashes ^= hashes >> _HALF
    hashes *= _MULTIPLIER_2
    return hashes


def _from_table(table: _Bytes) -> Words:
    """Sketches of texts; `table` has a row of slots for each. The caller replaces the bands of tiny texts."""
    count = len(table)
    made = np.empty((count, WORDS), np.uint64)
    slots = table.view("<u8")
    columns = np.bitwise_xor.reduce(slots.reshape(count, -1, COLUMNS // 8), axis=1).view(np.uint8)
    made[:, COLUMNS_AT:] = np.packbits(columns, axis=1).view("<u8")
    # A word has eight slots, one byte each. A row has 32 such words, so no sum of bytes overflows.
    in_rows = np.add.reduce(slots.reshape(count, ROWS, -1), axis=2)
    odd = np.bitwise_count(in_rows & _LOWEST_BITS) & np.uint8(1)
    made[:, ROWS_AT] = np.packbits(odd, axis=1).view("<u8").ravel()
    sizes = in_rows.view(np.uint8).reshape(count, -1).sum(axis=1, dtype=np.uint64)
    made[:, SIZE_AT] = sizes | np.uint64(FORMAT << _FORMAT_SHIFT)
    made[:, BANDS_AT] = _bands(table)
    return made


def _bands(table: _Bytes) -> Words:
    # As booleans, because numpy's `argmax` then stops at the first one that is true.
    ranges = table.view(np.bool_).reshape(-1, RANGE_SLOTS)
    lowest = ranges.argmax(axis=1)
    filled = ranges[np.arange(len(ranges)), lowest].reshape(-1, RANGES)
    lowest = lowest.reshape(-1, RANGES) + np.arange(1, SLOTS, RANGE_SLOTS)
    sparse = np.flatnonzero(~filled.all(axis=1))
    if len(sparse):
        lowest[sparse] = _lent(lowest[sparse], filled[sparse])
    mixed = lowest.astype(np.uint64)
    mixed *= _MULTIPLIER_1
    mixed ^= mixed >> _HALF
    sums: Words = (mixed.reshape(-1, BANDS, RANGES // BANDS) * _BAND_FACTORS).sum(axis=2, dtype=np.uint64)
    sums *= _MULTIPLIER_2
    bands: Words = (sums >> _BAND_SHIFT).astype("<u2").view("<u8").ravel()
    return bands


def _lent(lowest: _Places, filled: _Flags) -> _Places:
    """The lowest slots, where an empty range takes that of the next range that has one; after the last range comes the
    first."""
    places = np.where(filled, np.arange(RANGES), 2 * RANGES)
    twice = np.concatenate((places, np.minimum(places + RANGES, 2 * RANGES)), axis=1)
    lenders = np.minimum.accumulate(twice[:, ::-1], axis=1)[:, ::-1][:, :RANGES] % RANGES
    return np.take_along_axis(lowest, lenders, axis=1)
