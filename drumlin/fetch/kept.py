"""Kept connections: which may be used again, and which their server has closed or is about to.

Servers close a connection that nobody uses for a while: after one, two or five seconds, seldom more. A request that
meets the closing is lost, the server may or may not have seen it, and with a delay as long as the server's limit a
third of all requests would be. So idle sockets are watched. What a server closes tells its limit; what it leaves open
tells how long it waits at least. A connection is used again only if it was idle for clearly less than that.

Until anything is known, one connection is left idle to learn from, and each request opens one that is not kept. libcurl
looks for dead connections once a second at most and would choose among all of an origin. So those that must not be used
are shut here: nothing can leave on them, and what libcurl tries on them may be repeated at once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

SURE_S = 0.5
"""No server closes a connection after so short a time."""
MARGIN_S = 0.25
MARGIN_SHARE = 0.1
"""By how much an idle time must be below what a server is known to grant."""
LEARNT_GAPS = 2
"""A server is known to wait long enough when it has waited for so many times what lies between two requests."""
ORIGINS_MAX = 20_000
"""Servers that are remembered; beyond it all are forgotten and learnt again."""


class Choice(NamedTuple):
    """How to send a request: on a new connection, or also on one that is there; and whether to keep it afterwards."""

    fresh: bool
    keep: bool


_AS_EVER = Choice(False, True)
_ONCE = Choice(True, False)


class KeptConnections:
    """The idle connections of a fetcher by origin, and what each server is known to grant. Knows sockets by number;
    `unwatch` hears of those that are ended here."""

    def __init__(self, unwatch: Callable[[int], None]) -> None:
        self._unwatch = unwatch
        self._sockets: dict[int, tuple[str, int]] = {}
        """Of each socket of ours its origin and its inode: a number may be given to another file."""
        self._idle: dict[str, dict[int, float]] = {}
        """Since when each idle socket of an origin is idle, the one that became so last at the end."""
        self._shut_ports: dict[int, tuple[int, int]] = {}
        """Sockets that were ended here, by their own ports."""
        self._ended: dict[str, float] = {}
        """When the last answer of an origin ended."""
        self._closes_s: dict[str, float] = {}
        """After how long a server was seen to close a connection."""
        self._grants_s: dict[str, float] = {}
        """How long a server was seen to leave one open."""

    def opened(self, number: int, origin: str) -> None:
        self.used(number)
        self._sockets[number] = (origin, os.fstat(number).st_ino)

    def forget(self, number: int) -> None:
        """A number has gone to a socket that is not ours to judge."""
        self.used(number)
        self._sockets.pop(number, None)

    def used(self, number: int) -> None:
        """A socket is at work again, or its number has gone to another."""
        origin, _ = self._sockets.get(number, ("", 0))
        waiting = self._idle.get(origin)
        if waiting is not None and waiting.pop(number, None) is not None and not waiting:
            del self._idle[origin]

    def rests(self, number: int, now: float) -> bool:
        """A socket has nothing to do; whether it is one of ours, to be watched."""
        known = self._sockets.get(number)
        if known is None:
            return False
        self._idle.setdefault(known[0], {})[number] = now
        return True

    def rested(self, number: int, now: float) -> None:
        """A socket that is known to be idle was used meanwhile."""
        waiting = self._idle.get(self._sockets.get(number, ("", 0))[0])
        if waiting is not None and waiting.pop(number, None) is not None:
            waiting[number] = now

    def ended(self, origin: str, now: float) -> None:
        """An answer has come to its end."""
        if len(self._ended) >= ORIGINS_MAX:
            for known in (self._ended, self._closes_s, self._grants_s):
                known.clear()
            self._shut_ports.clear()
        self._ended[origin] = now

    def gap_s(self, origin: str, now: float) -> float:
        """How long ago the last answer of an origin ended."""
        return now - self._ended.get(origin, now)

    def closed(self, number: int, now: float) -> bool:
        """Whether an event of a socket means that its server has closed it while it was idle, which tells how long the
        server waits."""
        origin, _ = self._sockets.get(number, ("", 0))
        since = self._idle.get(origin, {}).get(number)
        if since is None:
            return False
        self._shut(number)
        self.broke(origin, now - since)
        return True

    def broke(self, origin: str, idle_s: float) -> None:
        """A connection that had been idle for so long was closed."""
        self._closes_s[origin] = min(idle_s, self._closes_s.get(origin, idle_s))

    def choose(self, origin: str, now: float) -> Choice:
        """How to send the next request to an origin."""
        waiting = self._idle.get(origin, {})
        gap_s = self.gap_s(origin, now)
        if not waiting:
            return _AS_EVER if self._is_safe(origin, gap_s) or origin not in self._closes_s else _ONCE
        if now - next(iter(waiting.values())) < SURE_S:
            return _AS_EVER
        return self._weigh(origin, waiting, gap_s, now)

    def _weigh(self, origin: str, waiting: dict[int, float], gap_s: float, now: float) -> Choice:
        """Choose for an origin whose connections have been idle for a while."""
        for number in [number for number in waiting if not self._is_open(number)]:
            self.used(number)
        ages = {number: now - since for number, since in waiting.items()}
        if not ages:
            return _AS_EVER
        longest_s = max(ages.values())
        if origin not in self._closes_s:
            self._grants_s[origin] = max(longest_s, self._grants_s.get(origin, 0.0))
        if self._is_safe(origin, longest_s):
            return _AS_EVER
        if origin not in self._closes_s and not self._is_safe(origin, LEARNT_GAPS * gap_s):
            return _ONCE  # and watch the idle ones further
        fit = False
        for number, age_s in ages.items():
            if self._is_safe(origin, age_s):
                fit = True
            else:
                self._shut(number)
        return _AS_EVER if fit or self._is_safe(origin, gap_s) else _ONCE

    def is_shut(self, port: int) -> bool:
        """Whether the connection from this port of ours was ended here, so that nothing can be sent on it."""
        number, inode = self._shut_ports.pop(port, (-1, 0))
        return number >= 0 and _inode(number) == inode

    def _is_safe(self, origin: str, idle_s: float) -> bool:
        """Whether a connection can be used that was idle for so long."""
        granted_s = self._closes_s.get(origin, self._grants_s.get(origin, 0.0))
        return idle_s < SURE_S or idle_s * (1.0 + MARGIN_SHARE) + MARGIN_S <= granted_s

    def _is_open(self, number: int) -> bool:
        return _inode(number) == self._sockets[number][1]

    def _shut(self, number: int) -> None:
        """End a connection. Should libcurl choose it all the same, nothing leaves this machine."""
        self.used(number)
        self._unwatch(number)
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
            port = connection.getsockname()[1]
            connection.shutdown(socket.SHUT_RDWR)
            self._shut_ports[port] = (number, self._sockets[number][1])


def _inode(number: int) -> int:
    """What tells an open file from all others; 0 when the number is of none."""
    try:
        return os.fstat(number).st_ino
    except OSError:
        return 0


def origin_of(url: str) -> str:
    """Scheme and authority of a URL."""
    return url[: url.index("/", len("https://"))]
