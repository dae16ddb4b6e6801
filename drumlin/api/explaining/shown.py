"""Times that people see, on the calendar (`drumlin.coordinator.calendar`).

Inside drumlin all times are engine times. Just before an answer is sent, times for people, and for workers that go by a
clock, are converted to calendar time here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from drumlin.api.messages.hosts import BackOffView, HostsView, HostView, URLStory
from drumlin.api.messages.people import (
    DeadLettersView,
    DeadLetterView,
    NextURL,
    NodesView,
    NodeView,
    Stats,
    TotalsView,
)
from drumlin.coordinator.calendar import Calendar
from drumlin.protocol import FlatAssignment, Work

TIMES: dict[type, tuple[str, ...]] = {
    BackOffView: ("since", "next_try"),
    DeadLetterView: ("first_failed", "last_failed"),
    FlatAssignment: ("deadline", "not_before", "assigned_at"),
    HostView: ("next_contact", "lease_until", "time"),
    NodesView: ("time",),
    NodeView: ("last_seen", "registered_at"),
    Stats: ("time",),
    TotalsView: ("next_event",),
    URLStory: ("first_seen", "retry_at", "next_fetch_after", "lease_until"),
}
TIMES_MS: dict[type, tuple[str, ...]] = {NextURL: ("allowed_after_epoch_ms", "lease_ends_epoch_ms")}
PARTS: dict[type, tuple[str, ...]] = {
    DeadLettersView: ("dead_letters",),
    HostsView: ("hosts",),
    HostView: ("backoff",),
    NodesView: ("nodes",),
    Stats: ("totals",),
    URLStory: ("dead_letter", "host_state"),
    # Only workers of others get this list; drumlin's own nodes use durations, which need no conversion.
    Work: ("assignments",),
}


def on_calendar(answer: Any, calendar: Calendar) -> Any:
    """An answer with its times on the calendar. Zero stays zero, since it means never."""
    return answer if calendar.plain else _shown(answer, calendar)


def _shown(value: Any, calendar: Calendar) -> Any:
    if isinstance(value, list):
        return [_shown(one, calendar) for one in value]
    if isinstance(value, dict):
        return {name: _shown(one, calendar) for name, one in value.items()}
    kind, changes = type(value), {}
    for name in TIMES.get(kind, ()):
        if moment := getattr(value, name):
            changes[name] = calendar.shown(moment)
    for name in TIMES_MS.get(kind, ()):
        if moment := getattr(value, name):
            changes[name] = round(calendar.shown(moment / 1000) * 1000)
    for name in PARTS.get(kind, ()):
        changes[name] = _shown(getattr(value, name), calendar)
    return msgspec.structs.replace(value, **changes) if changes else value
