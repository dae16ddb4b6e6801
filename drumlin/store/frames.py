"""The frames that journals are made of: length (4 bytes), crc32 (4 bytes), content.

Reading stops at the first torn frame. That is safe: its process died before it acted on what the frame says, or the
frame was a coordinator's answer, which recovery asks for again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

_HEAD = struct.Struct("<II")


def framed(content: bytes) -> bytes:
    return _HEAD.pack(len(content), zlib.crc32(content)) + content


def frames(journal: bytes) -> Iterator[tuple[bytes, int]]:
    """The content of each whole frame, and where the frame ends."""
    end = 0
    while end + _HEAD.size <= len(journal):
        length, checksum = _HEAD.unpack_from(journal, end)
        start = end + _HEAD.size
        content = journal[start : start + length]
        if len(content) < length or zlib.crc32(content) != checksum:
            return
        end = start + length
        yield content, end
