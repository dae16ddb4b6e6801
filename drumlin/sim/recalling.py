"""Remembers what happened last to each host and node, so that people can read what led to a violation.

It verifies nothing. A simulation has it only while a violation is told, since it takes time for every event.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import chain

from drumlin.contact.actions import FetchPage, FetchRobots
from drumlin.lines import one_line
from drumlin.model import Lease, Settled
from drumlin.protocol import Accepted, Results
from drumlin.sim.checking import Checker, Ledger, World
from drumlin.sim.checking.ledger import Held
from drumlin.sim.machines.node import SimNode
from drumlin.sim.web import WebHost
from drumlin.urls import host_of

EVENTS_MAX = 20
"""So many events are kept of each host and of each node, the last ones."""
NAMED_MAX = 3
"""Of so many hosts or nodes in a sentence the events are told."""
_HOST = re.compile(r"\bh[0-9]+\.example\b")
_NODE = re.compile(r"\bn[0-9]+b*\b")


class Recall(Checker):
    """Hears of everything before the checkers do, so it has the event that breaks a promise, too."""

    name = "recall"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._events: dict[str, deque[str]] = {}
        self._ahead_s = 0.0
        """How far engine time is ahead of virtual time. It stands still while no coordinator reaches the engine."""

    def about(self, said: str) -> list[str]:
        """The last events of the hosts that a sentence names, or of its nodes if nothing is known of a host."""
        known = self._known(_HOST.findall(said)) or self._known(_NODE.findall(said))
        return list(chain.from_iterable([f"What happened last to {name}:", *self._events[name]] for name in known))

    def _known(self, names: list[str]) -> list[str]:
        return [name for name in dict.fromkeys(names) if name in self._events][:NAMED_MAX]

    def _note(self, said: str, *names: str) -> None:
        line = f"{self._world.now:10.3f} {one_line(said)}"
        for name in names:
            events = self._events.get(name)
            if events is None:
                events = self._events[name] = deque(maxlen=EVENTS_MAX)
            events.append(line)

    def _virtual(self, engine_s: float) -> str:
        """A moment of engine time, in the seconds of the log."""
        return f"{engine_s - self._ahead_s:.3f}"

    def passed(self, now: float) -> None:
        self._ahead_s = now - self._world.now

    def granted(self, lease: Lease, before: Held | None) -> None:
        until, urls = self._virtual(lease.deadline), len(lease.tasks)
        self._note(
            f"{lease.host} is leased to {lease.node} until about {until}, with {urls} URLs", lease.host, lease.node
        )

    def expired(self, held: Held, now: float) -> None:
        deadline = self._virtual(held.deadline)
        self._note(f"{held.node} loses {held.host}: its lease was over at about {deadline}", held.host, held.node)

    def settled(self, host: str, lease_id: str, one: Settled) -> None:
        self._note(f"{one.url} is settled: {one.state}{f', {one.kind}' if one.kind else ''}", host)

    def sent(self, node: SimNode, fetch: FetchPage | FetchRobots) -> None:
        self._note(f"{node.name} sends a request for {fetch.url}", fetch.host.host, node.name)

    def contacted(self, host: WebHost, url: str, now: float) -> None:
        self._note(f"a request for {url} reaches the host", host.name)

    def accepted(self, node: str, results: Results, accepted: Accepted) -> None:
        rejected = set(accepted.rejected_at)
        for place, result in enumerate(results.results):
            verdict = "does not count" if place in rejected else "counts"
            self._note(f"{node} is told that its result for {result.url} {verdict}", host_of(result.url), node)
