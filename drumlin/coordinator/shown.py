"""Times that people see, on the calendar (`drumlin.coordinator.calendar`).

Inside, all times are engine times. Here, where answers leave, those for people, and for workers that go by a clock,
become times of the day.
"""

from __future__ import annotations

from typing import Any

import msgspec

from drumlin.coordinator.calendar import Calendar
from drumlin.coordinator.messages import (
    DeadLettersView,
    DeadLetterView,
    NextURL,
    NodesView,
    NodeView,
    Stats,
    TotalsView,
)
from drumlin.coordinator.messages_hosts import BackOffView, HostsView, HostView, URLStory
from drumlin.protocol import FlatAssignment, Work

TIMES: dict[type, tuple[str, ...]] = {
    BackOffView: ("since", "next_try"),
    DeadLetterView: ("first_failed", "last_failed"),
    FlatAssignment: ("deadline", "not_before", "assigned_at"),
    HostView: ("next_contact", "lease_until"),
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
    # drumlin's own nodes go by their own clocks and get no list of assignments.
    Work: ("assignments",),
}


def on_calendar(answer: Any, calendar: Calendar) -> Any:
    """An answer with its times as people know them; zero stays zero, since it stands for never."""
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
