"""Clocks that tests set by hand."""

from __future__ import annotations

from drumlin.coordinator.engine_time import EngineTime
from drumlin.engines.base import Engine


class HandClock:
    """Shows the time that a test sets."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def still_time(engine: Engine, now: float) -> EngineTime:
    """An engine time that stands still."""
    return EngineTime(engine, monotonic=HandClock(), wall=HandClock(now))
