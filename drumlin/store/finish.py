"""The last step of a crawl: when every node has left, the indexes of all WARC files are merged into one.

This may be repeated: it only replaces `index.cdxj` as a whole, after repairing what a killed node left open. While a
node works on the store, or a dead one has left a journal in it, the index would be incomplete, so `finish` refuses.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final

from drumlin.disk import translated_disk_errors
from drumlin.errors import BusyError, StorageError
from drumlin.store.spools import JOURNAL_SUFFIX, KEPT_SUFFIX, SPOOLS, SpoolLock
from drumlin.store.warc.cdxj import merge
from drumlin.store.warc.repair import repair

LOCK_NAME: Final = "finish.lock"
NAMES_SHOWN_MAX: Final = 5


class Spool(Enum):
    """The state of a node's folder: its process lives, it died and left a journal, or everything is stored."""

    AT_WORK = "at_work"
    LEFT = "left"
    DONE = "done"


def finish(root: Path) -> Path:
    """Merge the indexes of a store into one and return its path. Raises BusyError if nodes have more to add."""
    if not (root / "warc").is_dir():
        hint = "Name the folder that coordinators and nodes have as --store."
        raise StorageError(f"There is no store in {root}.", hint)
    with translated_disk_errors(root), alone(root):
        spools = sorted(folder for folder in (root / SPOOLS).glob("*") if folder.is_dir())
        standing = {folder.name: _finish_spool(root, folder) for folder in spools}
        at_work = [name for name, found in standing.items() if found is Spool.AT_WORK]
        if at_work:
            raise BusyError(f"Nodes are at work in {root}: {_names(at_work)}.", "Wait until they have left.")
        left = [name for name, found in standing.items() if found is Spool.LEFT]
        if left:
            message = f"Nodes that died left results in {root} that are in no table yet: {_names(left)}."
            hint = "Start a node with this --store, or a coordinator where its name begins so: it finishes them first."
            raise BusyError(message, hint)
        return merge(root / "warc")


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """Hold the store's lock, so only one process finishes at a time: another leader or a person may be doing it too."""
    fd = os.open(root / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"Another process is finishing {root}.", "Wait for it.") from None
        yield
    finally:
        os.close(fd)


def _finish_spool(root: Path, folder: Path) -> Spool:
    """Take the lock of a node's folder and see whether everything in it is stored."""
    lock = SpoolLock.take(folder)
    if lock is None:
        return Spool.AT_WORK
    try:
        if any(any(folder.glob("*" + suffix)) for suffix in (JOURNAL_SUFFIX, KEPT_SUFFIX)):
            return Spool.LEFT
        # The node may have been killed when its last journal was removed and its last WARC file not yet finished.
        repair(root / "warc", folder.name)
        return Spool.DONE
    finally:
        lock.free()


def _names(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN_MAX
    return ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
