"""Checkers of what sites see."""

from __future__ import annotations

from drumlin.contact.actions import FetchPage, FetchRobots
from drumlin.model import Settled
from drumlin.sim.checking.base import Checker, World
from drumlin.sim.checking.ledger import Ledger
from drumlin.sim.machines.clocks import DRIFT_MAX
from drumlin.sim.machines.node import SimNode
from drumlin.sim.web import DENIED_START, RETRY_AFTER_S, ROBOTS_PATH, SCHEME, WebHost

ROUNDING_S = 1e-3
PAUSE_SLACK_S = 2.0 * DRIFT_MAX * max(RETRY_AFTER_S) + ROUNDING_S


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


class RetryAfterIsHonoured(Checker):
    """A host that asks to be left alone for a while is left alone: by the process that heard it, and by all once a
    result that says so has counted under a live lease. What was heard by a process that is gone, nobody knows."""

    name = "retry_after_is_honoured"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._asked: dict[str, tuple[str, int]] = {}
        """Which process was the last to ask each host."""
        self._told: dict[str, float] = {}
        """Until when a host wants to be left alone, as coordinators have heard."""
        self._unheard: dict[str, float] = {}
        """The same for pauses that nobody who is left has heard of."""

    def sent(self, node: SimNode, fetch: FetchPage | FetchRobots) -> None:
        host = fetch.host.host
        until, now = self._world.web.by_name[host].paused_until, self._world.now
        process = (node.name, node.incarnation)
        if until - now > PAUSE_SLACK_S and self._unheard.get(host) != until:
            if self._asked.get(host) == process or self._told.get(host) == until:
                raise self.broken(f"{fetch.url} is asked for {until - now:.3f} s before {host} wants to be asked again")
            self._unheard[host] = until
        self._asked[host] = process

    def settled(self, host: str, lease_id: str, one: Settled) -> None:
        web_host = self._world.web.by_name[host]
        if one.url == web_host.paused_url and web_host.paused_until > self._world.now:
            held = self._ledger.leases.get(host)
            if held is not None and held.lease_id == lease_id:
                self._told[host] = web_host.paused_until


class NothingDenied(Checker):
    """A host has told its rules before any page is asked for, and what they deny is never asked for."""

    name = "nothing_denied"

    def contacted(self, host: WebHost, url: str, now: float) -> None:
        if url.endswith(ROBOTS_PATH):
            return
        if not host.robots_heard:
            raise self.broken(f"{url} is asked for before its host has answered for robots.txt")
        if host.denies and url.startswith(DENIED_START, len(SCHEME) + len(host.name)):
            raise self.broken(f"{url} is asked for, which robots.txt denies")
