"""The files of a store, wherever they are: those who look something up in a store read it through this interface.

A directory is one such place. An object store will be another: it needs to list a folder, read a part of a file, and
write a small file as a whole.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from drumlin.disk import write_whole


class StoredFile(NamedTuple):
    """A file by its name in its folder. `version` changes whenever the file is replaced; `written` is when it was."""

    name: str
    version: str
    written: float


class StoreFiles(Protocol):
    """Calls block, so they are made beside an event loop. Paths are relative to the store; what is not there, or cannot
    be read, raises `OSError`."""

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder; none if it does not exist."""

    def files(self, folder: str, suffix: str) -> list[StoredFile]:
        """The files in a folder whose names end in `suffix`; none if it does not exist."""

    def open(self, path: str) -> BinaryIO:
        """A file to read from at any place. The caller closes it."""

    def write(self, path: str, content: bytes) -> None:
        """Write a small file as a whole: others see all of it or nothing. `OSError` or `StorageError` if it cannot."""


class DirectoryFiles:
    """A store that is a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

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
                    found.append(StoredFile(entry.name, version, status.st_mtime))
        return found

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._root / folder) as entries:
                return list(entries)
        except OSError:
            # It does not exist yet. That a store cannot be read is found out and said by those who watch it.
            return []

    def open(self, path: str) -> BinaryIO:
        return (self._root / path).open("rb")

    def write(self, path: str, content: bytes) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, content, rivals=True)
