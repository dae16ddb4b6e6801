"""The files of a store, wherever they are: a directory, or a bucket (`drumlin.store.objects`).

Those who look something up in a store read it through this interface, and complete segments enter it by `publish`. What
is not complete yet grows on a disk: in a directory that is the store itself, otherwise a folder of the machine.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol

from drumlin.disk import sync_directory, translated_disk_errors, write_whole
from drumlin.errors import StorageError
from drumlin.store.finish import finish
from drumlin.store.ledger import Ledger, Moved, Retired
from drumlin.store.places import open_place

PROBE_BYTES: Final = 64 * 1024
"""More than a file system stores inside an inode, so writing it needs room on the disk."""
PROBE_NAME: Final = ".drumlin-probe-"


class OtherContent(StorageError):
    """The store has another file of this name."""


class StoredFile(NamedTuple):
    """A file by its name in its folder. `version` changes whenever the file is replaced; `written` is when it was."""

    name: str
    version: str
    written: float
    bytes: int = 0


class Place(NamedTuple):
    """Where one file may be put, by a PUT with these headers."""

    url: str
    headers: dict[str, str]


class Inbox(Protocol):
    """Where those who may not write to a store can put files that somebody checks before they are published."""

    valid_s: float
    """For how long a place can be used."""

    def place(self, name: str, size: int, digest: str, now: float) -> Place:
        """A place for one file of exactly this size and SHA-256."""

    def fetch(self, name: str, digest: str, path: Path, bytes_max: int) -> str:
        """Write what was put there to a new file; returns its SHA-256. `FileNotFoundError` if nothing was."""

    def discard(self, name: str, digest: str) -> None:
        """Remove what was put there."""


class StoreFiles(Protocol):
    """Calls block, so they are made beside an event loop. Paths are relative to the store; what is not there, or cannot
    be read, raises `OSError`."""

    @property
    def inbox(self) -> Inbox | None:
        """None if files can only come through a coordinator."""

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder; none if it does not exist."""

    def files(self, folder: str, suffix: str) -> list[StoredFile]:
        """The files in a folder whose names end in `suffix`; none if it does not exist. `StorageError` if the store is
        elsewhere and cannot be reached."""

    def open(self, path: str) -> BinaryIO:
        """A file to read from at any place. The caller closes it."""

    def write(self, path: str, content: bytes) -> None:
        """Write a small file as a whole: others see all of it or nothing. `OSError` or `StorageError` if it cannot."""

    def publish(self, segment: str, members: Mapping[str, Path], removals: str | None = None) -> bool:
        """Add a complete segment: files that lie on this machine, by their paths in the store. Once this returns they
        are safe from power loss; readers see the segment as a whole or not at all. Returns whether any was new; a
        segment that is there already changes nothing. Raises `OtherContent` if one of another content is there.
        `removals` is what `removals()` said before what was removed on request was taken out of the files."""

    def removals(self) -> str:
        """In a bucket, where nothing keeps writers out, this differs after each removal on request that has begun."""

    def has_segment(self, segment: str) -> bool:
        """Whether a segment was ever published, also if retention has deleted it since."""

    def retired(self, path: str) -> Retired | None:
        """What retention did with a file; None if it did nothing with it. One that was moved can still be opened."""

    def rows_deleted(self) -> float:
        """When retention deleted rows of tables last; 0 if it never did."""

    def replace(self, path: str, file: Path) -> None:
        """Make a file of this machine the one of this path: one that changes, such as the report."""

    def complete(self, folder: Path) -> None:
        """When every node has left: merge the indexes of all WARC files into one. May be repeated. `folder` is one of
        this machine to work in. Raises `BusyError` if nodes have more to add."""

    def probe(self) -> None:
        """Write something small; a `StorageError` says why that failed."""


