"""What retention did with files of a store that is a directory: which it deleted, and which it moved to where.

The ledger is a file of lines (`lifecycle/ledger.jsonl`), each safe from power loss before a file is deleted. So a
reader who misses a file finds out why, and a run that was killed is completed by the next one. A store in a bucket has
all this in its manifest.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from drumlin.disk import sync_directory, translated_disk_errors
from drumlin.errors import StorageError

LIFECYCLE: Final = "lifecycle"
"""The folder of a store for policy, holds and ledger."""
LEDGER_NAME: Final = "ledger.jsonl"
READERS_LOCK: Final = "readers.lock"
"""Held together by those who open a table several times, and alone by who replaces or deletes one."""

Line = TypeVar("Line", bound=msgspec.Struct)


class Retired(NamedTuple):
    """What retention did with a file: when, and where it is now; `to` is empty if it was deleted."""

    at: float
    to: str = ""


class Moved(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that is now elsewhere: in a directory or bucket `place`, under the path that it had in the store.
    `written` is when it had been written."""

    path: str
    place: str
    bytes: int
    sha256: str
    written: float


class LedgerLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step: files of one unit that were deleted or moved. A line that is only `done` says that all lines before it
    were carried out to the end."""

    at: float
    kind: str = ""
    name: str = ""
    deleted: list[str] = []
    moved: list[Moved] = []
    done: bool = False


class LineFile(Generic[Line]):
    """A file of lines of JSON that only grows. Several processes and threads may append and read; a line that a kill
    cut off is dropped."""

    def __init__(self, path: Path, kind: type[Line]) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._decoder = msgspec.json.Decoder(kind)
        self._lines: list[Line] = []
        self._file, self._end = 0, 0
        """Which file was read, and how far."""

    def read(self) -> list[Line]:
        """All lines. Only what was added since the last time is read; the list stays the same as long as the file
        does."""
        with self._lock:
            return self._read()

    def _read(self) -> list[Line]:
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._file or status.st_size < self._end:
                    self._lines, self._file, self._end = [], status.st_ino, 0
                file.seek(self._end)
                for line in file.read().split(b"\n")[:-1]:
                    self._lines.append(self._decoder.decode(line))
                    self._end += len(line) + 1
        except FileNotFoundError:
            self._lines, self._file, self._end = [], 0, 0
        except (OSError, msgspec.MsgspecError) as wrong:
            raise StorageError(f"Cannot read {self._path}: {wrong}.", "Restore it from a copy.") from wrong
        return self._lines

    def append(self, decide: Callable[[Sequence[Line]], Line]) -> Line:
        """Add the line that follows from those before it. Once this returns, it survives a power cut."""
        with self._lock, translated_disk_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                line = decide(self.read())
                os.ftruncate(descriptor, self._end)
                _write_all(descriptor, msgspec.json.encode(line) + b"\n", self._end)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            sync_directory(self._path.parent)
            return line


def _write_all(descriptor: int, content: bytes, at: int) -> None:
    """Write all of it. A disk that is almost full takes a part without complaint, and refuses only the rest."""
    done = 0
    while done < len(content):
        done += os.pwrite(descriptor, content[done:], at + done)


class Ledger:
    """The ledger of a store in the directory `root`. Without its file nothing was ever deleted or moved."""

    def __init__(self, root: Path) -> None:
        self._file = LineFile(root / LIFECYCLE / LEDGER_NAME, LedgerLine)
        self._lock = threading.RLock()
        self._known: list[LedgerLine] = []
        self._told = 0
        """How many lines are known."""
        self._deleted: dict[str, float] = {}
        self._moved: dict[str, tuple[float, Moved]] = {}
        self._rows_deleted = 0.0

    def retired(self, path: str) -> Retired | None:
        with self._lock:
            self._follow()
            if path in self._deleted:
                return Retired(self._deleted[path])
            if path in self._moved:
                at, moved = self._moved[path]
                return Retired(at, f"{moved.place}/{path}")
            return None

    def moved(self, path: str) -> Moved | None:
        with self._lock:
            self._follow()
            found = self._moved.get(path)
            return None if found is None else found[1]

    def moved_in(self, folder: str) -> list[Moved]:
        """The files of a folder that are elsewhere."""
        with self._lock:
            self._follow()
            return [moved for path, (_, moved) in self._moved.items() if path.rpartition("/")[0] == folder]

    @property
    def rows_deleted(self) -> float:
        """When rows of tables were deleted last; 0 if never."""
        with self._lock:
            self._follow()
            return self._rows_deleted

    def unfinished(self) -> Sequence[LedgerLine]:
        """The steps that may not have been carried out to the end."""
        lines = self._file.read()
        last = next((place for place in reversed(range(len(lines))) if lines[place].done), -1)
        return lines[last + 1 :]

    def append(self, line: LedgerLine) -> None:
        self._file.append(lambda _: line)

    def _follow(self) -> None:
        lines = self._file.read()
        if lines is not self._known:
            self._known, self._told, self._deleted, self._moved, self._rows_deleted = lines, 0, {}, {}, 0.0
        new, self._told = lines[self._told :], len(lines)
        for line in new:
            self._moved |= {moved.path: (line.at, moved) for moved in line.moved}
            for path in line.deleted:
                self._moved.pop(path, None)
                self._deleted[path] = line.at
                if path.startswith("tables/"):
                    self._rows_deleted = line.at


@contextmanager
def reading(root: Path) -> Iterator[None]:
    """Keep complete tables from being replaced or deleted as long as the context lasts. A store for which no retention
    was ever set has no lock, and needs none."""
    try:
        descriptor = os.open(root / LIFECYCLE / READERS_LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)
