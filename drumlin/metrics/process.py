"""What every process tells of itself. The names are those of Prometheus' own clients, so dashboards made for any
program know them."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable
from pathlib import Path

from drumlin import __version__
from drumlin.metrics import registry
from drumlin.metrics.text import many, one

_PROC = Path("/proc/self")
_RESIDENT_FIELD = 1
_STARTED_FIELD = 21
"""Places in `statm` and `stat` of Linux' /proc, counted from 0."""


def lines_of_process(role: str) -> Iterable[Iterable[str]]:
    """The figures of this process, which is a `node` or a `coordinator`. Without Linux' /proc some are left out."""
    yield many(registry.BUILD, {(role, __version__): 1})
    yield one(registry.PROCESS_CPU, time.process_time())
    if _PROC.exists():
        yield one(registry.PROCESS_MEMORY, _resident_bytes())
        yield one(registry.PROCESS_FILES, len(os.listdir(_PROC / "fd")))
        yield one(registry.PROCESS_START, _started())


def _resident_bytes() -> int:
    return int((_PROC / "statm").read_text().split()[_RESIDENT_FIELD]) * os.sysconf("SC_PAGE_SIZE")


@functools.cache
def _started() -> float:
    """When this process began, in seconds since the epoch."""
    # The second field is the program's name in brackets, which may have spaces in it.
    fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[_STARTED_FIELD - 2])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
