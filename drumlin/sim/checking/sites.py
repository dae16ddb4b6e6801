"""Checkers of what sites see."""

from __future__ import annotations

from drumlin.sim.checking.base import Checker, World
from drumlin.sim.checking.ledger import Ledger
from drumlin.sim.machines.clocks import DRIFT_MAX
from drumlin.sim.web import DENIED_START, ROBOTS_PATH, SCHEME, WebHost

ROUNDING_S = 1e-3


class LeastGap(Checker):
    """Two contacts of a host are never closer than its delay: the crawl's or, for pages, its own if that is longer."""

    name = "least_gap"

    def contacted(self, host: WebHost, url: str, now: float) -> None:
        delay_s = self._world.scenario.delay_s
        if host.delay_s > delay_s and not url.endswith(ROBOTS_PATH):
            delay_s = host.delay_s
        gap_s = now - host.contacted
        if gap_s < delay_s * (1.0 - 2.0 * DRIFT_MAX) - ROUNDING_S:
            raise self.broken(f"{url} is asked for {gap_s:.3f} s after the contact before, not {delay_s:g} s")


class NothingDenied(Checker):
    """robots.txt is asked for before any page, and what it denies is never asked for."""

    name = "nothing_denied"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._asked: set[str] = set()

    def contacted(self, host: WebHost, url: str, now: float) -> None:
        if url.endswith(ROBOTS_PATH):
            self._asked.add(host.name)
            return
        if host.name not in self._asked and not host.robots_at:
            raise self.broken(f"{url} is asked for before its host's robots.txt")
        if host.denies and url.startswith(DENIED_START, len(SCHEME) + len(host.name)):
            raise self.broken(f"{url} is asked for, which robots.txt denies")
