"""Runs scenarios, and makes a violation small: the same promise broken with fewer nodes, fewer faults and less time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from drumlin.garbage_collection import collect_seldom
from drumlin.sim.checking import Violation
from drumlin.sim.measuring import Sample
from drumlin.sim.scenario import Scenario
from drumlin.sim.simulation import Simulation

GC_THRESHOLDS = (200_000, 10, 100)
TRIES_MAX = 60
NODES_MIN = 2
AFTER_S = 1.0
LOG_LINES_MAX = 40


class Broken(msgspec.Struct, frozen=True):
    """A violation as it is reported."""

    checker: str
    at: float
    said: str


class Outcome(msgspec.Struct, frozen=True):
    """What came of a scenario."""

    scenario: Scenario
    figures: dict[str, Any]
    samples: list[Sample]
    log: list[str]
    broken: Broken | None = None


def run(scenario: Scenario, tell: Callable[[str], None] = lambda line: None) -> Outcome:
    """Run a scenario to its end, or to the first violation. `tell` hears each line of its log as soon as there is
    one."""
    collect_seldom(*GC_THRESHOLDS)
    simulation = Simulation(scenario, tell=tell)
    broken = None
    try:
        with _without_logs():
            simulation.run()
    except Violation as found:
        broken = Broken(found.checker, round(found.at, 3), found.said)
    measures = simulation.measures
    return Outcome(scenario, measures.figures(), measures.samples, simulation.log, broken)


@contextmanager
def _without_logs() -> Iterator[None]:
    """Keep what simulated processes would tell their operators out of the log of this one."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def shrunk(outcome: Outcome, tell: Callable[[str], None] = lambda said: None) -> Outcome:
    """The smallest scenario found that breaks the same invariant."""
    best, tries = outcome, 0
    progress = True
    while progress and tries < TRIES_MAX:
        progress = False
        for smaller in _smaller(best):
            tries += 1
            found = run(smaller)
            if found.broken is not None and best.broken is not None and found.broken.checker == best.broken.checker:
                best, progress = found, True
                tell(f"still broken with {smaller.nodes} nodes, {len(smaller.faults)} faults, {smaller.duration_s:g} s")
                break
            if tries >= TRIES_MAX:
                break
    return best


def _smaller(outcome: Outcome) -> Iterator[Scenario]:
    """Scenarios that are smaller in one way, the largest steps first."""
    scenario, broken = outcome.scenario, outcome.broken
    if broken is None:
        return
    if broken.at + AFTER_S < scenario.duration_s:
        begun = tuple(fault for fault in scenario.faults if fault.at <= broken.at)
        yield replace(scenario, duration_s=broken.at + AFTER_S, faults=begun)
    faults = scenario.faults
    step = len(faults)
    while step:
        for start in range(0, len(faults), step):
            yield replace(scenario, faults=faults[:start] + faults[start + step :])
        step //= 2
    for share in (4, 2):
        if scenario.nodes // share >= NODES_MIN:
            yield replace(scenario, nodes=scenario.nodes // share)
    if scenario.hosts >= 2 * scenario.nodes:
        yield replace(scenario, hosts=scenario.hosts // 2)
    if scenario.suspends:
        yield replace(scenario, suspends=0.0)


def violation(outcome: Outcome) -> str:
    """What was broken, in a line; nothing if nothing was."""
    broken = outcome.broken
    return f"{broken.at:10.3f} VIOLATION of {broken.checker}: {broken.said}" if broken is not None else ""


def minimal_log(outcome: Outcome) -> list[str]:
    """The end of the log, and the violation."""
    return outcome.log[-LOG_LINES_MAX:] + ([violation(outcome)] if outcome.broken is not None else [])
