"""Each planted bug is found by the checker that is named for what it breaks, within ten seeds."""

from __future__ import annotations

import pytest

from drumlin.sim.running import run
from tests.harness.planted import BUGS, planted

SEEDS = range(10)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_by_the_checker_named_for_it(name: str) -> None:
    bug = BUGS[name]
    found: list[str] = []
    with planted(bug):
        for seed in SEEDS:
            broken = run(bug.scenario(seed)).broken
            if broken is not None and broken.checker == bug.checker:
                print(f"{name}: seed {seed}, {broken}")
                return
            found.append(broken.checker if broken is not None else "nothing")
    raise AssertionError(f"found {found}, not {bug.checker}")


@pytest.mark.parametrize("name", BUGS)
def test_without_the_bug_the_same_scenario_is_clean(name: str) -> None:
    assert run(BUGS[name].scenario(0)).broken is None
