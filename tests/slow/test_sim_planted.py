"""Each of twelve planted bugs is found by the checker that is named for what it breaks, within ten seeds."""

from __future__ import annotations

import pytest

from drumlin.sim.running import run
from tests.harness.planted import BUGS, planted

SEEDS = range(10)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_by_the_checker_named_for_it(name: str) -> None:
    bug = BUGS[name]
    with planted(bug):
        found = {broken.checker for seed in SEEDS if (broken := run(bug.scenario(seed)).broken) is not None}
    assert bug.checker in found


def test_without_a_bug_the_same_scenarios_are_clean() -> None:
    for bug in BUGS.values():
        assert run(bug.scenario(0)).broken is None
