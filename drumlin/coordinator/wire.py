"""HTTP on the wire, with the limits that the server's parser does not have: on the head of a request, in size and time.

A connection that says nothing is closed after `SILENT_S_MAX`; a head that has begun must be complete within
`HEAD_S_MAX` and `HEAD_BYTES_MAX`. So nobody can hold memory or connections without saying what for. A head that comes
in one piece, which nearly all do, costs nothing extra.

Answers go out in one piece: the server writes head and body one after the other, and each would be a packet, a system
call and a wake-up of the reader.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from drumlin.coordinator.routing import GONE

HEAD_BYTES_MAX = 96 * 1024
"""More than the application accepts of path, query and headers, so that it is the one to answer where it can."""
HEAD_S_MAX = 10.0
SILENT_S_MAX = 30.0

_TOO_LARGE = (
    b'{"error":{"code":"headers_too_large","message":"The head of the request is too large.","hint":"Send less."}}'
)
_ANSWER = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    b"connection: close\r\n\r\n%b" % (len(_TOO_LARGE), _TOO_LARGE)
)


class _Gathering:
    """A transport that sends at once what is written within one turn of the loop."""

    __slots__ = ("_loop", "_parts", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedProtocol(HttpToolsProtocol):
    """The server's protocol, with a bound on heads and on silence."""

    _in_head = True
    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _Gathering(transport, self.loop)))
        self._timer = self.loop.call_later(SILENT_S_MAX, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()
        scope = cast("dict[str, Any]", self.scope)
        scope[GONE] = self.transport.is_closing

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_goes_on(len(data))

    def _head_goes_on(self, size: int) -> None:
        """The head is not complete yet: count it, and give it a moment."""
        first = self._head_bytes == 0
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            self._stop_timer()
            self.transport.write(_ANSWER)
            self.transport.close()
        elif first:
            self._stop_timer()
            self._timer = self.loop.call_later(HEAD_S_MAX, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
