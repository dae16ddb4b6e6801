"""The directory of a crawl on one machine: its lock, its folders, and whether a crawl is in it."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from drumlin.api.explaining.report import REPORT_NAME
from drumlin.config.record import RECORD_NAME
from drumlin.errors import BusyError, ConfigError, StorageError
from drumlin.lifecycle.book import holds_in
from drumlin.lifecycle.removal.plan import PLAN_NAME, check_none_pending
from drumlin.lines import tell
from drumlin.local.moved import MOVED_NAME
from drumlin.node.keeping.archive import CrawlPaths
from drumlin.store.files import DirectoryFiles, StoreFiles
from drumlin.store.ledger import LIFECYCLE
from drumlin.store.objects.address import parse_address
from drumlin.store.opening import STORE_NAME, note_address, open_store, store_address

LOCK_WAIT_S = 10.0
FRONTIER = "frontier"
OWN_FOLDERS = (FRONTIER, "warc", "tables", "nodes", "logs", "run", LIFECYCLE, "removals")


def crawl_files(root: Path) -> StoreFiles:
    """What the crawl in this directory has stored, wherever it is."""
    return open_store(store_address(root) or root)


class CrawlDirectory:
    """The crawl directory, with a lock that is held as long as any process of the crawl lives: the nodes inherit its
    file descriptor, and the kernel releases the lock when the last process is gone."""

    def __init__(self, root: Path, on_wait: Callable[[str], None] = tell) -> None:
        """`on_wait` is called with a sentence if another process holds the directory."""
        self.root = root
        self._on_wait = on_wait
        self.paths = CrawlPaths(root)
        self._lock_fd = -1

    def open(self) -> None:
        try:
            self.make_folders()
            self._lock_fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as cause:
            reason = cause.strerror or str(cause)
            raise StorageError(f"Cannot write to {self.root}: {reason}.", "Choose another --out.") from cause
        self._lock(fcntl.LOCK_EX)

    def hold(self) -> None:
        """Keep crawls from beginning here while somebody looks at this one. Writes nothing, and others may look too."""
        try:
            self._lock_fd = os.open(self.root / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return
        except OSError as cause:
            reason = cause.strerror or str(cause)
            raise StorageError(f"Cannot read {self.root}: {reason}.", "Look at it as a user who may.") from cause
        self._lock(fcntl.LOCK_SH)

    def make_folders(self) -> None:
        for folder in (self.root, self.paths.warc, self.paths.tables, self.paths.spools, self.root / "logs"):
            folder.mkdir(parents=True, exist_ok=True)

    def _lock(self, kind: int) -> None:
        """Take the lock. Processes of a killed crawl may need a moment to end, so wait; after that, another crawl must
        be at work here, or somebody looks at this one for long."""
        deadline = time.monotonic() + LOCK_WAIT_S
        said = False
        while True:
            try:
                fcntl.flock(self._lock_fd, kind | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if not said:
                    self._on_wait(f"Another process is at work in {self.root}: waiting up to {LOCK_WAIT_S:g} s for it.")
                    said = True
                if time.monotonic() > deadline:
                    hint = "Wait for it, end it, or choose another --out."
                    busy = f"Another process is at work in {self.root} or shows it (`drumlin open`)."
                    raise BusyError(busy, hint) from None
                time.sleep(0.05)

    @property
    def lock_fd(self) -> int:
        """The descriptor that nodes inherit, so the lock is held until the last of them is gone."""
        return self._lock_fd

    def clear(self) -> None:
        """Remove the crawl that is here, if there is one; other files in the directory stay. `crawl.json` goes last, so
        if this is interrupted, the next call goes on with it."""
        if not (self._has_frontier or self._has_record):
            return
        held = holds_in(DirectoryFiles(self.root)).all
        if held:
            hint = "Choose another --out, or have it lifted: drumlin hold lift."
            raise ConfigError(f"The crawl in {self.root} is held ({held[0].name}), so it is not removed.", hint)
        for name in OWN_FOLDERS:
            shutil.rmtree(self.root / name, ignore_errors=True)
        for name in (REPORT_NAME, STORE_NAME, MOVED_NAME, PLAN_NAME, RECORD_NAME):
            (self.root / name).unlink(missing_ok=True)

    def check_frontier(self) -> None:
        """Refuse a crawl whose frontier was removed: nobody knows what it has fetched, so it would all be fetched and
        stored again. Refuse one, too, from which a removal has only half removed something."""
        check_none_pending(self.root)
        if self._has_record and not self._has_frontier:
            hint = "Restore it from a copy, remove the whole crawl with --fresh, or choose another --out."
            raise StorageError(f"The crawl in {self.root} has lost its queue (the folder frontier).", hint)

    def agree_on_store(self, wanted: str | None) -> str:
        """The address of the store, if it is in a bucket; otherwise empty. A crawl that has begun goes on where it
        began, so what it stores is never in two places."""
        address = str(parse_address(wanted)) if wanted else ""
        known = store_address(self.root)
        if address and address != known and self._has_record:
            hint = "Leave --store out to go on with it, or choose another --out."
            raise ConfigError(f"The crawl in {self.root} stores in {known or 'this directory'}.", hint)
        return address or known

    def note_store(self, address: str) -> None:
        """Note that the crawl stores in a bucket. Done only when it was reached, so a mistyped one can be corrected."""
        if store_address(self.root) != address:
            note_address(self.root, address)

    @property
    def _has_frontier(self) -> bool:
        return (self.root / FRONTIER).is_dir()

    @property
    def _has_record(self) -> bool:
        return (self.root / RECORD_NAME).exists()

    def close(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1
