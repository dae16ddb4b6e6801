"""How a process stands with its broker, for Prometheus, for coordinators and for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from drumlin.config.quantities import show_duration, show_size
from drumlin.events.sender import Standing
from drumlin.metrics import registry
from drumlin.metrics.text import one
from drumlin.protocol import EventsBeat

ERROR_CHARS_MAX: Final = 200


def lines_of_events(standing: Standing | None) -> Iterable[Iterable[str]]:
    """The metrics of a process; nothing if it produces no events."""
    if standing is None:
        return []
    return [
        one(registry.EVENTS_PRODUCED, standing.produced),
        one(registry.EVENTS_REFUSED, standing.refused),
        one(registry.EVENTS_TOO_LARGE, standing.too_large),
        one(registry.EVENTS_WAITING, standing.waiting_bytes),
        one(registry.EVENTS_LAG, standing.lag_s),
        one(registry.EVENTS_AWAY, standing.away_s),
    ]


def beat_of(standing: Standing) -> EventsBeat | None:
    """What coordinators and people are told; nothing while the broker takes events."""
    if not standing.away_s and not standing.full:
        return None
    return EventsBeat(standing.waiting_bytes, standing.away_s, standing.full, standing.error[:ERROR_CHARS_MAX])


def broker_away(who: str, beat: EventsBeat) -> str:
    """The sentence for people."""
    said = f" ({beat.error})" if beat.error else ""
    since = f"has taken no events of {who} for {show_duration(beat.away_s)}" if beat.away_s else f"is behind {who}"
    full = " No more may wait (--events-max), so nothing is fetched there until it takes some." if beat.full else ""
    return f"Kafka {since}{said}; they wait on disk, {show_size(beat.waiting_bytes)} of tables.{full}"
