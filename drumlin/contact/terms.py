"""The terms of the law of contact: moments, answers, and the settings that it goes by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from drumlin.config.settings import COOKIES_NONE, CookieMode
from drumlin.http.type_limits import TypeLimits

HOST_PATIENCE_S = 7 * 86_400.0


class Moment(msgspec.Struct, frozen=True):
    """The same moment on three clocks. `boot` decides when a host may be contacted: it never jumps, and nobody else has
    it. `wall` is the calendar, which sites speak of. `shared` is the coordinators' time, which notes speak of."""

    boot: float
    wall: float
    shared: float


class Answer(Protocol):
    """What came of a request, as far as it matters here. A `Transfer` is one."""

    @property
    def status(self) -> int: ...

    @property
    def failure(self) -> str: ...

    @property
    def error(self) -> str: ...

    @property
    def sends(self) -> int: ...

    @property
    def stale(self) -> bool: ...

    @property
    def header_lines(self) -> Sequence[bytes]: ...

    @property
    def has_head(self) -> bool: ...

    @property
    def cookie(self) -> str: ...

    @property
    def started(self) -> float: ...

    @property
    def first_byte(self) -> float: ...

    @property
    def finished(self) -> float: ...

    @property
    def ip(self) -> str: ...

    @property
    def protocol(self) -> str: ...

    def response_headers(self) -> bytes: ...


class ContactSettings(msgspec.Struct, frozen=True):
    """What of the crawl's settings the law goes by."""

    agent: str
    delay_s: float
    per_host: int
    redirects_max: int
    robots_ttl_s: float
    sitemaps: bool
    cookies: CookieMode = COOKIES_NONE
    sitemap_bytes_max: int = 0
    types: TypeLimits | None = None
    """How large bodies may be by their types."""
    host_patience_s: float = HOST_PATIENCE_S
    """How long a host may be out of reach before its URLs are given up."""


class Silence(msgspec.Struct):
    """An answer that never came, kept until it is known who is to blame. (The request itself is long over by then.)"""

    failure: str
    error: str
    sends: int
    started: float
    first_byte: float
    finished: float
    ip: str
    protocol: str
    cookie: str
    status: int = 0
    stale: bool = False
    header_lines: tuple[bytes, ...] = ()
    has_head: bool = False
    body_bytes: int = 0
    truncated: str = ""
    unwanted: str = ""

    def response_headers(self) -> bytes:
        return b""


def silence_of(answer: Answer) -> Silence:
    return Silence(
        answer.failure,
        answer.error,
        answer.sends,
        answer.started,
        answer.first_byte,
        answer.finished,
        answer.ip,
        answer.protocol,
        answer.cookie,
    )
