"""Giving memory back to the machine after a flood.

The C library keeps what is freed between blocks that are still in use. After some hundred megabytes of large requests a
coordinator would so stay several times as large as it need be, for good. While it is larger than it has been it asks
the library now and then to give back what is free: some milliseconds, in another thread, and the more seldom the less
that brings.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
from collections.abc import Callable
from pathlib import Path

GROWN = 1.1
WORTH = 0.05
"""The part of the process that must be given back, or it is tried more seldom."""
EVERY_S_MIN = 10.0
EVERY_S_MAX = 60.0

_STATM = Path("/proc/self/statm")


class FreedMemory:
    """Looks after the size of this process. `resident` and `give_back` are the machine's, but for tests."""

    def __init__(
        self, resident: Callable[[], int] | None = None, give_back: Callable[[], object] | None = None
    ) -> None:
        self._resident = resident or resident_bytes
        self._give_back = give_back or give_back_freed
        self._least_bytes = math.inf
        self._every_s = EVERY_S_MIN
        self._next = -math.inf

    async def look(self, now: float) -> None:
        """Give back what is free, if the process is larger than it need be."""
        before = self._resident()
        self._least_bytes = min(self._least_bytes, before)
        if before < GROWN * self._least_bytes or now < self._next:
            return
        await asyncio.to_thread(self._give_back)
        worth = before - self._resident() >= WORTH * before
        self._every_s = EVERY_S_MIN if worth else min(2 * self._every_s, EVERY_S_MAX)
        self._next = now + self._every_s


def resident_bytes() -> int:
    """How much of the machine's memory this process has; 0 where that cannot be said."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def give_back_freed() -> None:
    """Have the C library give back what it keeps, where it knows how."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
