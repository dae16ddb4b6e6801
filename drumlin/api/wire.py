"""HTTP on the wire, with limits that uvicorn does not have: on the size and the time of a request's head, and on how
long an answer waits for a client that does not read it.

A connection that says nothing is closed after `SILENT_S_MAX`; a head that has begun must be complete within
`HEAD_S_MAX` and `HEAD_BYTES_MAX`. So nobody can hold memory or connections without making a request. A head that comes
in one piece, as nearly all do, costs nothing extra.

A client that has left much unread for `UNREAD_S_MAX`, or anything of an answer after which the connection ends, is cut
off. The server alone would wait for it for ever, with the answer in memory and perhaps a second one behind it.

Small answers go out in one piece. Uvicorn writes head and body one after the other, and each would cost a packet, a
system call and a wake-up of the reader.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from drumlin.api.bodies import PIECE_BYTES
from drumlin.api.routing import ARRIVED, CUT, GONE, STREAMS

HEAD_BYTES_MAX = 96 * 1024
"""More than the application accepts, so its better answer is given where possible."""
PARSED_TARGET_BYTES_MAX = 65_535
"""The longest path and query that the parser can read."""
HEAD_S_MAX = 10.0
SILENT_S_MAX = 30.0
UNREAD_S_MAX = 30.0
UNREAD_BYTES_MAX = 64 * 1024
"""What may wait for a client without a limit of time, while its connection lasts. asyncio's own bound is the same, but
eight times as high with TLS."""
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


# A connection that is closed by `close` with this sends nothing more, not even what the kernel has taken already.
_AT_ONCE = struct.pack("ii", 1, 0)


class _Gathering:
    """A transport that sends small things that are written within one turn of the event loop in one piece. `closing` is
    called when the connection ends as soon as all is sent."""

    __slots__ = ("_closing", "_loop", "_parts", "_transport")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, closing: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._closing = closing
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        if len(data) >= PIECE_BYTES:
            # Before the next piece is written, the transport must be able to say that it has enough.
            self._flush()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        self._flush()
        self._transport.close()
        self._closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, with limits on heads, on silence, and on answers that are not read."""

    url = b""
    _in_head = True
    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(high=UNREAD_BYTES_MAX)
        gathering = _Gathering(transport, self.loop, self._limit_rest)
        super().connection_made(cast("asyncio.Transport", gathering))
        self._timer = self.loop.call_later(SILENT_S_MAX, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_unread_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._limit_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread_timer()
        if self.transport.is_closing():
            self._limit_rest()

    def eof_received(self) -> None:
        """The client sends no more, and the transport closes as soon as it has read the rest."""
        self._limit_rest()

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
        scope[CUT] = self._cut

    def _stream_begins(self) -> None:
        """Let little wait for a client that does not read, so it is noticed soon."""
        self.transport.set_write_buffer_limits(high=STREAM_UNREAD_BYTES_MAX)
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_UNREAD_BYTES_MAX)

    def _cut(self) -> None:
        """End the connection at once, if it has not ended yet. The kernel, too, would keep what nobody reads."""
        if self not in self.connections:
            return
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def _limit_unread(self) -> None:
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(UNREAD_S_MAX, self._cut)

    def _limit_rest(self) -> None:
        """Limit the time of what is left to be sent before the connection ends."""
        if self.transport.get_write_buffer_size():
            self._limit_unread()

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

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
