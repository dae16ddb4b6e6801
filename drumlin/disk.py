"""How files are written, by whichever part: a kill or a full disk leaves the old content or the new, never a part.

`write_whole` replaces a small file. `AppendFile` is for files that grow, and `replace` gives a finished one its final
name. Errors of the operating system become a `StorageError` that says what to do.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from drumlin.errors import Cause, ConfigError, StorageError

OPEN_SUFFIX: Final = ".open"
"""A file whose name ends so is still being appended to, or was when its process died."""
PARTIAL_SUFFIX: Final = ".partial"
"""A file whose name ends so is being written as a whole; one that is found after a crash is useless."""

SCRATCH_PREFIX: Final = ".scratch-"
"""A folder whose name begins so has the files of a piece of work that is under way, or was when its process died."""

TEMPORARY: Final = ("compact", "query", "remove", "retention", "sql")
"""What temporary folders are for, by which they are named."""

READABLE: Final = 0o644
PRIVATE: Final = 0o600
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_REASONS: Final = {
    errno.ENOSPC: ("the disk is full", "Free some space and run the same command again: it resumes."),
    errno.EDQUOT: ("the disk quota is used up", "Raise the quota and run the same command again: it resumes."),
    errno.EFBIG: ("the file may not grow further", "Raise the limit on file sizes and run the same command again."),
    errno.EIO: ("the disk reported an input/output error", "Check the disk before resuming the crawl."),
    errno.EROFS: ("the file system is read-only", "Choose a directory that can be written."),
    errno.EACCES: ("permission was denied", "Choose a directory that this user may write."),
}


def storage_error(path: Path, cause: OSError) -> StorageError:
    """One clear sentence for a failed read or write of `path`, and what to do next."""
    reason, hint = _REASONS.get(cause.errno or 0, (cause.strerror or str(cause), ""))
    code = Cause.STORE_FULL if cause.errno in FULL else Cause.STORE_FAILED
    return StorageError(f"Cannot write {path}: {reason}.", hint, code=code)


@contextmanager
def translated_disk_errors(folder: Path) -> Iterator[None]:
    """Turn the operating system's errors about disks into a StorageError; other errors stay as they are."""
    try:
        yield
    except OSError as cause:
        if cause.errno not in _REASONS:
            raise
        raise storage_error(Path(cause.filename or folder), cause) from cause


@contextmanager
def scratch_folder(within: Path) -> Iterator[Path]:
    """A folder for the files of one piece of work, which goes with them when the work ends."""
    with (
        translated_disk_errors(within),
        tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=within) as scratch,
    ):
        yield Path(scratch)


def discard_scratch(within: Path) -> None:
    """Delete what killed processes have left of their work. Call this only while nobody is at work there."""
    for folder in within.glob(SCRATCH_PREFIX + "*"):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A folder in the temporary folder of this machine, for a piece of work that has no other place. It is locked as
    long as it is used, so what killed processes have left is known, and goes first."""
    discard_temporary()
    # It gets the name by which others look for it when it is locked.
    made = Path(tempfile.mkdtemp(prefix=".drumlin-"))
    descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        folder = made.rename(made.with_name(f"drumlin-{purpose}-{made.name.rpartition('-')[2]}"))
        try:
            with translated_disk_errors(folder):
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def discard_temporary() -> None:
    """Delete the temporary folders that killed processes of this user have left: there may be pages in them."""
    within = Path(tempfile.gettempdir())
    for folder in [path for purpose in TEMPORARY for path in within.glob(f"drumlin-{purpose}-*")]:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            # It is gone by now, or somebody else's.
            continue
        try:
            if os.fstat(descriptor).st_uid == os.getuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            # Somebody works there.
            continue
        finally:
            os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` survive a power cut."""
    sync_file(directory)


