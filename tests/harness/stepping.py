"""Processes whose wall clocks are stepped while they run, by Debian's libfaketime. Their other clocks are right."""

from __future__ import annotations

import os
from itertools import cycle
from pathlib import Path
from threading import Event, Thread

import pytest

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
SHARED = Path("/dev/shm")
CACHED_S = 1
"""How long a process may take to notice that its clock was stepped."""
needs_faketime = pytest.mark.skipif(not LIBRARIES, reason="needs libfaketime")

# Python sleeps until a moment of the monotonic clock, which libfaketime refuses, because it does not fake that clock.
_SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds)\n"


def sweep() -> None:
    """Remove files that libfaketime leaves of killed processes: it refuses to start in a process with the same
    number."""
    for file in [*SHARED.glob("faketime_shm_*"), *SHARED.glob("sem.faketime_sem_*")]:
        if not Path("/proc", file.name.rpartition("_")[2]).exists():
            file.unlink(missing_ok=True)


class SteppedClocks:
    """A wall clock for each name, right until it is stepped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_SLEEP)

    def environment(self, name: str) -> dict[str, str]:
        """The variables for a process that uses this clock."""
        sweep()
        self.set(name, 0.0)
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_TIMESTAMP_FILE": str(self._folder / name),
            "FAKETIME_CACHE_DURATION": str(CACHED_S),
            "PYTHONPATH": str(self._folder),
        }

    def set(self, name: str, ahead_s: float) -> None:
        """Set a clock so far ahead of the true time."""
        part = self._folder / f"{name}.part"
        part.write_text(f"{ahead_s:+.1f}")
        os.replace(part, self._folder / name)


class BackAndForth:
    """Steps a clock back and forth for as long as the context lasts."""

    def __init__(self, clocks: SteppedClocks, name: str, *steps_s: float) -> None:
        self._clocks = clocks
        self._name = name
        self._steps_s = cycle(steps_s)
        self._ending = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *ending: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(CACHED_S + 0.5):
            self._clocks.set(self._name, next(self._steps_s))
