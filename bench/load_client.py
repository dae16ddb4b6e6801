"""A keep-alive HTTP/1.1 connection for the load generator: no library in between, one request at a time.

It understands what a coordinator answers (a status line and a body with a Content-Length) and nothing else. Ten
thousand of these live in one process, so they hold little and do little.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from ssl import SSLContext
from typing import cast

OnReply = Callable[[int, bytes], None]
OnLost = Callable[["Connection"], None]

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class Connection(asyncio.Protocol):
    """Sends a request and passes on the reply. `on_lost` is called when either side ends the connection."""

    __slots__ = ("_on_lost", "_on_reply", "_received", "_transport", "_whole")

    def __init__(self, on_lost: OnLost) -> None:
        self._on_lost = on_lost
        self._on_reply: OnReply | None = None
        self._received = b""
        self._whole = 0
        self._transport: asyncio.Transport | None = None

    @property
    def busy(self) -> bool:
        return self._on_reply is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, on_reply: OnReply) -> None:
        assert self._transport is not None
        self._on_reply = on_reply
        self._transport.write(request)

    def abort(self) -> None:
        """End the connection at once: nothing more is sent or received."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        if not self._whole:
            self._whole = whole_length(self._received)
        if self._whole and len(self._received) >= self._whole:
            self._deliver()

    def _deliver(self) -> None:
        received, on_reply = self._received, self._on_reply
        self._received, self._whole, self._on_reply = b"", 0, None
        if on_reply is not None:
            on_reply(int(received[9:12]), received[received.index(_HEAD_END) + 4 :])

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._on_lost(self)


def whole_length(received: bytes) -> int:
    """How many bytes the reply that begins here has in all; 0 while its head is not complete."""
    end = received.find(_HEAD_END)
    if end < 0:
        return 0
    start = received.find(_LENGTH, 0, end)
    if start < 0:
        # No body is announced: 204 and the like.
        return end + 4
    line_end = received.find(b"\r\n", start)
    return end + 4 + int(received[start + len(_LENGTH) : line_end])


async def connect(host: str, port: int, on_lost: OnLost, tls: SSLContext | None = None) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(on_lost), host, port, ssl=tls)
    return connection
