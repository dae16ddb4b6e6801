"""Runs scenarios, and tells what came of them."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from drumlin.garbage_collection import collect_seldom
from drumlin.lines import one_line
from drumlin.sim.checking import Checker, Ledger, Violation, World
from drumlin.sim.measuring import Sample
from drumlin.sim.recalling import Recall
from drumlin.sim.scenario import Scenario
from drumlin.sim.simulation import Simulation

GC_THRESHOLDS = (200_000, 10, 100)
LOG_LINES_MAX = 40
CRASH_LINES_MAX = 40
CRASH_CHARS_MAX = 500
NO_CRASH = "no_crash"
"""The promise that is broken when the simulated code raises what it should not."""

Hear = Callable[..., object]
Also = Callable[[World, Ledger], Checker]


def _ignore(*heard: object) -> None:
    """For those who do not listen."""


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
    crash: list[str] = []
    """The traceback, if the simulated code crashed."""
    recalled: list[str] = []
    """What happened last with what the violation names, if that was looked for."""


class _ListenerFailed(BaseException):
    """Whoever listens has raised something, such as a full disk where the log goes to. The simulated code must not
    catch it, and it is no crash of that code."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def run(
    scenario: Scenario,
    tell: Callable[[str], object] = _ignore,
    progress: Callable[[float], object] = _ignore,
    also: Also | None = None,
) -> Outcome:
    """Run a scenario to its end, or to the first violation. `tell` hears each line of its log as soon as there is
    one, and `progress` again and again how much virtual time has passed; what they raise ends the simulation and is
    raised here. `also` makes a further checker."""
    collect_seldom(*GC_THRESHOLDS)
    simulation = Simulation(scenario, tell=_guarded(tell), progress=_guarded(progress), also=also)
    broken, crash = None, list[str]()
    try:
        with _without_logs():
            simulation.run()
    except Violation as found:
        broken = Broken(found.checker, round(found.at, 3), found.said)
    except _ListenerFailed as failed:
        raise failed.error from None
    except MemoryError:
        raise
    except (Exception, GeneratorExit, asyncio.CancelledError) as error:
        said = one_line(f"{type(error).__name__}: {error}")[:CRASH_CHARS_MAX]
        broken, crash = Broken(NO_CRASH, round(simulation.now, 3), said), _traceback(error)
    measures = simulation.measures
    return Outcome(scenario, measures.figures(), measures.samples, simulation.log, broken, crash)


def _guarded(hear: Hear) -> Hear:
    def guarded(*heard: object) -> None:
        try:
            hear(*heard)
        except Exception as error:
            raise _ListenerFailed(error) from error

    return guarded


def _traceback(error: BaseException) -> list[str]:
    """Without the lines that only underline the one above: so twice as many frames are among the last lines."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    said = [one_line(line) for line in lines if line.strip(" ^~")]
    return said[-CRASH_LINES_MAX:]


@contextmanager
def _without_logs() -> Iterator[None]:
    """Keep what simulated processes would tell their operators out of the log of this one."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def recalled(outcome: Outcome, progress: Callable[[float], object] = _ignore) -> Outcome:
    """The same, with what happened before the violation to the hosts or nodes that it names. For that the scenario runs
    once more, since writing it down takes time: the same scenario gives the same simulation."""
    kept: list[Recall] = []

    def recall(world: World, ledger: Ledger) -> Recall:
        kept.append(Recall(world, ledger))
        return kept[0]

    again = run(outcome.scenario, progress=progress, also=recall)
    if outcome.broken is None or again.broken != outcome.broken:
        return outcome
    return replace(outcome, recalled=kept[0].about(outcome.broken.said))


def violation(outcome: Outcome) -> str:
    """What was broken, in a line; nothing if nothing was."""
    broken = outcome.broken
    return f"{broken.at:10.3f} VIOLATION of {broken.checker}: {broken.said}" if broken is not None else ""


def minimal_log(outcome: Outcome) -> list[str]:
    """The end of the log, what happened to those whom the violation names, and the violation."""
    told = outcome.log[-LOG_LINES_MAX:] + outcome.recalled + outcome.crash
    return told + ([violation(outcome)] if outcome.broken is not None else [])
