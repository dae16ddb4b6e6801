"""A node's journal: what it has archived, written down before the coordinator hears of it.

A segment's journal holds, batch by batch, the results sent and where their captures lie in the WARC files. It is
deleted when the segment's tables are complete. So a journal found at start belongs to a node that died: its results are
sent again (settling twice changes nothing) and its rows are read again from the archive.

A frame is: length (4 bytes), crc32 (4 bytes), MessagePack of a list of entries. A torn frame ends the journal: what it
would have said was never sent.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import msgspec

from drumlin.protocol import Result
from drumlin.store import FetchRecord
from drumlin.store.disk import AppendFile, remove

JOURNAL_SUFFIX = ".journal"
_FRAME = struct.Struct("<II")


class Entry(msgspec.Struct, array_like=True):
    """One result with what its table rows need beyond the archive. No `warc_filename`: nothing was captured."""

    result: Result
    fetch: FetchRecord
    warc_filename: str
    warc_offset: int
    found_on: str


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Entry])


class Journal:
    """The journal of the segment being written."""

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path = path
        self._file = AppendFile(path, sync=sync)

    def append(self, entries: list[Entry]) -> None:
        """Write down a batch; it survives kill -9 once this returns, and power loss with `sync`."""
        payload = _encoder.encode(entries)
        self._file.append(_FRAME.pack(len(payload), zlib.crc32(payload)) + payload)

    def delete(self) -> None:
        """Forget the segment: its tables are complete."""
        self._file.close()
        remove(self.path)

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> list[Entry]:
    """All entries of a journal up to its torn end, if it has one."""
    data = path.read_bytes()
    entries: list[Entry] = []
    position = 0
    while position + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, position)
        position += _FRAME.size
        payload = data[position : position + length]
        if len(payload) < length or zlib.crc32(payload) != checksum:
            break
        entries.extend(_decoder.decode(payload))
        position += length
    return entries
