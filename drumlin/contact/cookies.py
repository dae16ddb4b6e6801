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
"""Redirects of one host whose cookies are remembered; the oldest are forgotten."""
HOST_CHARS_MAX = 2 * 1024 * 1024
"""What the jars of one host may hold together: then its own are forgotten, not those of others."""
CHARS_MAX = 4 * HOST_CHARS_MAX
JAR_CHARS = 300
"""What a jar takes by itself, in memory; the URL that it belongs to comes on top."""


class _Kept:
    """Jars by what they belong to, in the order of their age, and how much they hold."""

    def __init__(self) -> None:
        self.jars: OrderedDict[str, Jar] = OrderedDict()
        self.chars = 0

    def learn(self, key: str, said: list[str], url: str, now: float) -> int:
        """Take what an answer sets. How much more is held now."""
        before = self.chars
        jar = self.jars.pop(key, None)
        if jar is None:
            jar = Jar()
        else:
            self.chars -= _chars(key, jar)
        jar.take(said, url, now)
        self.jars[key] = jar
        self.chars += _chars(key, jar)
        while self.chars > HOST_CHARS_MAX or len(self.jars) > JARS_MAX:
            self.forget_oldest()
        return self.chars - before

    def forget_oldest(self) -> int:
        """Forget one jar. How much it held."""
        key, jar = self.jars.popitem(last=False)
        self.chars -= _chars(key, jar)
        return _chars(key, jar)


def _chars(key: str, jar: Jar) -> int:
    return JAR_CHARS + len(key) + jar.chars


class Cookies:
    """The jars of a node: one for each redirect that set a cookie, or one for each host."""

    def __init__(self, mode: CookieMode) -> None:
        self._mode = mode
        self._hosts: OrderedDict[str, _Kept] = OrderedDict()
        """The host that was heard of last is at the end."""
        self.chars = 0

    @property
    def of_hosts(self) -> bool:
        """Whether every answer may set a cookie, and not only redirects."""
        return self._mode == COOKIES_HOST

    def learn(self, head: bytes, url: str, now: float) -> None:
        """Take what the answer from `url` sets: a redirect, or any answer if cookies are kept for hosts."""
        said = header_values(head, "set-cookie") if self._mode != COOKIES_NONE else []
        if not said:
            return
        host = host_of(url)
        kept = self._hosts.setdefault(host, _Kept())
        self._hosts.move_to_end(host)
        self.chars += kept.learn(url if self._mode == COOKIES_CHAIN else host, said, url, now)
        while self.chars > CHARS_MAX:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forget a jar of the host that has been silent for longest."""
        host, kept = next(iter(self._hosts.items()))
        self.chars -= kept.forget_oldest()
        if not kept.jars:
            del self._hosts[host]

    def header(self, url: str, chain: tuple[str, ...] | list[str]) -> str:
        """The Cookie header of a request for `url`, which the redirects in `chain` led to; often empty."""
        host = host_of(url) if self._hosts else ""
        kept = self._hosts.get(host)
        if kept is None:
            return ""
        if self._mode == COOKIES_HOST:
            jar = kept.jars.get(host)
            return jar.header(url) if jar else ""
        together = Jar()
        for before in chain:
            set_there = kept.jars.get(before)
            if set_there is not None:
                together.add(set_there)
        return together.header(url)
