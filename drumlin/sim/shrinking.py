"""Makes a violation small: the same promise broken with fewer nodes, fewer faults and less time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from msgspec.structs import replace

from drumlin.lines import counted
from drumlin.sim.running import NO_CRASH, Broken, Outcome, run
from drumlin.sim.scenario import Scenario

TRIES_MAX = 60
NODES_MIN = 2
NODES_KEPT = (0.25, 0.5, 0.75, 0.9)
ROOM, ROOM_S = 2.0, 30.0
AFTER_S = 1.0
FAULTS_NAMED_MAX = 2


class OutOfTime(Exception):
    """Raised by whoever watches a search, to end it."""


def _ignore(*heard: object) -> None:
    """For those who do not listen."""


def shrunk(
    outcome: Outcome,
    tell: Callable[[str], object] = _ignore,
    better: Callable[[Outcome], object] = _ignore,
    watch: Callable[[Scenario, float], object] = _ignore,
) -> Outcome:
    """The smallest scenario found that breaks the same promise. `tell` hears a sentence for each try, and `better`
    what is smaller than all before as soon as it is found, so it is not lost if the search is interrupted. `watch`
    hears what is tried, and how far it is in virtual time; it ends the search by raising `OutOfTime`."""
    best, tried = outcome, {outcome.scenario}
    try:
        while (found := _next_smaller(best, tried, tell, watch)) is not None:
            best = found
            better(best)
    except OutOfTime:
        tell("The time for looking is over.")
    return best


def _next_smaller(
    best: Outcome,
    tried: set[Scenario],
    tell: Callable[[str], object],
    watch: Callable[[Scenario, float], object],
) -> Outcome | None:
    """The first that is smaller and breaks the same promise. None if there is none, or after too many tries."""
    fresh = (smaller for smaller in _smaller(best) if smaller not in tried)
    # The scenario to begin with is among those that were tried.
    for smaller in islice(fresh, TRIES_MAX + 1 - len(tried)):
        tried.add(smaller)
        found = _try(smaller, watch)
        same = found is not None and _same(found.broken, best.broken)
        verdict = "still broken" if same else "not broken"
        tell(f"Try {len(tried) - 1} of {TRIES_MAX}: {_changes(best.scenario, smaller)}: {verdict}.")
        if same:
            return found
    return None


def _try(smaller: Scenario, watch: Callable[[Scenario, float], object]) -> Outcome | None:
    """None if the scenario cannot be run, whatever it raises: an error of a try must not lose what was found."""
    # Many a small scenario is over before it is looked at.
    watch(smaller, 0.0)
    try:
        return run(smaller, progress=lambda now: watch(smaller, now))
    except (OutOfTime, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return None


def _same(one: Broken | None, other: Broken | None) -> bool:
    """Whether the same promise is broken. Crashes are the same if they are of the same kind."""
    if one is None or other is None or one.checker != other.checker:
        return False
    return one.checker != NO_CRASH or one.said.partition(":")[0] == other.said.partition(":")[0]


def _smaller(outcome: Outcome) -> Iterator[Scenario]:
    """Scenarios that are smaller in one way, the largest steps first."""
    scenario, broken = outcome.scenario, outcome.broken
    if broken is None:
        return
    # With fewer nodes it takes longer until something breaks, so at first some time is left for that.
    if ROOM * broken.at + ROOM_S < scenario.duration_s:
        yield _cut_off(scenario, broken.at, ROOM * broken.at + ROOM_S)
    faults = scenario.faults
    step = len(faults)
    while step:
        for start in range(0, len(faults), step):
            yield replace(scenario, faults=faults[:start] + faults[start + step :])
        step //= 2
    for share in NODES_KEPT:
        nodes = int(share * scenario.nodes)
        if NODES_MIN <= nodes < scenario.nodes:
            yield replace(scenario, nodes=nodes)
    if scenario.hosts >= 2 * scenario.nodes:
        yield replace(scenario, hosts=scenario.hosts // 2)
    if scenario.suspends:
        yield replace(scenario, suspends=0.0)
    if broken.at + AFTER_S < scenario.duration_s:
        yield _cut_off(scenario, broken.at, broken.at + AFTER_S)


def _cut_off(scenario: Scenario, broken_at: float, duration_s: float) -> Scenario:
    begun = tuple(fault for fault in scenario.faults if fault.at <= broken_at)
    return replace(scenario, duration_s=duration_s, faults=begun)


def _changes(before: Scenario, after: Scenario) -> str:
    """How a scenario is smaller than another, in words."""
    said = [
        f"{getattr(after, field):,g}{unit} in place of {getattr(before, field):,g}"
        for field, unit in (("duration_s", " s"), ("nodes", " nodes"), ("hosts", " hosts"))
        if getattr(after, field) != getattr(before, field)
    ]
    if after.suspends != before.suspends:
        said.append("no call of the engine lets others come first")
    without = [fault for fault in before.faults if fault not in after.faults]
    if without:
        named = [f"{fault.kind} at {fault.at:g} s" for fault in without[:FAULTS_NAMED_MAX]]
        more = [counted(len(without) - len(named), "more fault")] if len(without) > len(named) else []
        said.append(f"without {' and '.join(named + more)}")
    return ", ".join(said)
