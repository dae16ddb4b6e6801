"""The folders of a store's nodes: who is at work in one, and what a dead node left there.

A node holds a lock on its folder for as long as it lives, so a free lock marks the folder of a dead node. A journal in
it tells of results whose rows are in no table yet. Coordinators that store what workers return have such folders too.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

from drumlin.clock import monotonic

SPOOLS: Final = "nodes"
JOURNAL_SUFFIX: Final = ".journal"
KEPT_SUFFIX: Final = ".kept"
"""Of the journal of a coordinator, which holds what it has taken from workers that store nothing."""
LOCK_POLL_S: Final = 0.05


class SpoolLock:
    """Held by a node over its spool folder for as long as it lives; a free lock marks the spool of a dead node."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, folder: Path, *, wait_s: float = 0.0) -> SpoolLock | None:
        """The lock, or None when another process holds it still after `wait_s`."""
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return cls(fd)
            except BlockingIOError:
                if monotonic() >= deadline:
                    os.close(fd)
                    return None
                time.sleep(LOCK_POLL_S)

    def free(self) -> None:
        os.close(self._fd)
