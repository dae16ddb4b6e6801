"""Where records are after their WARC files were written anew: joined, or without some of their records.

Rows of `pages` and lines of an index name the file and the offset of a record, so they are written anew too
(`moved_rows.py`, `warc/cdxj.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Moved(NamedTuple):
    """The name of the file that has the records now, and by how much they moved: those that began at `begins[n]` or
    later by `shifts[n]`. The first begins at 0."""

    filename: str
    begins: Sequence[int]
    shifts: Sequence[int]

    def offset(self, before: int) -> int:
        return before + self.shifts[bisect_right(self.begins, before) - 1]


Moves = Mapping[str, Moved]
"""What became of WARC files, by their old names."""
