"""Each node's own folder in a store, called its spool: a lock and the node's journals.

A node holds the lock for as long as it lives, so a free lock means that the node is dead. A journal that is still there
holds results whose rows are in no table yet. Coordinators that store what workers return have such folders too.
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
"""The suffix of a coordinator's journal, which holds results of workers that do not store them themselves."""
EVENTS_SUFFIX: Final = ".events"
"""The suffix of a cursor: how many events of a segment the broker has confirmed (`drumlin.events`)."""
LOCK_POLL_S: Final = 0.05


def unfinished_segments(store: Path) -> set[str]:
    """The segments of a store that have a journal: more rows may come to their tables."""
    journals = (path for suffix in (JOURNAL_SUFFIX, KEPT_SUFFIX) for path in (store / SPOOLS).glob(f"*/*{suffix}"))
    return {path.stem for path in journals}


class SpoolLock:
    """The lock on a spool folder; the operating system frees it when its process dies."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, folder: Path, *, wait_s: float = 0.0) -> SpoolLock | None:
        """Take the lock. Returns None when another process still holds it after `wait_s`."""
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
