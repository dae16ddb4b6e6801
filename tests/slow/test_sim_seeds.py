"""Long seeds of the simulator's swarm, and a large fleet. How many seeds is said by DRUMLIN_SIM_SEEDS."""

from __future__ import annotations

import os

import pytest

from drumlin.sim.running import run
from drumlin.sim.scenario import of_fleet, of_seed

SEEDS = range(int(os.environ.get("DRUMLIN_SIM_SEEDS", "4")))
PAGES_MIN = 50_000


@pytest.mark.parametrize("seed", SEEDS)
def test_a_long_seed_breaks_no_promise(seed: int) -> None:
    scenario = of_seed(seed)
    outcome = run(scenario)
    assert outcome.broken is None, f"seed {seed}: {outcome.broken}"
    assert scenario.pages_max is not None or outcome.figures["pages"] >= PAGES_MIN


def test_a_fleet_that_loses_a_third_of_its_nodes_recovers_within_two_minutes() -> None:
    outcome = run(of_fleet(1, nodes=500, hours=0.5, churn=0.3, pages_per_minute=4.0))
    assert outcome.broken is None
    assert outcome.figures["goodput_share"] >= 0.95
    assert 0 < outcome.figures["recovery_s_max"] < 120