def sync_file(path: Path) -> None:
    """Make what was written to `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def below(root: Path, path: str) -> Path:
    """The file of this path in a directory. `StorageError` if it leads out of it: plans and ledgers lie in a store,
    where others may write too, and whoever carries them out may do more on this machine than they."""
    if path.startswith("/") or ".." in path.split("/"):
        raise StorageError(f"{path[:200]!r} is not in {root}.", "Somebody has changed the records of this store: look.")
    return root / path


def remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as cause:
        raise storage_error(path, cause) from cause


def replace(source: Path, target: Path, *, sync: bool = False) -> None:
    """Give a finished file its final name, atomically."""
    try:
        source.replace(target)
        if sync:
            sync_directory(target.parent)
    except OSError as cause:
        raise storage_error(target, cause) from cause


def plain_target(path: Path) -> Path:
    """Where to write a file whose name a user has given: a symlink is followed, so it stays one, and what it leads to
    is replaced. ConfigError if it cannot be written there. `write_whole` replaces whatever has the name, so what is
    there must be a plain file: a device or a pipe would be gone."""
    try:
        there = path.stat()
    except FileNotFoundError:
        there = None
    except OSError as cause:
        raise ConfigError(f"Cannot write {path}: {cause.strerror}.", "Name another file.") from cause
    if there is not None and not stat.S_ISREG(there.st_mode):
        raise ConfigError(f"{path} is not a plain file.", "Name a new file, or one that may be replaced.")
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise ConfigError(f"There is no folder {target.parent}.", "Make it, or name another file.")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"Nothing can be written in the folder {target.parent}.", "Name a file in another folder.")
    return target


def write_whole(
    target: Path, content: bytes, *, sync: bool = False, mode: int = READABLE, rivals: bool = False
) -> None:
    """Write a file atomically: after a kill it has its old content or the new one, never a part. With `rivals`, other
    processes may be writing the same file; the last of them wins. If a user has given the name, ask `plain_target`."""
    unique = f".{secrets.token_hex(4)}" if rivals else ""
    partial = target.with_name(target.name + unique + PARTIAL_SUFFIX)
    with _errors_about(target):
        remove(partial)
        file = AppendFile(partial, sync=sync, mode=mode)
        try:
            file.append(content)
        except StorageError:
            with suppress(OSError):
                partial.unlink()
            raise
        finally:
            file.close()
        replace(partial, target, sync=sync)


@contextmanager
def _errors_about(target: Path) -> Iterator[None]:
    """Name the file that was wanted in errors, not the one that becomes it."""
    try:
        yield
    except StorageError as wrong:
        if isinstance(wrong.__cause__, OSError):
            raise storage_error(target, wrong.__cause__) from wrong.__cause__
        raise


class AppendFile:
    """A new file that only grows. `append` writes its argument completely, or raises and leaves the file as it was.
    With `emptied`, a file that is there is emptied and used: for those who hold a lock on it."""

    def __init__(self, path: Path, *, sync: bool = False, mode: int = READABLE, emptied: bool = False) -> None:
        self.path = path
        self.size = 0
        self._sync = sync
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_TRUNC if emptied else os.O_EXCL)
        try:
            self._descriptor = os.open(path, flags, mode)
            if sync:
                sync_directory(path.parent)
        except OSError as cause:
            raise storage_error(path, cause) from cause

    def append(self, content: bytes) -> None:
        """Write `content` with one system call where the kernel takes it whole."""
        try:
            self._write(content)
            if self._sync:
                os.fdatasync(self._descriptor)
        except OSError as cause:
            self.cut(self.size)
            raise storage_error(self.path, cause) from cause
        self.size += len(content)

    def sync(self) -> None:
        """Make what was appended survive a power cut; needed only if the file was opened without `sync`."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as cause:
            raise storage_error(self.path, cause) from cause

    def cut(self, size: int) -> None:
        """Drop what lies beyond `size`. Shrinking needs no space, so it works on a full disk."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as cause:
            raise storage_error(self.path, cause) from cause
        self.size = size

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, content: bytes) -> None:
        written = os.write(self._descriptor, content)
        rest = memoryview(content)
        while written < len(rest):
            rest = rest[written:]
            written = os.write(self._descriptor, rest)
