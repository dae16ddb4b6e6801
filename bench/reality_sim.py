"""The simulated side of `bench.reality`."""

from __future__ import annotations

from bench.reality_plan import COORDINATORS, FREEZE, KILL, LATENCY_VARIES, NODES, Plan, Record, victim
from bench.web import latency_share
from drumlin.sim.scenario import Scenario
from drumlin.sim.simulation import Simulation
from drumlin.sim.web import ROBOTS_PATH, SCHEME, Web, WebAnswer, WebHost

BEGINS_S = 10.0
"""Virtual seconds until all nodes surely work: `fleet up` returns when real ones do."""
SHARDS = 96
"""As many as a frontier on three Redis masters has."""
WAY_S = 0.001
"""A message on loopback, with what it takes to encrypt and to read it."""
LINKS = 20
HEAD = [b"HTTP/1.1 200 OK\r\n", b"Content-Type: text/html\r\n", b"\r\n"]
ROBOTS_HEAD = [b"HTTP/1.1 200 OK\r\n", b"Content-Type: text/plain\r\n", b"\r\n"]
ROBOTS = b"User-agent: *\nAllow: /\n"
BODY = b"x" * 8_000


class PlainWeb(Web):
    """Hosts that differ in their latency alone and always answer. It keeps a list of all requests."""

    connect_s_max = 0.0

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.number, plan.hosts, plan.pages)
        self._plan = plan
        self.log: list[tuple[float, int, int]] = []
        for host in self.hosts:
            host.size, host.way_s, host.delay_s, host.denies = plan.pages, 0.0, 0.0, False
            host.down_until = host.robots_broken_until = 0.0

    def seeds(self) -> list[str]:
        return [self.url(host, 0) for host in self.hosts]

    def url(self, host: WebHost, page: int) -> str:
        return f"{SCHEME}{host.name}/p/{page}"

    def links(self, url: str) -> list[str]:
        host, page = self.host_of(url), int(url.rpartition("/")[2])
        return [self.url(host, one) for one in range(page + 1, min(page + 1 + LINKS, host.size))]

    def contact(self, url: str, attempt: int, now: float) -> WebAnswer:
        host = self.host_of(url)
        self.on_contact(host, url, now)
        host.contacted = now
        latency_s = self._plan.latency_s * latency_share(host.number, LATENCY_VARIES)
        if url.endswith(ROBOTS_PATH):
            host.robots_heard = True
            self.log.append((now, host.number, -1))
            return WebAnswer(200, ROBOTS_HEAD, ROBOTS, thinking_s=latency_s)
        self.log.append((now, host.number, host.number * self._plan.pages + int(url.rpartition("/")[2])))
        return WebAnswer(200, HEAD, BODY, thinking_s=latency_s)


def run_simulation(plan: Plan) -> Record:
    """Simulate a plan; a `Violation` is raised if a promise is broken."""
    web = PlainWeb(plan)
    scenario = Scenario(
        seed=plan.number,
        nodes=NODES,
        coordinators=COORDINATORS,
        duration_s=BEGINS_S + plan.ends_at,
        hosts=plan.hosts,
        urls_per_host=plan.pages,
        page_s=0.0,
        concurrency=plan.concurrency,
        delay_s=plan.delay_s,
        lease_s=plan.lease_s,
        shards=SHARDS,
        way_s=WAY_S,
        suspends=1.0,
        join_s=0.5,
    )
    simulation = Simulation(scenario, web)
    for place, node in enumerate(simulation.nodes):
        # As `drumlin fleet up` has it. Nodes that ask the leader get the hosts of dead ones first.
        node.first = place % COORDINATORS
    struck: dict[str, tuple[float, list[int]]] = {}

    def strike(fault: str) -> None:
        held: dict[str, list[int]] = {}
        for lease in simulation.ledger.leases.values():
            held.setdefault(lease.node, []).append(web.by_name[lease.host].number)
        name = victim(held, plan.hosts)
        struck[fault] = (simulation.now - BEGINS_S, held[name])
        node = next(node for node in simulation.nodes if node.name == name)
        if fault == KILL:
            node.kill()
        else:
            node.freeze()
            simulation.loop.at(simulation.now + plan.frozen_s, node.thaw)

    def kill_leader() -> None:
        for coordinator in simulation.coordinators:
            if coordinator.dispatcher is not None and coordinator.dispatcher.leads:
                coordinator.kill()

    at = simulation.loop.at
    at(BEGINS_S + plan.kill_at, strike, KILL)
    at(BEGINS_S + plan.freeze_at, strike, FREEZE)
    at(BEGINS_S + plan.coordinator_at, kill_leader)
    simulation.run()
    return Record(plan, [(when - BEGINS_S, host, page) for when, host, page in web.log], struck)
