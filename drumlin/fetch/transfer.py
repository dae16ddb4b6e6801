"""One request and its answer: what a `Fetcher` passes to the callback of whoever started it.

This file also keeps the promise that a request is sent at most once, and not after the time until which it was allowed.
`before_send` is called by libcurl when a connection stands and nothing has been sent on it yet. Connecting takes time,
and the process may have been frozen meanwhile: so the lease may have run out since the transfer was started, and the
clock must be read at this moment and not earlier.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pycurl

from drumlin.clock import monotonic
from drumlin.fetch.kept import Choice
from drumlin.http.headers import final_block
from drumlin.http.type_limits import TypeLimits

BLANK_LINES = frozenset({b"\r\n", b"\n"})
UNWANTED = "type"
"""The failure of a transfer that was stopped because the type of its body is not wanted."""
_STATUS_START = b"HTTP/"
_SUCCESS = b"2"
_CONTENT_TYPE = b"content-type:"
_CONTENT_LENGTH = b"content-length:"
# The first letters of these two fields and of a status line: all other lines are skipped after a look at one byte.
_TELLING = frozenset(b"cChH")
_LENGTH_DIGITS_MAX = 19
_STOP = -1
FOREVER = float("inf")


class Transfer:
    """One request on one pooled handle, and after it the answer.

    `failure` is empty if a complete response arrived. A caller that keeps an incomplete one empties `failure` and gives
    the reason in `truncated`. `started`, `first_byte` and `finished` are times of the fetcher's clock.
    `too_late`: nothing was sent, because the connection was established after `send_by`.
    `stale`: a connection that had been used before broke without an answer, so the server may never have seen the
    request. With `types`, a transfer is stopped if the head of the answer shows that the body is not wanted: then
    `failure` is `UNWANTED`, and `unwanted` says why.
    """

    __slots__ = (
        "body",
        "choice",
        "clock",
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
        "on_done",
        "origin",
        "own_limit",
        "own_target",
        "own_timeout",
        "pooled",
        "protocol",
        "refused",
        "send_by",
        "sends",
        "stale",
        "started",
        "status",
        "too_late",
        "truncated",
        "type_limit",
        "types",
        "unwanted",
        "url",
    )

    def __init__(self, curl: Any) -> None:
        self.curl = curl
        self.header_lines: list[bytes] = []
        self.body = io.BytesIO()
        """A buffer and not a list of pieces: a server that sends two bytes at a time would make millions of pieces."""
        self.url = ""
        self.context: Any = None
        """What whoever started it wants to know again when it ends."""
        self.pooled = False
        """Whether its handle is used again when it has been reported. Its caller may keep any other."""
        self.on_done: Callable[[Transfer], None]
        self.status = 0
        self.protocol = ""
        self.ip = ""
        self.failure = ""
        self.truncated = ""
        self.error = ""
        self.refused = False
        self.clock: Callable[[], float] = monotonic
        self.send_by = FOREVER
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
        self.own_timeout = False
        self.types: TypeLimits | None = None
        self.type_limit: int | None = None
        self.unwanted = ""
        self.started = self.first_byte = self.finished = 0.0

    def before_send(self, ip: str, local_ip: str, port: int, local_port: int) -> int:
        """Called by libcurl before it sends the request on a connection that stands: may it?

        Not a second time. libcurl by itself repeats a request at once if a kept connection breaks before the answer.
        But the server may have seen the first one, and two contacts so close may be against the host's delay. Not after
        `send_by` either: the lease may have run out while the connection was being made. Only a send on a connection
        that we have shut down ourselves does not count, because nothing leaves this machine on it.
        """
        if self.is_shut is not None and not self.too_late and self.is_shut(local_port):
            return int(pycurl.PREREQFUNC_OK)
        self.sends += 1
        if self.sends == 1 and self.send_by < FOREVER and self.clock() >= self.send_by:
            self.too_late = True
        return int(pycurl.PREREQFUNC_OK if self.sends == 1 and not self.too_late else pycurl.PREREQFUNC_ABORT)

    def judge_type(self, types: TypeLimits) -> bool:
        """Whether the body is wanted, judged by the head. The body of a redirect or of an error always is. If the head
        does not say how large the body is, `type_limit` is how large it may become."""
        if not types.unbounded_lines.isdisjoint(self.header_lines):
            # The quick way for nearly all pages: the very same Content-Type line was judged before.
            return True
        said: list[bytes] = []
        length = -1
        for line in reversed(self.header_lines):
            if line[0] not in _TELLING:
                continue
            if line.startswith(_STATUS_START):
                if not line.partition(b" ")[2].lstrip().startswith(_SUCCESS):
                    return True
                break
            start = line[: len(_CONTENT_LENGTH)].lower()
            if start.startswith(_CONTENT_TYPE):
                said.insert(0, line)
            elif start == _CONTENT_LENGTH:
                length = _number(line[len(_CONTENT_LENGTH) :].strip())
        return self._permitted(types, said, length)

    def _permitted(self, types: TypeLimits, said: list[bytes], length: int) -> bool:
        content_type = b",".join([line[len(_CONTENT_TYPE) :] for line in said])
        limit = self.type_limit = types.of(content_type)
        if limit is None:
            if len(said) == 1:
                types.remember_unbounded(said[0])
            return True
        if length > limit or (length < 0 and limit == 0):
            self.say_unwanted(content_type, length)
            return False
        return True

    @property
    def outgrown(self) -> bool:
        """Whether the body has become larger than a body of its type may be."""
        return self.type_limit is not None and self.body_bytes > self.type_limit

    def say_unwanted(self, content_type: bytes, length: int) -> None:
        name = content_type.decode("latin-1").strip()[:100]
        much = f" of {length:,} bytes" if length >= 0 else ""
        most = f"more than {self.type_limit:,} bytes of it" if self.type_limit else "it"
        self.unwanted = f"{name}{much}: --types does not permit {most}"

    @property
    def has_head(self) -> bool:
        """Whether the whole head of the answer has arrived, up to its blank line."""
        return bool(self.body_bytes) or any(line in BLANK_LINES for line in self.header_lines[-1:])

    @property
    def body_bytes(self) -> int:
        # The place at which the next piece would be written. `getbuffer` could copy a body that was handed out.
        return self.body.tell()

    def response_headers(self) -> bytes:
        """The header block of the final response, without interim responses (100, 103) and without trailers."""
        return final_block(b"".join(self.header_lines))


def _number(value: bytes) -> int:
    """The value of a Content-Length header; -1 if it is not a length that a body could have."""
    return int(value) if value.isdigit() and len(value) <= _LENGTH_DIGITS_MAX else -1


def header_taker(
    transfer: Transfer, clock: Callable[[], float], limited: set[Transfer]
) -> Callable[[bytes], int | None]:
    """The function to which libcurl gives the header lines of an answer. It notes when the first arrives, since by then
    the server has read the request. (libcurl's own time of the first byte was some milliseconds before the server read
    anything.) After the last line it judges whether the body is wanted, and adds the transfer to `limited` if the size
    of its body is limited by its type."""
    lines = transfer.header_lines

    def take(line: bytes) -> int | None:
        if not lines:
            transfer.first_byte = clock()
        lines.append(line)
        if line in BLANK_LINES and transfer.types is not None:
            if not transfer.judge_type(transfer.types):
                return _STOP
            if transfer.type_limit is not None:
                limited.add(transfer)
        return None

    return take
