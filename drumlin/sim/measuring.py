"""What a simulation measures: pages, live nodes and lag over time, and from these the figures of the whole."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from xxhash import xxh3_64

from drumlin.sim.checking.ledger import Ledger
from drumlin.sim.machines.calling import Network
from drumlin.sim.machines.coordinator import SimCoordinator
from drumlin.sim.machines.node import SimNode
from drumlin.sim.scenario import Scenario
from drumlin.sim.web import ROBOTS_PATH

WARM_UP_S = 30.0
"""The first seconds after all nodes have joined do not count: hosts have yet to be found."""


class Measured(Protocol):
    """A simulation, as far as it is measured."""

    scenario: Scenario
    nodes: list[SimNode]
    coordinators: list[SimCoordinator]
    network: Network
    ledger: Ledger

    @property
    def now(self) -> float: ...


class Sample(msgspec.Struct, frozen=True):
    """One moment: URLs settled so far, nodes at work, what they could have fetched since the last sample, and the
    longest time that a page has waited to be settled."""

    at: float
    settled: int
    live: int
    possible: float
    lag_s: float
    hosts_leased: int


class Measures:
    """The samples of a simulation so far."""

    def __init__(self, simulation: Measured) -> None:
        self._simulation = simulation
        self.samples: list[Sample] = []
        self.contacts = 0
        self.robots_contacts = 0
        self.asked: set[str] = set()
        self.asked_again = 0
        self._story = xxh3_64()
        """A hash of all contacts and their moments: two simulations with the same one have gone the same way."""
        self._lost: list[tuple[float, set[str]]] = []
        """Leases of nodes that were killed at once, and when."""
        self.recovered_s: list[float] = []
        """How long it took each time until all hosts of killed nodes could be given to others."""

    def contacted(self, url: str) -> None:
        self.contacts += 1
        self._story.update(f"{self._simulation.now!r} {url}\n".encode())
        if url.endswith(ROBOTS_PATH):
            self.robots_contacts += 1
        elif url in self.asked:
            self.asked_again += 1
        else:
            self.asked.add(url)

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
        now = simulation.now
        working = [node for node in simulation.nodes if node.agent is not None and not node.frozen]
        since = self.samples[-1].at if self.samples else 0.0
        lag_s = max((node.lag_of_settling_s for node in working), default=0.0)
        possible = sum(node.kind.concurrency / node.seconds_a_page for node in working) * (now - since)
        settled = simulation.ledger.settled
        self.samples.append(Sample(now, settled, len(working), possible, lag_s, len(simulation.ledger.leases)))

    def line(self) -> str:
        """The last sample, for the log."""
        one = self.samples[-1]
        return f"{one.settled} settled, {one.live} nodes, {one.hosts_leased} hosts leased, lag {one.lag_s:.3f} s"

    def figures(self) -> dict[str, Any]:
        """The figures of the whole."""
        simulation, scenario = self._simulation, self._simulation.scenario
        pages = max(1, simulation.ledger.pages)
        begun_at = scenario.join_s + WARM_UP_S
        counted = [sample for sample in self.samples if sample.at > begun_at]
        done = counted[-1].settled - counted[0].settled if len(counted) > 1 else 0
        possible = sum(sample.possible for sample in counted[1:])
        return {
            "seed": scenario.seed,
            "virtual_s": simulation.now,
            "nodes": scenario.nodes,
            "pages": simulation.ledger.pages,
            "settled": simulation.ledger.settled,
            "pages_per_s": round(pages / max(simulation.now, 1e-9), 2),
            "goodput_share": round(done / possible, 4) if possible else 0.0,
            "contacts": self.contacts,
            "asked_again": self.asked_again,
            "leases_lost": simulation.ledger.leases_lost,
            "recovery_s_max": max(self.recovered_s, default=0.0),
            "messages_per_page": round(simulation.network.messages / pages, 2),
            "bytes_per_page": round(simulation.network.bytes / pages),
            "story": self._story.hexdigest(),
            "lag_s_max": round(max((sample.lag_s for sample in self.samples), default=0.0), 3),
        }
