"""The clock by which a node measures how long its leases last: it never jumps, and it runs while the machine sleeps.

A lease runs out by the coordinator's time, whether or not the node's machine is awake. If a laptop sleeps for longer
than a lease, its node must not contact the host after waking up, because another node may hold the host by then.
`CLOCK_BOOTTIME` counts the time asleep; Linux's plain monotonic clock does not. Neither of them notices that a
hypervisor has stopped a whole virtual machine: a node in one may believe in a lease for longer than it lasts.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import msgspec


def _monotonic() -> Callable[[], float]:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    return time.monotonic


monotonic = _monotonic()
"""Seconds since some moment in the past: only differences between two readings mean anything."""


SCHEDULER_FILE = "/proc/self/schedstat"


def wanted_cpu_s() -> float:
    """For how long this process has wanted a core: while it had one, and while it waited for one. So a process that
    shares its cores with others is seen to be busy all the time, although it gets only a part of it."""
    used_s = time.process_time()
    try:
        with open(SCHEDULER_FILE, "rb") as file:
            return used_s + int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        # Only Linux tells, and not every Linux.
        return used_s


class Clocks(msgspec.Struct, frozen=True):
    """The clocks that a node reads: `boot` is `monotonic`, `wall` the calendar, `cpu` is `wanted_cpu_s`. A simulation
    brings its own."""

    boot: Callable[[], float] = monotonic
    wall: Callable[[], float] = time.time
    cpu: Callable[[], float] = wanted_cpu_s


CLOCKS = Clocks()
"""Those of this machine."""