class DirectoryFiles:
    """A store that is a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ledger = Ledger(root)

    def __str__(self) -> str:
        return str(self.root)

    @property
    def inbox(self) -> Inbox | None:
        return None

    def folders(self, folder: str) -> list[str]:
        return sorted(entry.name for entry in self._entries(folder) if entry.is_dir())

    def files(self, folder: str, suffix: str) -> list[StoredFile]:
        found: list[StoredFile] = []
        for entry in self._entries(folder):
            if entry.name.endswith(suffix) and not entry.name.startswith("."):
                # It may be gone since it was listed: a journal ends when its tables are complete.
                with suppress(OSError):
                    status = entry.stat()
                    version = f"{status.st_size}-{status.st_mtime_ns}"
                    found.append(StoredFile(entry.name, version, status.st_mtime, status.st_size))
        here = {one.name for one in found}
        elsewhere = [_listed(moved) for moved in self._ledger.moved_in(folder)]
        return [*found, *(one for one in elsewhere if one.name.endswith(suffix) and one.name not in here)]

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / folder) as entries:
                return list(entries)
        except OSError:
            # It does not exist yet. That a store cannot be read is found out and said by those who watch it.
            return []

    def open(self, path: str) -> BinaryIO:
        try:
            return (self.root / path).open("rb")
        except FileNotFoundError:
            moved = self._ledger.moved(path)
            if moved is None:
                raise
        return open_place(moved.place).open(path, moved.bytes)

    def write(self, path: str, content: bytes) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, content, rivals=True)

    def removals(self) -> str:
        # Writers of a directory hold a lock, which a removal waits for.
        return ""

    def publish(self, segment: str, members: Mapping[str, Path], removals: str | None = None) -> bool:
        if self._ledger.retired(_pages_of(segment)) is not None:
            # It was here, and somebody sends it once more: what retention has deleted must not come back.
            return False
        files = [(file, self.root / member) for member, file in members.items()]
        for file, target in files:
            if target.exists():
                _check_same(file, target)
        # A segment counts once its pages are there.
        files.sort(key=lambda entry: entry[1].parent.name == "pages")
        added = [_link(file, target) for file, target in files]
        return any(added)

    def has_segment(self, segment: str) -> bool:
        pages = _pages_of(segment)
        try:
            return (self.root / pages).exists() or self._ledger.retired(pages) is not None
        except OSError as cause:
            # A file that is missing is an answer; a disk that cannot tell, such as a network's, is none.
            hint = "Check the disk, or the network that it is on."
            raise StorageError(f"Cannot read {self.root}: {cause.strerror or cause}.", hint) from cause

    def retired(self, path: str) -> Retired | None:
        return self._ledger.retired(path)

    def rows_deleted(self) -> float:
        return self._ledger.rows_deleted

    def replace(self, path: str, file: Path) -> None:
        target = self.root / path
        if not target.exists() or not file.samefile(target):
            self.write(path, file.read_bytes())

    def complete(self, folder: Path) -> None:
        # Nothing may ever have been stored here: no page was fetched, or all workers keep what they fetch.
        (self.root / "warc").mkdir(parents=True, exist_ok=True)
        finish(self.root)

    def probe(self) -> None:
        path = self.root / f"{PROBE_NAME}{os.getpid()}"
        with translated_disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("wb", buffering=0) as file:
                    file.write(bytes(PROBE_BYTES))
            finally:
                path.unlink(missing_ok=True)


def _pages_of(segment: str) -> str:
    """The file with which a segment counts."""
    return f"tables/pages/{segment}.parquet"


def _listed(moved: Moved) -> StoredFile:
    return StoredFile(moved.path.rpartition("/")[2], f"{moved.bytes}-{moved.sha256}", moved.written, moved.bytes)


def _link(file: Path, target: Path) -> bool:
    """Give a file its name in the store. If it is there already, from an earlier sending, its content must be equal;
    returns whether it was new."""
    target.parent.mkdir(parents=True, exist_ok=True)
    added = True
    try:
        os.link(file, target)
    except FileExistsError:
        _check_same(file, target)
        added = False
    sync_directory(target.parent)
    return added


def _check_same(file: Path, target: Path) -> None:
    if not filecmp.cmp(file, target, shallow=False):
        raise OtherContent(f"Another {target.name} is stored already.", "Give each segment a name of its own.")
