"""The frames that journals are made of: length (4 bytes), crc32 (4 bytes), content.

Reading stops at the first torn frame. That is safe: its process died before it acted on what the frame says, or the
frame was a coordinator's answer, which recovery asks for again.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

_HEAD = struct.Struct("<II")


def framed(content: bytes) -> bytes:
    return _HEAD.pack(len(content), zlib.crc32(content)) + content


def frames(journal: bytes) -> Iterator[tuple[bytes, int]]:
    """The content of each whole frame, and where the frame ends."""
    return frames_in(io.BytesIO(journal), len(journal))


def frames_in(journal: BinaryIO, bytes_max: int) -> Iterator[tuple[bytes, int]]:
    """The same of a file, which is read frame by frame, and no further than this."""
    end = 0
    while len(head := journal.read(_HEAD.size)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        end += _HEAD.size + length
        if end > bytes_max:
            return
        content = journal.read(length)
        if len(content) < length or zlib.crc32(content) != checksum:
            return
        yield content, end


def decompressed(packed: bytes, bytes_max: int) -> bytes:
    """What is packed, if it is no larger than this. The library itself believes whatever size a frame states."""
    if zstandard.frame_content_size(packed) > bytes_max:
        raise ValueError(f"more than {bytes_max:,} bytes are packed into {len(packed):,}")
    return zstandard.ZstdDecompressor(max_window_size=1 << 27).decompress(packed, max_output_size=bytes_max)
