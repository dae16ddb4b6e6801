"""What robots rules may cost: hosts with long files take turns, so that they have a share of a node's time and no more.

A robots.txt of ten thousand rules takes as long to prepare as to crawl dozens of pages, and who has hundreds of hosts
has as many such files, more than can be kept prepared. Their hosts wait for one another, and nobody else does.
"""

from __future__ import annotations

from drumlin.contact.hosts import HostWork
from drumlin.contact.rules import Robots, Stopwatch

ROBOTS_SHARE = 0.2
"""The part of a node's time that long robots files may take."""
CHEAP_S = 0.001
"""What takes less, as nearly every file does, is done at once: a page costs as much."""


class RobotsLine:
    """Hosts whose rules are slow to ask, one after the other."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch
        self._free_at = float("-inf")

    def admits(self, host: HostWork, robots: Robots, now: float) -> bool:
        """Whether the host's rules may be asked now. If not, the host's next contact is its turn."""
        if robots.expected_s < CHEAP_S:
            host.robots_turn = None
            return True
        if host.robots_turn is None:
            host.robots_turn = self.charge(robots.expected_s, now)
        if host.robots_turn > now:
            host.next_contact = max(host.next_contact, host.robots_turn)
            return False
        host.robots_turn = None
        return True

    def allows(self, robots: Robots, url: str, now: float) -> bool:
        """What the rules say. What took longer than it was expected to is counted as well."""
        began = self._stopwatch()
        allowed = robots.allows(url, self._stopwatch)
        took_s = self._stopwatch() - began
        if took_s >= CHEAP_S:
            self._free_at = max(self._free_at, now + took_s / ROBOTS_SHARE)
        return allowed

    def charge(self, cost_s: float, now: float) -> float:
        """Count work that takes so long; when its turn is."""
        turn = max(self._free_at, now)
        self._free_at = turn + cost_s / ROBOTS_SHARE
        return turn
