"""A disk of a few megabytes that a test can fill and empty: a tmpfs, which only root can mount."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHUNK_BYTES = 4096


class SmallDisk:
    """A mounted folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no room at all."""
        with self._filler.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(CHUNK_BYTES))
            except OSError:
                return

    def protect(self) -> None:
        """Make the disk read-only."""
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)

    def empty(self) -> None:
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    folder.mkdir(parents=True)
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield SmallDisk(folder)
    finally:
        # Unmount lazily: a process that is just ending may still have a file open there.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
