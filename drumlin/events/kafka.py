"""What one coordinator has to do with Kafka: the events that it produces, and the seeds that it takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from drumlin.events.coordinating import CoordinatorEvents
from drumlin.events.figures import beat_of, lines_of_events
from drumlin.metrics import registry
from drumlin.metrics.text import one
from drumlin.protocol import EventsBeat, Work


class SeedsTaken(Protocol):
    """What `serving.seeding` tells of itself."""

    taken: int
    bad: int
    lost: str


class Kafka:
    """Either part may be missing."""

    def __init__(self, events: CoordinatorEvents | None, seeding: SeedsTaken | None) -> None:
        self._events = events
        self._seeding = seeding

    @property
    def full(self) -> bool:
        """Whether no more work should be given out, because too many events wait."""
        return self._events is not None and self._events.full

    @property
    def seeds_lost(self) -> str:
        """Why seeds cannot be read; empty if they can."""
        return self._seeding.lost if self._seeding is not None else ""

    def owe(self, segment: str) -> None:
        """A segment is about to be published."""
        if self._events is not None:
            self._events.owe(segment)

    def owe_no_more(self, segment: str) -> None:
        """It was not published after all."""
        if self._events is not None:
            self._events.owe_no_more(segment)

    def given(self, work: Work, node: str) -> None:
        """Leases are about to be told to a node."""
        if self._events is not None:
            self._events.given(work, node)

    def beat(self) -> EventsBeat | None:
        """What is wrong with this coordinator's own events; None if nothing is."""
        return beat_of(self._events.standing()) if self._events is not None else None

    def lines(self) -> Iterable[Iterable[str]]:
        """The metrics."""
        yield from lines_of_events(self._events.standing() if self._events is not None else None)
        if self._seeding is not None:
            yield one(registry.SEEDS_TAKEN, self._seeding.taken)
            yield one(registry.SEEDS_BAD, self._seeding.bad)
