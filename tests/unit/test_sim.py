"""The simulator: short seeds of the swarm are clean, the same seed goes the same way, and a planted bug is found."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest
from click.testing import CliRunner

from drumlin.cli.main import drumlin
from drumlin.errors import ConfigError
from drumlin.sim.faults import KINDS, Fault
from drumlin.sim.plot import plot
from drumlin.sim.running import minimal_log, run
from drumlin.sim.scenario import Scenario, of_fleet, of_seed
from drumlin.sim.shrinking import shrunk
from drumlin.sim.simulation import Simulation
from drumlin.sim.striking import STRIKES
from tests.harness.planted import BUGS, planted

SEEDS = range(20)
TOLD = """
import msgspec
from drumlin.sim.running import run
from drumlin.sim.scenario import of_seed
outcome = run(of_seed(5, short=True))
print("\\n".join(outcome.log))
print(msgspec.json.encode(outcome.figures).decode())
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_short_seed_breaks_no_promise(seed: int) -> None:
    outcome = run(of_seed(seed, short=True))
    assert outcome.broken is None, f"seed {seed}: {outcome.broken}"
    assert outcome.figures["pages"] > 100


def story_told(hash_seed: str) -> bytes:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run([sys.executable, "-c", TOLD], env=environment, check=True, capture_output=True).stdout


def test_the_same_seed_goes_the_same_way_under_any_hash_seed() -> None:
    first = story_told("1")
    assert first.count(b"\n") > 10
    assert story_told("2") == first


def test_another_seed_goes_another_way() -> None:
    stories = {run(msgspec.structs.replace(SMALL, seed=seed)).figures["story"] for seed in (1, 2)}
    assert len(stories) == 2


SMALL = Scenario(nodes=5, hosts=30, duration_s=60.0, heartbeat_s=10.0)


def test_no_lease_is_lost_where_nothing_fails_though_pages_take_longer_than_leases() -> None:
    """Leases whose last page was under way were once not renewed: they ran out, and the page was fetched again."""
    slow = msgspec.structs.replace(SMALL, page_s=20.0, lease_s=15.0, hosts=60, urls_per_host=3.0, duration_s=300.0)
    outcome = run(slow)
    assert outcome.broken is None
    assert outcome.figures["leases_lost"] == 0


def test_a_node_whose_disk_is_full_sends_nothing_after_it_has_said_goodbye() -> None:
    """Long seed 1: connections that were under way once stood while the node left, and requests went out on them."""
    faults = tuple(Fault("disks_full", 60.0 + 20.0 * n, 10.0, 0.5, 20 + n) for n in range(4))
    scenario = msgspec.structs.replace(of_seed(2, short=True), faults=faults, suspends=0.5, duration_s=120.0)
    assert run(msgspec.structs.replace(scenario, page_s=3.0, pages_max=None)).broken is None


def test_nodes_in_quarantine_call_no_more_often_than_honest_ones() -> None:
    """Their Retry-After once had a fraction, which nodes do not read: each of them called 25 times a second."""
    honest = msgspec.structs.replace(SMALL, nodes=10, hosts=60, duration_s=120.0)
    liars = msgspec.structs.replace(honest, faults=(Fault("nodes_lie", 30.0, 80.0, 0.3, 1),))
    before, after = run(honest).figures, run(liars).figures
    assert after["messages_per_page"] < 1.5 * before["messages_per_page"]


def test_every_kind_of_fault_can_strike_and_all_are_met_within_a_few_seeds() -> None:
    assert KINDS.keys() == STRIKES.keys()
    met = {fault.kind for seed in range(30) for fault in of_seed(seed).faults}
    assert met == KINDS.keys()


def test_a_violation_is_made_small_and_its_scenario_reproduces_it() -> None:
    bug = BUGS["a lost settle"]
    with planted(bug):
        found = run(bug.scenario(0))
        assert found.broken is not None
        assert found.broken.checker == bug.checker
        small = shrunk(found)
        told = msgspec.json.decode(msgspec.json.encode(small.scenario), type=Scenario)
        again = run(told)
    assert small.scenario.nodes < found.scenario.nodes
    assert small.scenario.faults == ()
    assert again.broken == small.broken
    assert "VIOLATION of acknowledged_survives" in minimal_log(small)[-1]


def test_a_planned_fleet_comes_and_goes_and_is_drawn() -> None:
    outcome = run(of_fleet(1, nodes=20, hours=0.1, churn=0.3, pages_per_minute=10.0))
    assert outcome.broken is None
    assert 0.8 < outcome.figures["goodput_share"] <= 1.0
    assert min(sample.live for sample in outcome.samples[10:]) < 20
    picture = plot(outcome)
    assert picture.startswith("<svg")
    assert "nodes_killed" in picture


def test_a_node_that_comes_back_is_not_idle_since_its_last_life() -> None:
    simulation = Simulation(Scenario(seed=1, nodes=2, hosts=6, duration_s=30.0))
    simulation.run()
    node, agent = simulation.nodes[0], simulation.nodes[1].agent
    assert agent is not None
    agent._contacts.hosts.by_name.clear()
    node.agent = agent
    assert not node.idle_since(45.0)
    simulation.loop.now += 60.0
    assert node.idle_since(45.0)
    node.alive = False
    node.start()
    assert not node.idle_since(45.0)


@pytest.mark.parametrize("given", [("--short", "--hours", "1"), ("--churn", "0.1"), ("--pages-per-minute", "3")])
def test_flags_of_a_planned_fleet_are_refused_without_its_size(given: tuple[str, ...]) -> None:
    done = CliRunner().invoke(drumlin, ["sim", *given], standalone_mode=False)
    assert isinstance(done.exception, ConfigError)
    assert "is about a fleet of --nodes N" in str(done.exception)
