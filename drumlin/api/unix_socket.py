"""A Unix socket that only its owner can open, from the moment it exists."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator

from drumlin.errors import BusyError, StorageError

PRIVATE = 0o600


@contextlib.contextmanager
def private_socket(path: str, backlog: int, hint: str = "Choose another path.") -> Iterator[socket.socket]:
    """A socket that listens at `path`; the path is removed afterwards. A socket that a dead process left is
    replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_dead(path)
        _bind(listener, path, backlog)
        made = os.stat(path).st_ino
    except OSError as cause:
        listener.close()
        reason = "the path is too long" if cause.errno is None else cause.strerror
        raise StorageError(f"Cannot listen on {path}: {reason}.", hint) from cause
    except BaseException:
        listener.close()
        raise
    try:
        yield listener
    finally:
        listener.close()
        with contextlib.suppress(OSError):
            if os.stat(path).st_ino == made:
                os.unlink(path)


def _bind(listener: socket.socket, path: str, backlog: int) -> None:
    # When the socket is bound, the kernel gives the file the socket's mode, minus the umask. So there is no moment at
    # which others could connect.
    os.fchmod(listener.fileno(), PRIVATE)
    listener.bind(path)
    # The umask may have taken rights away even from the owner.
    os.chmod(path, PRIVATE)
    listener.listen(backlog)


def _remove_dead(path: str) -> None:
    """Remove a socket on which nobody listens; raise an error for anything else at this path."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StorageError(f"Cannot listen on {path}: something else is there.", "Choose another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        refused = probe.connect_ex(path)
    if refused not in (errno.ECONNREFUSED, errno.ENOENT):
        raise BusyError(f"Another program listens on {path}.", "Stop it, or choose another path.")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
