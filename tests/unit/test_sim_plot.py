"""Pictures of simulations: faults by their names, round ticks, and where a promise was broken."""

from __future__ import annotations

import re

import pytest

from drumlin.sim.faults import KINDS, Fault
from drumlin.sim.measuring import Sample
from drumlin.sim.plot import POINTS_MAX, TIME_TICKS_MAX, VALUE_TICKS_MAX, _time_ticks, _value_step, plot
from drumlin.sim.running import Broken, Outcome
from drumlin.sim.scenario import Scenario


def outcome(*faults: Fault, end: int = 400, broken: Broken | None = None, every: int = 5) -> Outcome:
    samples = [Sample(float(at), at // 2, at, 17, 1.0, 0.25, 3) for at in range(every, end + 1, every)]
    return Outcome(Scenario(seed=3, nodes=17, faults=faults), {}, samples, [], broken)


def words(picture: str) -> list[str]:
    return re.findall(r"<text [^>]*>([^<]*)</text>", picture)


def test_each_kind_of_fault_that_struck_has_a_lane_with_its_name() -> None:
    faults = [Fault(kind, 10.0 * n, 100.0, 0.1) for n, kind in enumerate(KINDS)]
    told = words(plot(outcome(*faults, *faults)))
    assert [word for word in told if word in KINDS] == list(KINDS)
    assert "nodes_killed" not in words(plot(outcome(Fault("nodes_killed", 500.0, 1.0))))
    assert told[0] == "seed 3: 17 nodes, 6 min 40 s of virtual time"


def test_a_violation_is_marked_with_the_name_of_the_promise() -> None:
    picture = plot(outcome(broken=Broken("one_live_lease", 401.5, "h1 <b> is leased twice")))
    assert "one_live_lease" in words(picture)
    assert picture.count('stroke="#c00000"') == 1
    assert 'stroke="#c00000"' not in plot(outcome())


def test_a_picture_can_be_drawn_of_nothing() -> None:
    nothing = Outcome(Scenario(), {}, [], [], Broken("no_crash", 0.0, "KeyError: 1"))
    assert "no_crash" in words(plot(nothing))


def test_a_long_simulation_has_no_more_points_than_can_be_seen() -> None:
    picture = plot(outcome(end=20 * POINTS_MAX))
    assert max(len(points.split()) for points in re.findall(r'points="([^"]*)"', picture)) <= POINTS_MAX


@pytest.mark.parametrize(
    ("end", "first", "last"),
    [
        (3.2, ["0", "1 s"], "3 s"),
        (21.4, ["0", "5 s"], "20 s"),
        (100.0, ["0", "15 s"], "90 s"),
        (420.0, ["0", "1 min"], "7 min"),
        (1_200.0, ["0", "5 min"], "20 min"),
        (86_400.0, ["0", "3 h"], "24 h"),
        (3.6e6, ["0", "120 h"], "960 h"),
    ],
)
def test_moments_are_round(end: float, first: list[str], last: str) -> None:
    ticks = _time_ticks(end)
    named = [said for _, said in ticks]
    assert len(ticks) <= TIME_TICKS_MAX + 1
    assert (named[:2], named[-1]) == (first, last)


@pytest.mark.parametrize(
    ("most", "whole", "step"),
    [
        (8.2, False, 2.5),
        (17.0, True, 5.0),
        (1.0, True, 1.0),
        (3.0, True, 1.0),
        (0.09, False, 0.025),
        (1e6, True, 2.5e5),
    ],
)
def test_values_are_round(most: float, whole: bool, step: float) -> None:
    assert _value_step(most, whole=whole) == pytest.approx(step)
    assert most <= VALUE_TICKS_MAX * step
