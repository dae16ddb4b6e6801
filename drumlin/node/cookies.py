"""What cookies a node sends back: along a chain of redirects, to a whole host, or none.

They are kept in memory, bounded, and nowhere else: no log and no table shows one. (The archive does, in the request
that sent it.)
"""

from __future__ import annotations

from collections import OrderedDict

from drumlin.config.settings import COOKIES_CHAIN, COOKIES_HOST, COOKIES_NONE, CookieMode
from drumlin.http.cookies import Jar
from drumlin.http.headers import header_values
from drumlin.urls import host_of

JARS_MAX = 5_000
"""Redirects, or hosts, whose cookies are remembered; the oldest are forgotten."""


class Cookies:
    """The jars of a node: one for each redirect that set a cookie, or one for each host."""

    def __init__(self, mode: CookieMode) -> None:
        self._mode = mode
        self._jars: OrderedDict[str, Jar] = OrderedDict()

    @property
    def of_hosts(self) -> bool:
        """Whether every answer may set a cookie, and not only redirects."""
        return self._mode == COOKIES_HOST

    def learn(self, head: bytes, url: str, now: float) -> None:
        """Take what the answer from `url` sets: a redirect, or any answer if cookies are kept for hosts."""
        said = header_values(head, "set-cookie") if self._mode != COOKIES_NONE else []
        if not said:
            return
        key = url if self._mode == COOKIES_CHAIN else host_of(url)
        self._jars.setdefault(key, Jar()).take(said, url, now)
        self._jars.move_to_end(key)
        if len(self._jars) > JARS_MAX:
            self._jars.popitem(last=False)

    def header(self, url: str, chain: tuple[str, ...] | list[str]) -> str:
        """The Cookie header of a request for `url`, which the redirects in `chain` led to; often empty."""
        if not self._jars:
            return ""
        if self._mode == COOKIES_HOST:
            jar = self._jars.get(host_of(url))
            return jar.header(url) if jar else ""
        together, host = Jar(), host_of(url)
        for before in chain:
            set_there = self._jars.get(before)
            if set_there is not None and host_of(before) == host:
                together.add(set_there)
        return together.header(url)
