"""The clock by which a node measures how long it may go on: it never jumps, and it runs while the machine sleeps.

Leases run out in a coordinator's time. A machine that is suspended for longer than a lease must know so when it wakes:
Linux's plain monotonic clock would not tell. (That a hypervisor has held a virtual machine still, no clock inside it
tells until it is set right.)
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable


def _monotonic() -> Callable[[], float]:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    return time.monotonic


monotonic = _monotonic()
"""Seconds since some moment in the past."""
