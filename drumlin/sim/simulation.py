"""One simulation: the machines of a scenario, from the first event to the last; faults strike them, checkers watch."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from drumlin.contact.actions import FetchPage, FetchRobots
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.protocol import Accepted, Results
from drumlin.sim.checking import Checker, Ledger, World, every_checker
from drumlin.sim.checking.base import listen, overriding
from drumlin.sim.faults import KINDS, Fault
from drumlin.sim.large_pages import use_large_pages
from drumlin.sim.machines.calling import Network
from drumlin.sim.machines.coordinator import Crawl, SimCoordinator
from drumlin.sim.machines.engine import EngineServers
from drumlin.sim.machines.loop import VirtualLoop
from drumlin.sim.machines.node import NodeKind, SimNode, Surroundings
from drumlin.sim.measuring import Measures, Sample
from drumlin.sim.scenario import PAGE_S_SPREAD, Scenario
from drumlin.sim.striking import End, Machines, strike
from drumlin.sim.web import Web, WebHost

COORDINATORS_FIRST_S = 3.0
"""Nodes are started after this time, when coordinators are ready."""
LARGE_PAGES_EVERY_S = 60.0
SHARE_POLITE = 0.5


class Simulation:
    """Runs a scenario. `run` raises a `Violation` when an invariant is broken."""

    def __init__(
        self,
        scenario: Scenario,
        web: Web | None = None,
        tell: Callable[[str], object] = lambda line: None,
        progress: Callable[[float], object] = lambda now: None,
        also: Callable[[World, Ledger], Checker] | None = None,
    ) -> None:
        """`web` is another web than the one that the scenario's seed makes; `tell` hears each line of the log, and
        `progress` the virtual time at each look. `also` makes a further checker, which hears of everything first."""
        self._tell = tell
        self._progress = progress
        self.scenario = scenario
        self.loop = VirtualLoop()  # type: ignore[abstract]  # what is abstract are sockets, signals and processes
        self.web = web or Web(scenario.seed, scenario.hosts, scenario.urls_per_host)
        self.network = Network(self.loop, random.Random(f"{scenario.seed}/network"), scenario.way_s)
        self.budgets = {host.name: scenario.host_pages_max for host in self._largest(scenario.hosts_budgeted)}
        self.ledger = Ledger()
        self.servers = EngineServers(self.loop, scenario.shards, scenario.engine_servers, self.ledger)
        self._chance = random.Random(f"{scenario.seed}/simulation")
        self.coordinators = self._coordinators()
        self.network.servers = list(self.coordinators)
        timeout_s = scenario.config().fetch_timeout_s
        self.measures = Measures(self)
        heard = (self._sent, self.measures.request_ended, self.measures.waited, self._published, self._disk_lost)
        around = Surroundings(self.loop, self.network, self.web, scenario.coordinators, timeout_s, *heard)
        self.liars = around.liars
        self.nodes = [self._node(around, number) for number in range(scenario.nodes)]
        self._machines = Machines(self.loop, self.nodes, self.coordinators, self.network, self.servers, self.web)
        self.checkers = ([also(self, self.ledger)] if also is not None else []) + every_checker(self, self.ledger)
        listen(self.ledger, self.checkers)
        self._on_sent = overriding(self.checkers, "sent")
        self._on_contacted = overriding(self.checkers, "contacted")
        self._on_accepted = overriding(self.checkers, "accepted")
        self._on_looked = overriding(self.checkers, "looked")
        self._on_published = overriding(self.checkers, "published")
        self._on_disk_lost = overriding(self.checkers, "disk_lost")
        self.web.on_contact = self._contacted
        self._at_work = 0
        self._quiet_since = 0.0
        self.log: list[str] = []
        """What happened that a reader should know: faults, and when they were over."""

    def _largest(self, count: int) -> list[WebHost]:
        return sorted(self.web.hosts, key=lambda host: -host.size)[:count]

    def _coordinators(self) -> list[SimCoordinator]:
        scenario = self.scenario
        crawl = Crawl(scenario.config(), self.web.seeds(), [], scenario.heartbeat_s, self.budgets)
        more = (crawl, scenario.suspends)
        return [
            SimCoordinator(
                self.loop, self.network, self.servers, place, *more, f"{scenario.seed}/c{place}", self._accepted
            )
            for place in range(scenario.coordinators)
        ]

    def _node(self, around: Surroundings, number: int) -> SimNode:
        scenario = self.scenario
        page_s = scenario.page_s * self._chance.uniform(*PAGE_S_SPREAD)
        kind = NodeKind(scenario.large_concurrency if number < scenario.large else scenario.concurrency, page_s)
        return SimNode(around, f"n{number}", kind, f"{scenario.seed}/n{number}")

    # For checkers

    @property
    def now(self) -> float:
        return self.loop.now

    @property
    def memory(self) -> MemoryEngine:
        return self.servers.memory

    @property
    def quiet_s(self) -> float:
        return 0.0 if self._at_work else self.loop.now - self._quiet_since

    @property
    def paces(self) -> Sequence[Sample]:
        return self.measures.samples

    @property
    def seconds_a_page(self) -> float:
        return self.measures.seconds_a_page

    # From beginning to end

    def run(self) -> Measures:
        for coordinator in self.coordinators:
            self.loop.at(0.0, coordinator.start)
        for node in self.nodes:
            self._plan_presence(node)
        for fault in self.scenario.faults:
            self.loop.at(fault.at, self._strike, fault)
        self.loop.at(self.scenario.look_every_s, self._look)
        self.loop.at(LARGE_PAGES_EVERY_S, self._use_large_pages)
        try:
            self.loop.run_until(self.scenario.duration_s)
            for checker in overriding(self.checkers, "ended"):
                checker.ended()
        finally:
            self.loop.over = True
        return self.measures

    def _plan_presence(self, node: SimNode) -> None:
        """All nodes are there from the beginning. But where nodes come and go, some are away at the beginning too."""
        scenario = self.scenario
        begins_at = COORDINATORS_FIRST_S + scenario.join_s * self._chance.random()
        if not scenario.churn:
            self.loop.at(begins_at, node.start)
        elif self._chance.random() < scenario.churn:
            self._plan_return(node, begins_at)
        else:
            self.loop.at(begins_at, node.start)
            self._plan_absence(node, begins_at)

    def _plan_absence(self, node: SimNode, since: float) -> None:
        """A node that comes and goes is there for a while, then away. Half of those that go say goodbye."""
        scenario = self.scenario
        there_s = self._chance.expovariate(1.0 / (scenario.session_s * (1.0 - scenario.churn)))

        def leave() -> None:
            if self._chance.random() < SHARE_POLITE:
                node.drain()
            else:
                node.kill()
            self._plan_return(node, self.loop.now)

        self.loop.at(since + there_s, leave)

    def _plan_return(self, node: SimNode, since: float) -> None:
        scenario = self.scenario
        away_s = self._chance.expovariate(1.0 / (scenario.session_s * scenario.churn))

        def come_back() -> None:
            node.restart()
            self._plan_absence(node, self.loop.now)

        self.loop.at(since + away_s, come_back)

    def _strike(self, fault: Fault) -> None:
        self._at_work += 1
        strikes_nodes = KINDS[fault.kind].share != (0.0, 0.0)
        share = f", {fault.share:.0%} of the nodes" if strikes_nodes else ""
        self._say(f"{fault.kind} for {fault.lasts_s:g} s{share}")
        held = {held.lease_id: held.node for held in self.ledger.leases.values()}
        end = strike(self._machines, fault)
        if fault.kind.startswith("nodes_killed"):
            dead = {node.name for node in self.nodes if not node.alive}
            self.measures.lost({lease_id for lease_id, node in held.items() if node in dead})
        self.loop.at(fault.over_at, self._end, fault, end)

    def _end(self, fault: Fault, end: End) -> None:
        end()
        self._say(f"{fault.kind} is over")
        self._at_work -= 1
        self._quiet_since = self.loop.now

    def _look(self) -> None:
        self._progress(self.loop.now)
        self.measures.look()
        for checker in self._on_looked:
            checker.looked()
        every_s = self.scenario.look_every_s
        if int(self.loop.now / every_s) % SAID_EVERY == 0:
            self._say(self.measures.line())
        self.loop.at(self.loop.now + every_s, self._look)

    def _use_large_pages(self) -> None:
        use_large_pages()
        self.loop.at(self.loop.now + LARGE_PAGES_EVERY_S, self._use_large_pages)

    def _say(self, said: str) -> None:
        self.log.append(f"{self.loop.now:10.3f} {said}")
        self._tell(self.log[-1])

    # What is heard on the way

    def _sent(self, node: SimNode, fetch: FetchPage | FetchRobots) -> None:
        self.measures.sent(fetch)
        for checker in self._on_sent:
            checker.sent(node, fetch)

    def _contacted(self, host: WebHost, url: str, now: float) -> None:
        self.measures.contacted(url)
        for checker in self._on_contacted:
            checker.contacted(host, url, now)

    def _published(self, urls: Sequence[str]) -> None:
        for checker in self._on_published:
            checker.published(urls)

    def _disk_lost(self, urls: Sequence[str]) -> None:
        for checker in self._on_disk_lost:
            checker.disk_lost(urls)

    def _accepted(self, node: str, results: Results, accepted: Accepted) -> None:
        for checker in self._on_accepted:
            checker.accepted(node, results, accepted)


SAID_EVERY = 12
"""The log has a line of figures once in so many looks."""
