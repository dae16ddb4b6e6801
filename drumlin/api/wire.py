"""HTTP on the wire, with limits that uvicorn's parser does not have: on the size and the time of a request's head.

A connection that says nothing is closed after `SILENT_S_MAX`; a head that has begun must be complete within
`HEAD_S_MAX` and `HEAD_BYTES_MAX`. So nobody can hold memory or connections without making a request. A head that comes
in one piece, as nearly all do, costs nothing extra.

Answers go out in one piece. Uvicorn writes head and body one after the other, and each would cost a packet, a system
call and a wake-up of the reader.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from drumlin.api.routing import ARRIVED, GONE, STREAMS

HEAD_BYTES_MAX = 96 * 1024
"""More than the application accepts, so its better answer is given where possible."""
PARSED_TARGET_BYTES_MAX = 65_535
"""The longest path and query that the parser can read."""
HEAD_S_MAX = 10.0
SILENT_S_MAX = 30.0
STREAM_UNREAD_BYTES_MAX = 16 * 1024
"""How much of a stream may wait here, and in the kernel, for a client that does not read."""


def _refusal(status: bytes, code: bytes, message: bytes, hint: bytes) -> bytes:
    """A whole answer in the form that all refusals have. The connection is closed after it."""
    body = b'{"error":{"code":"%b","message":"%b","hint":"%b"}}' % (code, message, hint)
    head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return b"HTTP/1.1 " + status + b"\r\n" + head + body


_TOO_LARGE = _refusal(
    b"431 Request Header Fields Too Large",
    b"headers_too_large",
    b"The head of the request is too large.",
    b"Send less.",
)
_TOO_LONG = _refusal(
    b"414 URI Too Long", b"target_too_long", b"Path and query are far too long.", b"Send URLs in the body."
)
_NOT_HTTP = _refusal(
    b"400 Bad Request", b"invalid_request", b"This cannot be read as an HTTP request.", b"Check what sends it."
)


class _Gathering:
    """A transport that sends everything that is written within one turn of the event loop in one piece."""

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
    """Uvicorn's protocol, with limits on heads and on silence."""

    url = b""
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
        scope, cycle = cast("dict[str, Any]", self.scope), self.cycle
        scope[GONE] = self.transport.is_closing
        scope[ARRIVED] = lambda: not cycle.more_body
        scope[STREAMS] = self._stream_begins

    def _stream_begins(self) -> Callable[[], None]:
        """Let little wait for a client that does not read, so it is noticed soon. Returns what cuts the connection."""
        self.transport.set_write_buffer_limits(high=STREAM_UNREAD_BYTES_MAX)
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_UNREAD_BYTES_MAX)
        return self.transport.abort

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_goes_on(len(data))

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser cannot read. Uvicorn's own answer would be plain text."""
        self.transport.write(_TOO_LONG if len(self.url) > PARSED_TARGET_BYTES_MAX else _NOT_HTTP)
        self.transport.close()

    def _head_goes_on(self, size: int) -> None:
        """Count the bytes of a head that is not complete yet, and limit its time."""
        first = self._head_bytes == 0
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            self._stop_timer()
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif first:
            self._stop_timer()
            self._timer = self.loop.call_later(HEAD_S_MAX, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
