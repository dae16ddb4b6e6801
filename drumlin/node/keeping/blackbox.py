"""A node's black box: the URL that it is parsing, which others can read after the process has died.

Native parsers get hostile bytes, and one of them may crash. So the URL is written to a small memory-mapped file before
each parse, and removed when the batch is done. The kernel keeps what was written even if the process is killed in the
next moment. Writing takes a microsecond, since it needs no system call.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from drumlin.node.limits import start_parse_clock, stop_parse_clock

URL_BYTES_MAX = 3072
ASSIGNMENT_BYTES_MAX = 1000
_HEAD = struct.Struct("<dII")
_SIZE_BYTES = 4096


class BlackBox:
    """The writing side, held by the node."""

    def __init__(self, path: Path, *, timed: bool = False) -> None:
        """With `timed` a parse that takes too much CPU time ends the process."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # `truncate` would not reserve the space: if the disk is full, writing to the map would kill the process.
            os.posix_fallocate(fd, 0, _SIZE_BYTES)
            self._map = mmap.mmap(fd, _SIZE_BYTES)
        finally:
            os.close(fd)
        self._timed = timed
        self._assignments: Mapping[str, str] = {}
        self.clear()

    def reading(self, assignments: Mapping[str, str]) -> None:
        """Set the assignments of the URLs that are parsed next."""
        self._assignments = assignments

    def parsing(self, url: str) -> None:
        raw = url.encode()[:URL_BYTES_MAX]
        assignment = self._assignments.get(url, "").encode()[:ASSIGNMENT_BYTES_MAX]
        start = _HEAD.size
        self._map[start : start + len(raw)] = raw
        self._map[start + URL_BYTES_MAX : start + URL_BYTES_MAX + len(assignment)] = assignment
        self._map[:start] = _HEAD.pack(time.monotonic(), len(raw), len(assignment))
        if self._timed:
            start_parse_clock()

    def clear(self) -> None:
        self._map[: _HEAD.size] = _HEAD.pack(0.0, 0, 0)
        if self._timed:
            stop_parse_clock()

    def close(self) -> None:
        self._map.close()


def read_blackbox(path: Path) -> tuple[str, float]:
    """The URL that was being parsed, and since when by this machine's `time.monotonic`; "" if none was."""
    since, url, _ = _read(path)
    return url, since


def read_struck(path: Path) -> tuple[str, str]:
    """The URL that was being parsed, and its assignment; "" if none was."""
    _, url, assignment = _read(path)
    return url, assignment


def _read(path: Path) -> tuple[float, str, str]:
    try:
        data = path.read_bytes()
    except OSError:
        return 0.0, "", ""
    if len(data) < _SIZE_BYTES:
        return 0.0, "", ""
    since, url_bytes, assignment_bytes = _HEAD.unpack_from(data)
    start, after = _HEAD.size, _HEAD.size + URL_BYTES_MAX
    url = data[start : start + url_bytes].decode("utf-8", "replace")
    return since, url, data[after : after + assignment_bytes].decode("utf-8", "replace")
