"""An index for each segment: in which row groups of its tables a URL occurs.

Rows are in order of arrival, so without an index every row of every segment must be read to find one URL. An index has
four lists: the URLs of `fetches`, where its redirects lead, the URLs of `pages`, and the targets of `links`. Each is a
sorted array of 32-bit hashes of identities (so any spelling of a URL is found) beside an array of row groups. A hash
that two URLs share costs a look in vain: rows are compared with the URL itself.

Nobody who fetches pages makes an index. A coordinator of a running crawl makes them once somebody has asked about a URL
(`StoreReader.index_some`); until then, and for segments that still grow, segments are read through instead. So are
those that have far more than drumlin writes: a stranger's few kilobytes may unpack to hours of work.

Measured by `python -m bench.lookups` on two cores that others used too, with 10,000 pages and 300,000 links in a
segment: an index takes 0.2 s of CPU and 1.8 MB. To look for a URL's attempts takes 25 ms in a segment that is read
through, and for links to it 300 ms; with indexes a segment that has nothing of it takes well under 2 ms.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow.parquet as pq
import xxhash

from drumlin.store.tables.reading import batches
from drumlin.store.tables.schema import FETCHES, LINKS, PAGES
from drumlin.urls import identities, identity

INDEXES: Final = "tables/url-index"
INDEX_SUFFIX: Final = ".urls"
HEAD_BYTES: Final = 1024
FORM: Final = 1
"""The form of index that this version writes and reads; others are made again."""
COLUMNS: Final = {
    "fetches": (FETCHES, "url"),
    "redirects": (FETCHES, "redirect_to"),
    "pages": (PAGES, "url"),
    "links": (LINKS, "target"),
}
"""The lists of an index: the table and the column whose URLs each of them has."""
WINDOW_SIGMAS: Final = 8
"""Hashes are spread evenly, so the place of one is known within a few times the square root of their number."""

GROUPS_MAX: Final = 1 << 16
"""What a number of two bytes can tell apart."""
URLS_MAX: Final = 10_000_000
URL_BYTES_MAX: Final = 1_000_000_000
"""What one list is made of at most. Segments of nodes have 10,000 pages, mostly with less than a million links."""

_KEY: Final = np.dtype("<u4")
_GROUP: Final = np.dtype("<u2")
_ENTRY_BYTES: Final = _KEY.itemsize + _GROUP.itemsize


class Head(msgspec.Struct):
    """What stands first in an index: the versions of the files that it is about, and how long its lists are."""

    form: int
    versions: dict[str, str]
    lengths: dict[str, int]


def _bytes_of(head: Head) -> int:
    """How long the index of this head is."""
    return HEAD_BYTES + _ENTRY_BYTES * sum(head.lengths.values())


class Entries(NamedTuple):
    keys: Any
    groups: Any


def key_of(url: str) -> int:
    return xxhash.xxh32_intdigest(identity(url).encode())


def make_index(files: dict[str, BinaryIO], versions: dict[str, str]) -> bytes:
    """The index of a segment, whose tables are in these files; empty if it would be too large."""
    lists: dict[str, Entries] = {}
    for table in files:
        columns = {name: column for name, (owner, column) in COLUMNS.items() if owner == table}
        with pq.ParquetFile(files[table]) as file:
            for name, column in columns.items():
                entries = _entries(file, column)
                if entries is None:
                    return b""
                lists[name] = entries
    head = Head(FORM, versions, {name: len(lists[name].keys) for name in COLUMNS})
    arrays = (array.tobytes() for name in COLUMNS for array in lists[name])
    return msgspec.json.encode(head).ljust(HEAD_BYTES) + b"".join(arrays)


def _entries(file: Any, column: str) -> Entries | None:
    """The list of a column's URLs; None if they are too many, or too long."""
    if file.num_row_groups > GROUPS_MAX or file.metadata.num_rows > URLS_MAX:
        return None
    hashed, bytes_left = list[Any](), URL_BYTES_MAX
    for group in range(file.num_row_groups):
        parts = [np.array([], _KEY)]
        for batch in batches(file, group, [column], lambda: True):
            bytes_left -= batch.nbytes
            if bytes_left < 0:
                return None
            parts.append(_keys(batch.column(0)))
        hashed.append(np.unique(np.concatenate(parts)))
    keys = np.concatenate([*hashed, np.array([], _KEY)])
    numbers = np.repeat(np.arange(len(hashed), dtype=_GROUP), [len(part) for part in hashed])
    order = np.argsort(keys, kind="stable")
    return Entries(keys[order], numbers[order])


def _keys(values: Any) -> Any:
    urls = [url for url in values.unique().to_pylist() if url]
    return np.array([xxhash.xxh32_intdigest(url.encode()) for url in identities(urls)], _KEY)


class UrlIndex:
    """The index of one segment, in an open file. Only the few bytes that a question needs are read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._head = msgspec.json.decode(file.read(HEAD_BYTES), type=Head)

    def is_of(self, versions: dict[str, str]) -> bool:
        """Whether it is whole and about the files of these versions. It is written without waiting for the disk, so a
        power cut may leave a part of it."""
        head = self._head
        return head.form == FORM and head.versions == versions and self._file.seek(0, os.SEEK_END) == _bytes_of(head)

    def groups(self, name: str, key: int) -> list[int]:
        """The row groups in which a list of the index has this key."""
        start, length = HEAD_BYTES, self._head.lengths[name]
        for other in COLUMNS:
            if other == name:
                break
            start += self._head.lengths[other] * _ENTRY_BYTES
        first, last = self._places(start, length, key)
        groups = self._read(start + length * _KEY.itemsize, first, last, _GROUP)
        return sorted({int(group) for group in groups})

    def _places(self, start: int, length: int, key: int) -> tuple[int, int]:
        """Where the key stands in the sorted array at `start`."""
        expected = key * length >> 32
        reach = WINDOW_SIGMAS * (int(length**0.5) + 1)
        low, high = max(0, expected - reach), min(length, expected + reach)
        window = self._read(start, low, high, _KEY)
        if (low and window[0] >= key) or (high < length and window[-1] <= key):
            low, window = 0, self._read(start, 0, length, _KEY)
        first, last = np.searchsorted(window, [key], "left")[0], np.searchsorted(window, [key], "right")[0]
        return low + int(first), low + int(last)

    def _read(self, start: int, first: int, last: int, kind: Any) -> Any:
        self._file.seek(start + first * kind.itemsize)
        return np.frombuffer(self._file.read((last - first) * kind.itemsize), kind)
