"""Retention in a store that is a directory, also beside a running crawl: only complete files are touched.

Each step is noted in the ledger (`drumlin.store.ledger`) before the first file of its unit is deleted. After a kill the
next run deletes the rest of what was noted. A text is taken out by replacing its file, which needs no note.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from drumlin.clock import monotonic
from drumlin.disk import PARTIAL_SUFFIX, below, remove, replace, sync_directory, translated_disk_errors
from drumlin.events.coordinating import FOLDER
from drumlin.lifecycle.retention.found import has_index, units
from drumlin.lifecycle.retention.logs import log_units, take_log
from drumlin.lifecycle.retention.planning import Left, Step, Unit
from drumlin.lifecycle.retention.policy import Action, Kind, Policy
from drumlin.lifecycle.retention.texts import write_without_text
from drumlin.store.files import DirectoryFiles
from drumlin.store.finish import alone
from drumlin.store.ledger import LIFECYCLE, READERS_LOCK, Ledger, LedgerLine, Moved
from drumlin.store.places import copied_to, open_place
from drumlin.store.spools import EVENTS_SUFFIX, JOURNAL_SUFFIX, KEPT_SUFFIX, SPOOLS, unfinished_segments
from drumlin.store.tables.url_index import INDEX_SUFFIX, INDEXES
from drumlin.store.warc.cdxj import merge
from drumlin.store.warc.file import WARC_SUFFIX

READERS_WAIT_S: Final = 10.0
READERS_POLL_S: Final = 0.05
SEARCH_BYTES: Final = 4 * 1024**2
NAME_BYTES_MAX: Final = 256
_WARC_NAME: Final = re.compile(rb"drumlin-[0-9]{17}-[0-9]{5}-[A-Za-z0-9._-]{1,100}?\.warc\.gz")


class DirectoryStore:
    """A store in the directory `root`, for as long as a run of retention lasts. `logs` is the directory of the crawl
    whose logs belong to it, if there is one."""

    def __init__(self, root: Path, logs: Path | None = None) -> None:
        self.files = DirectoryFiles(root)
        self._root, self._logs = root, logs
        self._ledger = Ledger(root)
        self._index_is_old = False

    @contextmanager
    def working(self, now: float) -> Iterator[None]:
        """To be held while steps are carried out: nobody else may finish this store, or delete from it."""
        with translated_disk_errors(self._root), alone(self._root):
            self._complete_last_run()
            yield
            if self._index_is_old and has_index(self.files):
                merge(self._root / "warc")
            if self._ledger.unfinished():
                self._ledger.append(LedgerLine(now, done=True))

    def units(self, policy: Policy) -> Iterator[Unit]:
        growing = unfinished_segments(self._root)
        owed = {
            path.name.removesuffix(EVENTS_SUFFIX)
            for folder in (SPOOLS, FOLDER)
            for path in (self._root / folder).glob(f"*/*{EVENTS_SUFFIX}")
        }
        named = _named_in_journals(self._root) if Kind.WARC in policy.rules else set[str]()

        def busy(kind: Kind, name: str) -> Left | None:
            if kind is Kind.WARC:
                return Left.GROWING if name + WARC_SUFFIX in named else None
            if name in growing:
                return Left.GROWING
            return Left.EVENTS_OWED if name in owed else None

        yield from units(self.files, policy, busy)
        if self._logs is not None and Kind.LOGS in policy.rules:
            yield from log_units(self._logs)

    def perform(self, step: Step, now: float) -> Left | None:
        """Carry out a step. Returns why not, if it was not possible."""
        if step.unit.kind is Kind.TEXT:
            return self._take_text(step.unit, now)
        if step.unit.kind is Kind.LOGS:
            return take_log(self._logs, step)
        return self._move(step, now) if step.action is Action.MOVE else self._delete(step.unit, now)

    # Steps

    def _delete(self, unit: Unit, now: float) -> Left | None:
        with ExitStack() as stack:
            if unit.kind is Kind.TABLES and not stack.enter_context(_without_readers(self._root)):
                return Left.BEING_READ
            there = [moved for path in unit.paths if (moved := self._ledger.moved(path)) is not None]
            self._ledger.append(LedgerLine(now, unit.kind, unit.name, deleted=list(unit.paths), moved=there))
            self._remove(unit.kind, unit.name, unit.paths, there)
        return None

    def _move(self, step: Step, now: float) -> Left | None:
        unit, moved = step.unit, list[Moved]()
        for path in unit.movable:
            size, digest = copied_to(step.to, path, self._root / path)
            moved.append(Moved(path, step.to, size, digest, (self._root / path).stat().st_mtime))
        with ExitStack() as stack:
            if unit.kind is Kind.TABLES and not stack.enter_context(_without_readers(self._root)):
                return Left.BEING_READ
            self._ledger.append(LedgerLine(now, unit.kind, unit.name, moved=moved))
            self._remove_here(unit.movable)
        return None

    def _take_text(self, unit: Unit, now: float) -> Left | None:
        path = self._root / unit.paths[0]
        # Not a name that those who tidy up after dead nodes would remove.
        partial = path.with_name(f".{unit.name}.without-text{PARTIAL_SUFFIX}")
        remove(partial)
        try:
            with path.open("rb") as source:
                write_without_text(source, partial, now)
            with _without_readers(self._root) as alone_here:
                if not alone_here:
                    return Left.BEING_READ
                replace(partial, path, sync=True)
        finally:
            remove(partial)
        return None

    # Files

    def _complete_last_run(self) -> None:
        """Delete what was noted and not deleted yet, because the process was killed."""
        for line in self._ledger.unfinished():
            if line.deleted:
                self._remove(line.kind, line.name, line.deleted, line.moved)
            else:
                self._remove_here([moved.path for moved in line.moved])
        for partial in (self._root / "tables" / "pages").glob(f".*.without-text{PARTIAL_SUFFIX}"):
            remove(partial)

    def _remove(self, kind: str, name: str, paths: Sequence[str], elsewhere: Sequence[Moved]) -> None:
        for moved in elsewhere:
            open_place(moved.place).delete(moved.path)
        self._remove_here(paths)
        if kind == Kind.TABLES:
            remove(below(self._root / INDEXES, name + INDEX_SUFFIX))
        self._index_is_old = self._index_is_old or kind == Kind.WARC

    def _remove_here(self, paths: Sequence[str]) -> None:
        # A segment counts as long as its pages are there, so these go first.
        for path in sorted(paths, key=lambda path: not path.startswith("tables/pages/")):
            remove(below(self._root, path))
        for folder in {(self._root / path).parent for path in paths}:
            with suppress(FileNotFoundError):
                sync_directory(folder)


@contextmanager
def _without_readers(root: Path) -> Iterator[bool]:
    """Wait until nobody holds tables open by their names (`drumlin.store.ledger.reading`); False if that takes long."""
    descriptor = os.open(root / LIFECYCLE / READERS_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield _locked(lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB))
    finally:
        os.close(descriptor)


def _locked(lock: Callable[[], None]) -> bool:
    deadline = monotonic() + READERS_WAIT_S
    while True:
        try:
            lock()
            return True
        except BlockingIOError:
            if monotonic() >= deadline:
                return False
            time.sleep(READERS_POLL_S)


def _named_in_journals(root: Path) -> set[str]:
    """The WARC files that journals name, from which rows may have to be made again. Names stand in a journal as they
    are, so it is searched, not decoded."""
    found = set[str]()
    for suffix in (JOURNAL_SUFFIX, KEPT_SUFFIX):
        for path in (root / SPOOLS).glob(f"*/*{suffix}"):
            # It may be gone since it was listed: its tables are complete.
            with suppress(FileNotFoundError), path.open("rb") as file:
                rest = b""
                while chunk := file.read(SEARCH_BYTES):
                    found |= {name.decode() for name in _WARC_NAME.findall(rest + chunk)}
                    rest = chunk[-NAME_BYTES_MAX:]
    return found
