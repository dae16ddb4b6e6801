"""Which idle connections may be used again, and which their server has closed or is about to close.

Servers close a connection that nobody uses for a while: after one, two or five seconds, seldom more. If a request is
sent just then it is lost, and nobody knows whether the server has seen it. It cannot simply be repeated, because two
contacts so close may be against the host's delay. With a delay about as long as the server's limit, a third of all
requests were lost like that.

So we watch idle sockets and learn each server's limit. If it closes a connection, its limit is at most the time for
which that was idle; if it leaves one open, its limit is at least that time. A connection is used again only if it was
idle for clearly less than the limit. Until the limit is known, one connection is left idle to learn from, and each
request opens a connection of its own, which is closed afterwards.

libcurl does not let us choose a connection: it takes any of the origin's that it believes to be alive, and looks for
dead ones only once a second. So connections that must not be used are shut down here. If libcurl takes one of them all
the same, nothing leaves this machine, and libcurl may repeat the request at once (`Transfer.before_send`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

SURE_S = 0.5
"""A connection that was idle for less than this is always used: no server closes one so soon."""
MARGIN_S = 0.25
MARGIN_SHARE = 0.1
"""By how much an idle time must be below a server's limit: a share of the idle time, and `MARGIN_S`."""
LEARNT_GAPS = 2
"""We have learnt enough about a server once it left a connection open for so many times our pause between requests."""
ORIGINS_MAX = 20_000
"""How many servers are remembered; when there are more, all are forgotten and learnt again."""


class Choice(NamedTuple):
    """How to send a request. `fresh`: only on a new connection. `keep`: keep the connection open afterwards."""

    fresh: bool
    keep: bool


_AS_EVER = Choice(fresh=False, keep=True)
_ONCE = Choice(fresh=True, keep=False)


class KeptConnections:
    """The idle connections of a fetcher by origin, and the limit that each server is known to have. Sockets are known
    by their file descriptors (`number`); `unwatch` is called with those that are shut down here."""

    def __init__(self, unwatch: Callable[[int], None]) -> None:
        self._unwatch = unwatch
        self._sockets: dict[int, tuple[str, int]] = {}
        """The origin and the inode of each socket. The inode shows whether a number now belongs to another file."""
        self._idle: dict[str, dict[int, float]] = {}
        """For each origin its idle sockets and since when each is idle, in the order in which they became idle."""
        self._shut_ports: dict[int, tuple[int, int]] = {}
        """Sockets that were shut down here (number and inode), by their local ports."""
        self._ended: dict[str, float] = {}
        """When the last answer of an origin ended."""
        self._closes_s: dict[str, float] = {}
        """The shortest idle time after which a server closed a connection."""
        self._grants_s: dict[str, float] = {}
        """The longest time for which a server left an idle connection open."""

    def opened(self, number: int, origin: str) -> None:
        self.used(number)
        self._sockets[number] = (origin, os.fstat(number).st_ino)

    def forget(self, number: int) -> None:
        """A number now belongs to a socket that is not a site's, so it is not watched."""
        self.used(number)
        self._sockets.pop(number, None)

    def used(self, number: int) -> None:
        """A socket is not idle any more: it is used again, or its number now belongs to another socket."""
        origin, _ = self._sockets.get(number, ("", 0))
        waiting = self._idle.get(origin)
        if waiting is not None and waiting.pop(number, None) is not None and not waiting:
            del self._idle[origin]

    def rests(self, number: int, now: float) -> bool:
        """A socket has become idle. Returns whether it is a connection to a site, which should be watched."""
        known = self._sockets.get(number)
        if known is None:
            return False
        self._idle.setdefault(known[0], {})[number] = now
        return True

    def rested(self, number: int, now: float) -> None:
        """A socket that still counts as idle was used meanwhile: it is idle only since `now`."""
        waiting = self._idle.get(self._sockets.get(number, ("", 0))[0])
        if waiting is not None and waiting.pop(number, None) is not None:
            waiting[number] = now

    def ended(self, origin: str, now: float) -> None:
        """An answer of this origin has ended."""
        if len(self._ended) >= ORIGINS_MAX:
            for known in (self._ended, self._closes_s, self._grants_s):
                known.clear()
            self._shut_ports.clear()
        self._ended[origin] = now

    def gap_s(self, origin: str, now: float) -> float:
        """How long ago the last answer of an origin ended."""
        return now - self._ended.get(origin, now)

    def closed(self, number: int, now: float) -> bool:
        """To be called when the other side has closed a socket. Returns whether it was an idle connection to a site; if
        so, the server's limit is learnt from it."""
        origin, _ = self._sockets.get(number, ("", 0))
        since = self._idle.get(origin, {}).get(number)
        if since is None:
            return False
        self._shut(number)
        self.broke(origin, now - since)
        return True

    def broke(self, origin: str, idle_s: float) -> None:
        """The server closed a connection that had been idle for `idle_s`."""
        self._closes_s[origin] = min(idle_s, self._closes_s.get(origin, idle_s))

    def choose(self, origin: str, now: float) -> Choice:
        """How to send the next request to an origin."""
        waiting = self._idle.get(origin, {})
        gap_s = self.gap_s(origin, now)
        if not waiting:
            # A new connection is opened anyway. It is kept unless our pauses are known to be longer than the limit.
            return _AS_EVER if self._is_safe(origin, gap_s) or origin not in self._closes_s else _ONCE
        if now - next(iter(waiting.values())) < SURE_S:
            return _AS_EVER
        return self._weigh(origin, waiting, gap_s, now)

    def _weigh(self, origin: str, waiting: dict[int, float], gap_s: float, now: float) -> Choice:
        """Choose for an origin whose connections have been idle for a while."""
        # libcurl may have closed some of them by itself: then their numbers belong to other files, or to none.
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
            return _ONCE  # and leave the idle ones open, to learn how long the server waits
        # The limit is known well enough. libcurl chooses a connection by itself, so those that it must not choose go.
        fit = False
        for number, age_s in ages.items():
            if self._is_safe(origin, age_s):
                fit = True
            else:
                self._shut(number)
        return _AS_EVER if fit or self._is_safe(origin, gap_s) else _ONCE

    def is_shut(self, port: int) -> bool:
        """Whether the connection from this local port was shut down here, so nothing can be sent on it."""
        number, inode = self._shut_ports.pop(port, (-1, 0))
        return number >= 0 and _inode(number) == inode

    def _is_safe(self, origin: str, idle_s: float) -> bool:
        """Whether a connection that was idle for `idle_s` can be used."""
        granted_s = self._closes_s.get(origin, self._grants_s.get(origin, 0.0))
        return idle_s < SURE_S or idle_s * (1.0 + MARGIN_SHARE) + MARGIN_S <= granted_s

    def _is_open(self, number: int) -> bool:
        return _inode(number) == self._sockets[number][1]

    def _shut(self, number: int) -> None:
        """Shut a connection down. If libcurl uses it all the same, nothing leaves this machine."""
        self.used(number)
        self._unwatch(number)
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
            port = connection.getsockname()[1]
            connection.shutdown(socket.SHUT_RDWR)
            self._shut_ports[port] = (number, self._sockets[number][1])


def _inode(number: int) -> int:
    """The inode of an open file, which tells it from all others; 0 if no file has this number."""
    try:
        return os.fstat(number).st_ino
    except OSError:
        return 0


def origin_of(url: str) -> str:
    """Scheme and authority of a URL."""
    return url[: url.index("/", len("https://"))]
