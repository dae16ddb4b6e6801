"""Ends the processes of a fleet: nodes first, then coordinators, then the engine. Each is asked to end (SIGTERM), and
killed if it does not."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from drumlin.fleet.layout import FleetProcess, FleetRecord, ProcessRole

# How long each may take: a node finishes what is in flight, a coordinator answers its requests, Redis writes its log.
PATIENCE_S = {ProcessRole.NODE: 90.0, ProcessRole.COORDINATOR: 30.0, ProcessRole.REDIS: 30.0}
KILLED_S_MAX = 10.0
POLL_S = 0.05


def end_all(record: FleetRecord, *, at_once: bool = False, on_poll: Callable[[], object] = lambda: None) -> list[str]:
    """End every process of the fleet. Returns the names of those that had to be killed.

    `on_poll` is called while waiting, so a parent can reap its children.
    """
    killed: list[str] = []
    for role in (ProcessRole.NODE, ProcessRole.COORDINATOR, ProcessRole.REDIS):
        members = [process for process in record.of(role) if process.alive]
        _signal(members, signal.SIGKILL if at_once else signal.SIGTERM)
        # A frozen process (SIGSTOP) would not see the first signal until it goes on.
        _signal(members, signal.SIGCONT)
        left = _wait(members, PATIENCE_S[role], on_poll)
        _signal(left, signal.SIGKILL)
        _wait(left, KILLED_S_MAX, on_poll)
        killed += [process.name for process in left]
    return killed


def _signal(processes: Sequence[FleetProcess], number: signal.Signals) -> None:
    for process in processes:
        if process.mark is not None:
            process.mark.send(number)


def _wait(processes: Sequence[FleetProcess], seconds_max: float, on_poll: Callable[[], object]) -> list[FleetProcess]:
    """Wait until all have ended or the time is over. Returns those that are still alive."""
    deadline = time.monotonic() + seconds_max
    left = list(processes)
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        on_poll()
        left = [process for process in left if process.alive]
    return left
