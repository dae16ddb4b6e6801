"""What a simulation measures: pages, live nodes and lag over time, and from these the figures of the whole."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
from xxhash import xxh3_64

from drumlin.contact.actions import FetchPage, FetchRobots
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.engines.memory.shard import AFTER_EVERY_NAME, Host
from drumlin.model import Outcome
from drumlin.protocol.statuses import outcome_of_status
from drumlin.sim.checking.ledger import Ledger
from drumlin.sim.figures import LATENCY_MEAN_S
from drumlin.sim.machines.calling import Network
from drumlin.sim.machines.coordinator import SimCoordinator
from drumlin.sim.machines.node import SimNode
from drumlin.sim.scenario import Scenario
from drumlin.sim.web import BUSY, ROBOTS_PATH

NO_ANSWER = 0
WARM_UP_S = 30.0
WARM_UP_PAGES = 2.0
"""The first seconds after all nodes have joined do not count, in which they ask for robots.txt, nor the time in which
they fetch their first pages."""


class Measured(Protocol):
    """A simulation, as far as it is measured."""

    scenario: Scenario
    nodes: list[SimNode]
    coordinators: list[SimCoordinator]
    network: Network
    ledger: Ledger
    budgets: dict[str, int]

    @property
    def now(self) -> float: ...

    @property
    def memory(self) -> MemoryEngine: ...


class Sample(msgspec.Struct, frozen=True):
    """One moment: pages and URLs settled so far, nodes at work, for how many seconds in all requests for pages could
    be under way since the last sample, and the longest time that a page has waited to be settled."""

    at: float
    pages: int
    settled: int
    live: int
    possible_s: float
    lag_s: float
    hosts_leased: int


class Measures:
    """The samples of a simulation so far."""

    def __init__(self, simulation: Measured) -> None:
        self._simulation = simulation
        self.samples: list[Sample] = []
        self.contacts = 0
        self.robots_contacts = 0
        self.fetched_twice = 0
        """Requests for pages although an earlier one had not failed: its answer was lost with its node or its lease."""
        self.tried_again = 0
        """Requests that were made again because the one before had failed, or the site had asked to wait."""
        self._failed: dict[str, bool] = {}
        """Whether the last request for each page has failed."""
        self.wait_s_max = 0.0
        """The longest time from storing a page until its node knew that it is settled."""
        self._story = xxh3_64()
        """A hash of all contacts and their moments: two simulations with the same one have gone the same way."""
        self._lost: list[tuple[float, set[str]]] = []
        """Leases of nodes that were killed at once, and when."""
        self._at_once = 0.0
        """How many requests for pages could be under way at the last look."""
        self.requests = self.pages_fetched = 0
        """Requests for pages that have ended, without those that were made again in vain, and how many brought one."""
        self.requests_s = 0.0
        """For how long these kept connections busy."""
        self._answered: set[str] = set()
        self.recovered_s: list[float] = []
        """How long it took each time until all hosts of killed nodes could be given to others."""

    def contacted(self, url: str) -> None:
        self.contacts += 1
        self._story.update(f"{self._simulation.now!r} {url}\n".encode())
        if url.endswith(ROBOTS_PATH):
            self.robots_contacts += 1

    def sent(self, fetch: FetchPage | FetchRobots) -> None:
        """A request leaves a node."""
        if not isinstance(fetch, FetchPage):
            return
        failed = self._failed.get(fetch.url)
        self._failed[fetch.url] = False
        if failed is not None:
            self.tried_again += failed
            self.fetched_twice += not failed

    def waited(self, seconds: float) -> None:
        """A page that was stored is settled, as its node has heard now."""
        self.wait_s_max = max(self.wait_s_max, seconds)

    def lost(self, lease_ids: set[str]) -> None:
        """Nodes that held these leases were killed now."""
        self._lost.append((self._simulation.now, lease_ids))

    def _look_for_recovery(self, now: float) -> None:
        live = {held.lease_id for held in self._simulation.ledger.leases.values()} if self._lost else set()
        for begun in [one for one in self._lost if not one[1] & live]:
            self._lost.remove(begun)
            self.recovered_s.append(round(now - begun[0], 1))

    def look(self) -> None:
        simulation = self._simulation
        self._look_for_recovery(simulation.now)
        now, ledger = simulation.now, simulation.ledger
        since = self.samples[-1].at if self.samples else 0.0
        live = connections = 0
        lag_s = 0.0
        for node in simulation.nodes:
            doing = node.doing
            if doing is not None:
                live += doing.works
                connections += doing.connections
                lag_s = max(lag_s, doing.lag_s)
        at_once = self._requests_at_once(float(connections))
        # Nodes come and go in between: the mean of both looks is nearer to the truth than either.
        possible_s = (at_once + self._at_once) / 2.0 * (now - since)
        self._at_once = at_once
        so_far = (ledger.pages, ledger.settled)
        self.samples.append(Sample(now, *so_far, live, possible_s, lag_s, len(ledger.leases)))

    def request_ended(self, fetch: FetchPage | FetchRobots, seconds: float, status: int) -> None:
        """A request has ended for its node. One for a page that had come before is not part of what pages cost: it is a
        loss."""
        if not isinstance(fetch, FetchPage):
            return
        self._failed[fetch.url] = status == NO_ANSWER or status in BUSY
        if fetch.url in self._answered:
            return
        self.requests += 1
        self.requests_s += seconds
        if outcome_of_status(status) is Outcome.FETCHED:
            self._answered.add(fetch.url)
            self.pages_fetched += 1

    @property
    def seconds_a_page(self) -> float:
        """For how long a page keeps a connection busy on average, with all requests that bring no page."""
        return self.requests_s / self.pages_fetched if self.pages_fetched else self._simulation.scenario.page_s

    def _requests_at_once(self, connections: float) -> float:
        """How many requests for pages could be under way: as many as the nodes have connections for, and no more than
        the hosts that have URLs allow, which are asked for one page at a time, each with its own delay in between."""
        request_s, delay_s = self.requests_s / max(self.requests, 1), self._simulation.scenario.delay_s
        at_once = 0.0
        for host in self._hosts_with_work():
            at_once += min(1.0, request_s / (host.lost_delay_s(delay_s) + LATENCY_MEAN_S))
            if at_once >= connections:
                return connections
        return at_once

    def _hosts_with_work(self) -> Iterator[Host]:
        """Hosts that are leased with URLs, could be, or could be after the delay since their last contact; but for
        those with a budget of their own, which may be spent."""
        simulation = self._simulation
        soon = (simulation.ledger.engine_now + simulation.scenario.delay_s, AFTER_EVERY_NAME)
        for shard in simulation.memory._shards:
            could_be = [shard.hosts[name] for _, name in shard.ready[: bisect_right(shard.ready, soon)]]
            leased = [
                host for host in shard.leased.values() if host.queue or (host.grant is not None and host.grant.urls)
            ]
            yield from [host for host in leased + could_be if host.name not in simulation.budgets]

    def line(self) -> str:
        """The last sample, for the log."""
        one = self.samples[-1]
        return (
            f"{one.pages} pages, {one.settled} settled, {one.live} nodes, {one.hosts_leased} hosts leased, "
            f"lag {one.lag_s:.3f} s"
        )

    def figures(self) -> dict[str, Any]:
        """The figures of the whole."""
        simulation, scenario = self._simulation, self._simulation.scenario
        pages = max(1, simulation.ledger.pages)
        begun_at = scenario.join_s + WARM_UP_S + WARM_UP_PAGES * scenario.page_s
        counted = [sample for sample in self.samples if sample.at > begun_at]
        done = counted[-1].pages - counted[0].pages if len(counted) > 1 else 0
        possible = sum(sample.possible_s for sample in counted[1:]) / self.seconds_a_page
        return {
            "seed": scenario.seed,
            "virtual_s": simulation.now,
            "nodes": scenario.nodes,
            "pages": simulation.ledger.pages,
            "settled": simulation.ledger.settled,
            "pages_per_s": round(pages / max(simulation.now, 1e-9), 2),
            "goodput_share": round(done / possible, 4) if possible else 0.0,
            "contacts": self.contacts,
            "fetched_twice": self.fetched_twice,
            "tried_again": self.tried_again,
            "leases_lost": simulation.ledger.leases_lost,
            "recovery_s_max": max(self.recovered_s, default=0.0),
            "messages_per_page": round(simulation.network.messages / pages, 2),
            "bytes_per_page": round(simulation.network.bytes / pages),
            "story": self._story.hexdigest(),
            "wait_s_max": round(self.wait_s_max, 3),
        }
