"""A node's black box: the URL it is parsing, readable by others after its process died of it.

Native parsers face hostile bytes. The URL is put into a small file-backed memory map before each parse (a microsecond,
no system call) and taken out when the batch is done, so that whoever finds a dead node knows what killed it.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

URL_BYTES_MAX = 4080
_HEAD = struct.Struct("<dI")
_SIZE_BYTES = 4096


class BlackBox:
    """The writing side, held by the node."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Truncating would do, but writing to a map without space behind it kills the process.
            os.posix_fallocate(fd, 0, _SIZE_BYTES)
            self._map = mmap.mmap(fd, _SIZE_BYTES)
        finally:
            os.close(fd)
        self.clear()

    def parsing(self, url: str) -> None:
        raw = url.encode()[:URL_BYTES_MAX]
        end = _HEAD.size + len(raw)
        self._map[_HEAD.size : end] = raw
        self._map[: _HEAD.size] = _HEAD.pack(time.time(), len(raw))

    def clear(self) -> None:
        self._map[: _HEAD.size] = _HEAD.pack(0.0, 0)

    def close(self) -> None:
        self._map.close()


def read_blackbox(path: Path) -> tuple[str, float]:
    """The URL that was being parsed and since when; nothing when none was."""
    try:
        data = path.read_bytes()
    except OSError:
        return "", 0.0
    if len(data) < _HEAD.size:
        return "", 0.0
    since, length = _HEAD.unpack_from(data)
    return data[_HEAD.size : _HEAD.size + length].decode("utf-8", "replace"), since
