"""One request and what came back: what a `Fetcher` hands to whoever started it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pycurl

from drumlin.fetch.kept import Choice
from drumlin.http.headers import final_block

BLANK_LINES = frozenset({b"\r\n", b"\n"})


class Transfer:
    """One request on one pooled handle, and after it what came back.

    `failure` is empty when a complete response arrived; who keeps one that was cut short empties it and says why in
    `truncated`. `first_byte` and `finished` are on the fetcher's clock.
    `too_late` says that nothing was sent, because `may_send` forbade it at the last moment; `stale` that a connection
    which was not new broke before any answer, so that the server may never have seen the request.
    """

    __slots__ = (
        "body",
        "choice",
        "context",
        "cookie",
        "crowded",
        "curl",
        "error",
        "failure",
        "finished",
        "first_byte",
        "header_lines",
        "idle_s",
        "ip",
        "is_shut",
        "may_send",
        "on_done",
        "origin",
        "own_limit",
        "own_target",
        "protocol",
        "refused",
        "sends",
        "stale",
        "started",
        "status",
        "too_late",
        "truncated",
        "url",
    )

    def __init__(self, curl: Any) -> None:
        self.curl = curl
        self.header_lines: list[bytes] = []
        self.body = io.BytesIO()
        """A buffer, not a list of pieces: a server that sends two bytes at a time would make millions of those."""
        self.url = ""
        self.context: Any = None
        self.on_done: Callable[[Transfer], None]
        self.status = 0
        self.protocol = ""
        self.ip = ""
        self.failure = ""
        self.truncated = ""
        self.error = ""
        self.refused = False
        self.may_send: Callable[[], bool] | None = None
        self.too_late = False
        self.sends = 0
        self.stale = self.crowded = False
        self.is_shut: Callable[[int], bool] | None = None
        self.choice = Choice(False, True)
        self.origin = ""
        self.idle_s = 0.0
        self.cookie = ""
        self.own_limit = False
        self.own_target = False
        self.started = self.first_byte = self.finished = 0.0

    def before_send(self, ip: str, local_ip: str, port: int, local_port: int) -> int:
        """libcurl repeats a request at once when a kept connection breaks before the answer. The server may have seen
        the first, and two contacts so close are against the host's delay: the repetition is refused. Nor may anything
        be sent that was allowed when it began and is not any more: connecting takes time, and a process can freeze.
        Nothing leaves on a connection that we have shut, so that it may be repeated."""
        if self.is_shut is not None and not self.too_late and self.is_shut(local_port):
            return int(pycurl.PREREQFUNC_OK)
        self.sends += 1
        if self.sends == 1 and self.may_send is not None and not self.may_send():
            self.too_late = True
        return int(pycurl.PREREQFUNC_OK if self.sends == 1 and not self.too_late else pycurl.PREREQFUNC_ABORT)

    @property
    def has_head(self) -> bool:
        """Whether the head of the answer came as far as its blank line."""
        return bool(self.body_bytes) or any(line in BLANK_LINES for line in self.header_lines[-1:])

    @property
    def body_bytes(self) -> int:
        return self.body.getbuffer().nbytes

    def response_headers(self) -> bytes:
        """The header block of the final response: neither what came before it (100 Continue, 103) nor trailers."""
        return final_block(b"".join(self.header_lines))


def header_taker(transfer: Transfer, clock: Callable[[], float]) -> Callable[[bytes], None]:
    """Takes header lines, and the time of the first: by then the server has read the request. libcurl's own time of the
    first byte will not do: it was seen to lie some milliseconds before the server read anything."""
    lines = transfer.header_lines

    def take(line: bytes) -> None:
        if not lines:
            transfer.first_byte = clock()
        lines.append(line)

    return take
