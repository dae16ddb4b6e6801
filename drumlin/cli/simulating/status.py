"""A line on the terminal that says how far a simulation is."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from drumlin.config.quantities import show_duration

if TYPE_CHECKING:
    from drumlin.sim.scenario import Scenario

REDRAW_S = 0.2
GUESS_AFTER_S = 1.0
"""Before this much time has passed nobody knows how long the rest takes."""
ECHO_COLUMNS = 3
"""Left free at the right: a terminal shows `^C` at the end of the line, and must not begin a new one for it."""


class StatusLine:
    """Writes a line to stderr again and again in the same place. It is a context manager, since the line must be gone
    at the end. Where stderr is no terminal it writes nothing."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._wanted = wanted and sys.stderr.isatty()
        self._scenario: Scenario | None = None
        self._began = self._next = 0.0
        self._width = 0

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def show(self, scenario: Scenario, now: float) -> None:
        """Say that so much of the virtual time of this scenario has passed."""
        if not self._wanted:
            return
        clock = time.monotonic()
        if scenario is not self._scenario:
            self._scenario, self._began, self._next = scenario, clock, 0.0
        if clock >= self._next:
            self._next = clock + REDRAW_S
            self._draw(status(scenario.duration_s, now, clock - self._began))

    def clear(self) -> None:
        """Remove the line, so something else can be written there."""
        if self._width:
            sys.stderr.write(f"\r{' ' * (self._width + ECHO_COLUMNS - 1)}\r")
            sys.stderr.flush()
            self._width = 0

    def _draw(self, said: str) -> None:
        said = said[: shutil.get_terminal_size().columns - ECHO_COLUMNS]
        sys.stderr.write(f"\r{said.ljust(self._width)}")
        sys.stderr.flush()
        self._width = len(said)


def status(duration_s: float, now: float, passed_s: float) -> str:
    """How far a simulation is, and how long the rest takes if it goes on like this."""
    share = min(1.0, now / duration_s)
    said = f"Simulated {show_duration(now)} of {show_duration(duration_s)}, {int(100 * share)}%"
    if share and passed_s >= GUESS_AFTER_S:
        said += f", about {show_duration(passed_s * (1.0 - share) / share)} left"
    return said
