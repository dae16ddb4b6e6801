"""What the simulator does to machines: calls that are done in part, faults that overlap, what is counted."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from drumlin.engines.blocking import drive
from drumlin.errors import EngineError
from drumlin.model import NewURLs, TaskState
from drumlin.sim.checking import Ledger
from drumlin.sim.faults import Fault
from drumlin.sim.machines.engine import ROOT, EngineLink, EngineServers, EngineWire
from drumlin.sim.machines.loop import VirtualLoop
from drumlin.sim.running import run
from drumlin.sim.scenario import Scenario, of_fleet, of_seed
from drumlin.sim.simulation import Simulation
from drumlin.sim.striking import strike
from drumlin.urls import host_of

SERVERS, SHARDS = 3, 6
OTHER = 1
HOSTS = [f"h{number}.example" for number in range(40)]


class Alive:
    alive, frozen = True, False

    async def hold(self) -> None:
        raise AssertionError("nobody is frozen")


@pytest.fixture
def servers() -> EngineServers:
    return EngineServers(VirtualLoop(), SHARDS, SERVERS, Ledger())  # type: ignore[abstract]


def wire(servers: EngineServers, link: EngineLink | None = None) -> Any:
    return EngineWire(servers, link or EngineLink(), Alive(), random.Random(1), 0.0)


def batches(servers: EngineServers) -> dict[int, list[NewURLs]]:
    found: dict[int, list[NewURLs]] = {}
    for host in HOSTS:
        shard = servers.memory.shard_of(host)
        found.setdefault(shard, []).append(NewURLs(host, [f"http://{host}/"], 5, 0, ""))
    return found


def known_on(servers: EngineServers) -> set[int]:
    """The servers that know any URL."""
    return {servers.places.of_shard(number) for number, shard in enumerate(servers.memory._shards) if shard.entries}


def test_a_call_on_several_shards_is_done_on_the_servers_that_answer(servers: EngineServers) -> None:
    engine = wire(servers)
    servers.down = frozenset({OTHER})
    with pytest.raises(EngineError):
        drive(engine.add_all(batches(servers), 1.0))
    assert known_on(servers) == {0, 2}
    servers.down = frozenset()
    drive(engine.add_all(batches(servers), 1.0))
    assert known_on(servers) == {0, 1, 2}
    assert servers.watcher.accepted == len(HOSTS)  # type: ignore[attr-defined]


def test_tables_and_the_time_are_on_one_server(servers: EngineServers) -> None:
    engine = wire(servers)
    servers.down = frozenset({OTHER})
    assert drive(engine.keep_time(5.0)) == 5.0
    servers.down = frozenset({ROOT})
    with pytest.raises(EngineError):
        drive(engine.keep_time(6.0))


def test_leases_end_and_are_released_where_servers_answer(servers: EngineServers) -> None:
    engine = wire(servers)
    drive(engine.add_all(batches(servers), 1.0))
    for shard in range(SHARDS):
        more = {"until": 10.0, "hosts_max": 100, "urls_max": 100, "urls_per_host": 1}
        drive(engine.lease(shard, f"n{shard % 2}", f"n{shard % 2}:{shard}", 1.0, **more))
    held = servers.watcher.leases  # type: ignore[attr-defined]
    before = set(held)
    servers.down = frozenset({OTHER})
    with pytest.raises(EngineError):
        drive(engine.release_nodes(["n0"], 2.0))
    released = before - set(held)
    assert released == {host for host in before if servers.memory.shard_of(host) in (0, 2)}
    with pytest.raises(EngineError):
        drive(engine.expire_all(20.0))
    assert {servers.places.of_name(host) for host in held} == {OTHER}
    servers.down = frozenset()
    assert set(drive(engine.expire_all(20.0))) == {host for host in before if servers.places.of_name(host) == OTHER}
    assert not held


def test_a_fault_that_ends_leaves_others_of_its_kind_at_work() -> None:
    simulation = Simulation(Scenario(nodes=4, hosts=12, engine_servers=5))
    machines = simulation._machines
    first, second = (Fault("engine_fails_over", 1.0, 9.0, drawn=drawn) for drawn in (1, 2))
    ends = [strike(machines, fault) for fault in (first, second, first)]
    both = simulation.servers.down
    assert len(both) == 2
    ends.pop(0)()
    assert simulation.servers.down == both
    ends.pop(0)()
    assert len(simulation.servers.down) == 1
    ends.pop(0)()
    assert simulation.servers.down == frozenset()
    assert not machines.troubles


def test_a_node_that_two_faults_freeze_goes_on_when_both_are_over() -> None:
    simulation = Simulation(Scenario(nodes=2, hosts=6, duration_s=20.0))
    simulation.run()
    everyone = Fault("nodes_frozen", 1.0, 9.0, 1.0)
    end, other = strike(simulation._machines, everyone), strike(simulation._machines, everyone)
    end()
    assert all(node.frozen for node in simulation.nodes)
    other()
    assert not any(node.frozen for node in simulation.nodes)


def test_a_retry_is_not_a_page_that_is_fetched_twice() -> None:
    calm = Scenario(seed=3, nodes=10, hosts=60, urls_per_host=100.0, page_s=1.0, duration_s=300.0)
    figures = run(calm).figures
    assert figures["tried_again"] > 10
    assert figures["fetched_twice"] <= 2
    killed = msgspec.structs.replace(calm, faults=(Fault("nodes_killed_with_disks", 100.0, 5.0, 0.8, 1),))
    assert run(killed).figures["fetched_twice"] > 2


def test_a_fleet_that_comes_and_goes_does_so_from_the_beginning() -> None:
    outcome = run(of_fleet(1, nodes=60, hours=0.1, churn=0.5, pages_per_minute=5.0))
    live = [sample.live for sample in outcome.samples if sample.at > 60.0]
    assert 15 < live[0] < 45


def test_seeds_differ_in_shape_as_well() -> None:
    drawn = [of_seed(seed) for seed in range(200)]
    crowded = [one for one in drawn if one.hosts < 3 * one.nodes * one.concurrency]
    mixed = [one for one in drawn if one.large]
    assert 4 <= len(crowded) <= 20
    assert 30 <= len(mixed) <= 70
    assert all(300 <= one.nodes <= 1_000 for one in drawn)
    assert set(Counter(one.retries_max for one in drawn)) == {0, 1, 2, 3}


def test_pages_of_dead_urls_have_letters_and_failures_are_dead() -> None:
    """Without retries URLs die, which hardly any seed used to show."""
    simulation = Simulation(Scenario(seed=3, nodes=10, hosts=60, page_s=1.0, duration_s=200.0, retries_max=0))
    simulation.run()
    entries = [entry for shard in simulation.memory._shards for entry in shard.entries.values()]
    dead = [entry for entry in entries if entry.state is TaskState.DEAD]
    assert len(dead) > 5
    assert all(entry.letter is not None and host_of(entry.task.url) == entry.host for entry in dead)
