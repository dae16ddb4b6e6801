"""Keeps freed memory for the next page.

lexbor allocates a few hundred kilobytes for a tree and frees them with it. By default glibc returns them to the kernel
each time, which then has to clear and map them again for the next page. For pages of 37 KB that is nearly half of the
cost of parsing (380 against 690 µs). glibc raises its thresholds by itself once a large block was freed, so a process
that has met some large pages gains little; this makes every process fast from its first page on.
"""

from __future__ import annotations

import ctypes

KEPT_BYTES_MAX = 64 * 1024 * 1024
MMAP_FROM_BYTES = 4 * 1024 * 1024

# The parameter numbers of mallopt(3).
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Tell the allocator to keep `KEPT_BYTES_MAX` of freed memory. False if the C library cannot do that."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES_MAX)) and bool(mallopt(_MMAP_THRESHOLD, MMAP_FROM_BYTES))
