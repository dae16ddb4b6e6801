"""Returns memory to the machine after a flood of large requests.

The C library keeps freed memory that lies between blocks still in use. After some hundred megabytes of requests, a
coordinator would stay several times as large as it needs to be, for good. So while it is larger than it once was, it
asks the library now and then to return what is free. That takes some milliseconds, in another thread, and is done less
often if it frees little.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
from collections.abc import Callable
from pathlib import Path

GROWN = 1.1
"""How many times its least size a process must have before it tries to return memory."""
WORTH = 0.05
"""If a try frees a smaller share of the process than this, the next one comes later."""
EVERY_S_MIN = 10.0
EVERY_S_MAX = 60.0

_STATM = Path("/proc/self/statm")


class FreedMemory:
    """Watches the size of this process. Tests give `resident` and `give_back`; otherwise they ask the machine."""

    def __init__(
        self, resident: Callable[[], int] | None = None, give_back: Callable[[], object] | None = None
    ) -> None:
        self._resident = resident or resident_bytes
        self._give_back = give_back or give_back_freed
        self._least_bytes = math.inf
        self._every_s = EVERY_S_MIN
        self._next = -math.inf

    async def look(self, now: float) -> None:
        """Return what is free, if the process is larger than it once was and the last try was long enough ago."""
        before = self._resident()
        self._least_bytes = min(self._least_bytes, before)
        if before < GROWN * self._least_bytes or now < self._next:
            return
        await asyncio.to_thread(self._give_back)
        worth = before - self._resident() >= WORTH * before
        self._every_s = EVERY_S_MIN if worth else min(2 * self._every_s, EVERY_S_MAX)
        self._next = now + self._every_s


def resident_bytes() -> int:
    """How much of the machine's memory this process takes; 0 if the system does not say."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def give_back_freed() -> None:
    """Make the C library return the free memory that it keeps, if it has a function for that."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
