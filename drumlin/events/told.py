"""A coordinator's log of what it tells of nodes, leases and the crawl. These are in no table, so they are written to a
file first, as frames (`drumlin.store.frames`) in the coordinator's own spool; the sender reads them from there.

What is in the file survives kill -9. It is written before a node hears of a lease: if the coordinator dies in between,
the node never had the lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from drumlin.disk import AppendFile
from drumlin.events.owed import LOG_SUFFIX, owe
from drumlin.events.schema import Message
from drumlin.store.frames import framed, frames_in

LOG_BYTES_MAX: Final = 4 * 1024 * 1024
"""A log of this size is ended, so it can be removed once it is sent."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


class ToldLog:
    """The log that grows. `stamp` makes names that sort in the order of their making, and are never used twice."""

    def __init__(self, spool: Path, stamp: Callable[[], str]) -> None:
        self._spool = spool
        self._stamp = stamp
        self._file: AppendFile | None = None
        self.name = ""

    def append(self, messages: Sequence[Message]) -> None:
        if self._file is None or self._file.size >= LOG_BYTES_MAX:
            self.end()
            name = self._stamp()
            owe(self._spool, name)
            self._file, self.name = AppendFile(self._spool / (name + LOG_SUFFIX)), name
        self._file.append(b"".join(framed(_encode(message)) for message in messages))

    def end(self) -> None:
        """No more comes to this log; the next message begins another."""
        if self._file is not None:
            self._file.close()
        self._file, self.name = None, ""


def messages_from(log: BinaryIO, start: int) -> Iterator[tuple[Message, int]]:
    """The messages of a log from this offset on, each with the offset behind it."""
    log.seek(start)
    for content, end in frames_in(log, _rest(log, start)):
        yield _decode(content), start + end


def _rest(log: BinaryIO, start: int) -> int:
    size = log.seek(0, 2)
    log.seek(start)
    return size - start
