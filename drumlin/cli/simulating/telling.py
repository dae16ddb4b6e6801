"""Prints what came of a simulation: the figures, and a broken promise with the smallest scenario that breaks it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from drumlin.cli.console import write_json
from drumlin.cli.simulating.status import StatusLine
from drumlin.lines import tell

if TYPE_CHECKING:
    from drumlin.sim.running import Outcome
    from drumlin.sim.scenario import Scenario

SEARCH_S_MAX = 600.0
"""The longest time to look for a smaller scenario, and to run the smallest once more."""


def show_figures(outcome: Outcome) -> None:
    """The figures as a table on stdout."""
    width = max(map(len, outcome.figures))
    for name, value in outcome.figures.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if isinstance(value, float) else str(value)
        sys.stdout.write(f"{name.replace('_', ' '):{width}}  {shown:>14}\n")
    sys.stdout.flush()


def write_figures(outcome: Outcome, smallest: Outcome | None) -> None:
    """The figures as JSON on stdout; if a promise was broken, with the scenario and the smallest one found."""
    scenarios = {"scenario": outcome.scenario, "smallest": smallest.scenario} if smallest is not None else {}
    write_json({**outcome.figures, "broken": outcome.broken, **scenarios})


def tell_broken(outcome: Outcome) -> None:
    """Print the violation, and the scenario that reproduces it: whatever comes after may be interrupted."""
    from drumlin.sim.running import violation

    tell(f"{violation(outcome)}.")
    _write_lines(*outcome.crash, "The scenario, for --scenario FILE:", _json(outcome.scenario))


def tell_smallest(outcome: Outcome) -> Outcome:
    """Look for a smaller scenario, and print what happens in the smallest one found."""
    from drumlin.sim.running import minimal_log

    with StatusLine() as status:
        smallest = _searched(outcome, status)
    _write_lines(*minimal_log(smallest))
    _write_lines(
        f"seed {outcome.scenario.seed}; smallest scenario found, for --scenario FILE:", _json(smallest.scenario)
    )
    return smallest


def _searched(outcome: Outcome, status: StatusLine) -> Outcome:
    """The smallest scenario found, with what it was that happened. Ctrl-C ends the search and loses nothing."""
    from drumlin.sim.running import recalled
    from drumlin.sim.shrinking import OutOfTime, shrunk

    smallest = outcome
    over = time.monotonic() + SEARCH_S_MAX

    def better(found: Outcome) -> None:
        nonlocal smallest
        smallest = found

    def watch(scenario: Scenario, now: float) -> None:
        if time.monotonic() > over:
            raise OutOfTime
        status.show(scenario, now)

    def say(said: str) -> None:
        status.clear()
        tell(said)

    tell(f"Looking for a smaller scenario, for at most {SEARCH_S_MAX / 60:g} minutes; Ctrl-C ends the search.")
    try:
        shrunk(outcome, say, better, watch)
        over = time.monotonic() + SEARCH_S_MAX
        say("Running the smallest scenario once more, to see what led to it; Ctrl-C leaves that out.")
        smallest = recalled(smallest, lambda now: watch(smallest.scenario, now))
    except KeyboardInterrupt:
        say("Interrupted; this is the smallest scenario found so far.")
    except OutOfTime:
        say("That took too long; this is what is known.")
    return smallest


def _json(scenario: Scenario) -> str:
    import msgspec

    return msgspec.json.encode(scenario).decode()


def _write_lines(*lines: str) -> None:
    """Lines on stderr that are not broken between words, so they can be copied."""
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()
