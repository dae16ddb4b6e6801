"""Ending a fleet: asked first, made to after a while; nodes before coordinators before the engine."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from drumlin.fleet.layout import FleetProcess, FleetRecord, Role

# A node finishes what is in flight; a coordinator answers what was asked; Redis writes its log.
PATIENCE_S = {Role.NODE: 90.0, Role.COORDINATOR: 30.0, Role.REDIS: 30.0}
KILLED_S_MAX = 10.0
POLL_S = 0.05


def end_all(record: FleetRecord, *, at_once: bool = False, on_poll: Callable[[], object] = lambda: None) -> list[str]:
    """End every process of the fleet that is ours; the names of those that had to be killed.

    `on_poll` is called while waiting, for a parent to reap its children.
    """
    killed: list[str] = []
    for role in (Role.NODE, Role.COORDINATOR, Role.REDIS):
        members = [process for process in record.of(role) if process.alive]
        _signal(members, signal.SIGKILL if at_once else signal.SIGTERM)
        # One that is frozen could neither leave nor be told to.
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
    """Those that are still at work when all are gone or the time is over."""
    deadline = time.monotonic() + seconds_max
    left = list(processes)
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        on_poll()
        left = [process for process in left if process.alive]
    return left
