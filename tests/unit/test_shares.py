"""With a delay, hosts are shared fairly among nodes, whichever asks first, and then stay where they are."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.protocol import Heartbeat, WorkLease, WorkRequest
from tests.harness.dispatching import Asker, Driven, batch_of, release, result

STEP_S = 0.5
HEARTBEAT_S = 2.0
RENEWED_S = 8.0
LEASE_S = 20.0
REST_S = 60.0
"""More than long enough for hosts to come to rest."""


def coordinators(count: int, hosts: int, *, delay_s: float = 1.0, urls: int = 40) -> list[Driven]:
    """Coordinators of one frontier, in which every host has more URLs than will be fetched, or so many."""
    engine = MemoryEngine(4)
    config = CrawlConfig(delay_s=delay_s, lease_s=LEASE_S)
    made = [
        Driven(Dispatcher(engine, config, [], chance=random.Random(n), name=f"c{n}", ends=False)) for n in range(count)
    ]
    made[0].seed([f"http://h{host}.test/{path}" for host in range(hosts) for path in range(urls)], 0.0)
    return made


@dataclass
class SimulatedNode:
    """Asks whenever it may, renews in time, sends heartbeats, and gives back what it is told to."""

    coordinator: Driven
    name: str
    held: dict[str, WorkLease] = field(default_factory=dict)
    renewed: dict[str, float] = field(default_factory=dict)
    gained: list[float] = field(default_factory=list)
    beaten: float = -HEARTBEAT_S
    ask_at: float = 0.0
    asks: int = 0
    room: int = 128

    def step(self, now: float, *, wants: bool = True) -> None:
        if now - self.beaten >= HEARTBEAT_S:
            self._beat(now)
        self._renew(now)
        if wants and now >= self.ask_at:
            self._ask(now)

    def _beat(self, now: float) -> None:
        self.beaten = now
        leases = [lease.lease_id for lease in self.held.values()]
        reply = self.coordinator.heartbeat(self.name, Heartbeat("active", 1.0, 0, leases, len(leases)), now)
        self._give_back([lease.host for lease in self.held.values() if lease.lease_id in reply.revoke], now)

    def _renew(self, now: float) -> None:
        due = [lease for host, lease in self.held.items() if now - self.renewed[host] >= RENEWED_S]
        if due:
            renew = [(lease.lease_id, lease.host) for lease in due]
            work = self.coordinator.work(self.name, WorkRequest(0, max_hosts=0, renew=renew, hosts=len(self.held)), now)
            self.renewed |= {lease.host: now for lease in work.leases}
            self._give_back(work.lost, now)

    def _ask(self, now: float) -> None:
        self.asks += 1
        request = WorkRequest(100, max_hosts=self.room, request_id=f"{self.asks}", hosts=len(self.held))
        work = self.coordinator.work(self.name, request, now)
        self.ask_at = now + work.retry_after_s
        for lease in work.leases:
            self.held[lease.host] = lease
            self.renewed[lease.host] = now
            self.gained.append(now)

    def _give_back(self, hosts: list[str], now: float) -> None:
        given = [release(self.held.pop(host), 1.0) for host in hosts]
        if given:
            self.coordinator.results(batch_of([], given), now, node=self.name)

    def finish(self, now: float) -> None:
        """Be done with all URLs of all hosts."""
        leases = list(self.held.values())
        self.held.clear()
        results = [result(task) for lease in leases for task in lease.assignments]
        self.coordinator.results(batch_of(results, [release(lease) for lease in leases]), now, node=self.name)


def run(nodes: list[SimulatedNode], start: float, seconds: float) -> None:
    made = list({id(node.coordinator): node.coordinator for node in nodes}.values())
    for number in range(int(seconds / STEP_S)):
        now = start + number * STEP_S
        for one in made:
            one.tick(now)
        for node in nodes:
            node.step(now)


def check_fair_and_at_rest(nodes: list[SimulatedNode], hosts: int, since: float) -> None:
    held = [len(node.held) for node in nodes]
    assert sum(held) == hosts, "a host lies idle"
    share = hosts / len(nodes)
    assert min(held) >= share / 2 if share >= 1 else max(held) == 1, held
    assert not [when for node in nodes for when in node.gained if when > since], "hosts still move"


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(2, 12),
    hosts=st.integers(1, 60),
    late_s=st.lists(st.sampled_from([0.0, 0.5, 3.0, 20.0]), min_size=12, max_size=12),
    faces=st.integers(1, 3),
)
def test_every_node_gets_at_least_half_its_share_and_then_hosts_stay_put(
    count: int, hosts: int, late_s: list[float], faces: int
) -> None:
    made = coordinators(faces, hosts)
    nodes = [SimulatedNode(made[n % faces], f"n{n}") for n in range(count)]
    for n, node in enumerate(nodes):
        node.ask_at = late_s[n]
    run(nodes, 0.0, 2 * REST_S)
    check_fair_and_at_rest(nodes, hosts, since=REST_S)


def test_a_fleet_of_many_nodes_with_few_hosts_does_not_shuffle_them() -> None:
    made = coordinators(2, 90)
    nodes = [SimulatedNode(made[n % 2], f"n{n}") for n in range(200)]
    run(nodes, 0.0, REST_S)
    check_fair_and_at_rest(nodes, 90, since=REST_S / 2)
    assert max(len(node.held) for node in nodes) == 1


def test_after_a_pause_the_node_that_asks_first_leaves_the_others_their_share() -> None:
    (made,) = coordinators(1, 18)
    nodes = [SimulatedNode(made, f"n{n}") for n in range(2)]
    for node in nodes:
        made.register(node.name, 0.0)
    drive(made.made.pause())
    for node in nodes:
        node.step(100.0, wants=False)
    made.tick(100.0)
    drive(made.made.resume())
    nodes[1].ask_at = 102.0  # it learns of the end of the pause with its next heartbeat
    run(nodes, 100.5, 3.0)
    assert [len(node.held) for node in nodes] == [9, 9]


def test_a_node_that_joins_late_has_its_share_within_ten_seconds() -> None:
    made = coordinators(2, 18)
    first, second = SimulatedNode(made[0], "n0"), SimulatedNode(made[1], "n1")
    run([first], 0.0, 10.0)
    assert len(first.held) == 18
    run([first, second], 10.0, 10.0)
    assert [len(first.held), len(second.held)] == [9, 9]


def test_when_few_hosts_are_left_nodes_that_ask_for_one_at_a_time_share_them() -> None:
    """Hosts were once not counted again for nodes that ask for few, which are never refused what they ask for: they
    lacked hosts for as long as others had no more than the share of long ago."""
    (made,) = coordinators(1, 9, urls=10)
    nodes = [SimulatedNode(made, f"n{n}", room=1) for n in range(3)]
    run(nodes, 0.0, 10.0)
    assert [len(node.held) for node in nodes] == [3, 3, 3]
    for node in nodes[:2]:
        node.finish(10.0)
    nodes[2].ask_at = math.inf  # it has all it can do
    run(nodes, 10.0, 10.0)
    assert [len(node.held) for node in nodes] == [1, 1, 1]


def test_hosts_that_nobody_else_wants_go_to_a_node_that_has_its_share() -> None:
    (made,) = coordinators(1, 18)
    busy, other = SimulatedNode(made, "n0"), SimulatedNode(made, "n1")
    for node in (busy, other):
        made.register(node.name, 0.0)
    for number in range(20):
        now = number * STEP_S
        made.tick(now)
        busy.step(now)
        other.step(now, wants=False)
    assert len(busy.held) == 18


def test_a_node_with_more_than_its_share_gives_none_back_while_the_others_have_enough() -> None:
    (made,) = coordinators(1, 12)
    nodes = [SimulatedNode(made, f"n{n}") for n in range(2)]
    run(nodes[:1], 0.0, 2.0)
    nodes[1].held = {host: nodes[0].held.pop(host) for host in list(nodes[0].held)[:4]}
    made.work("n1", WorkRequest(100, max_hosts=8, hosts=4), 2.0)
    beat = Heartbeat("active", 1.0, 0, [lease.lease_id for lease in nodes[0].held.values()], 8)
    assert made.heartbeat("n0", beat, 2.5).revoke == []


def test_a_taken_back_host_is_contacted_by_nobody_before_its_delay_has_passed() -> None:
    (made,) = coordinators(1, 2)
    leases = Asker(made, "n0").work(0.0)
    assert len(leases) == 2
    asker = Asker(made, "n1")
    assert asker.work(1.0, hosts=5) == []
    renew = [(lease.lease_id, lease.host) for lease in leases]
    work = made.work("n0", WorkRequest(100, max_hosts=0, renew=renew, hosts=2), 1.1)
    (lost,) = work.lost
    assert asker.work(1.2) == [], "its node still holds it"
    given = next(lease for lease in leases if lease.host == lost)
    made.results(batch_of([], [release(given, 1.0)]), 1.5, node="n0")
    (moved,) = asker.work(1.6)
    assert (moved.host, round(moved.wait_s, 6)) == (lost, 0.9)
