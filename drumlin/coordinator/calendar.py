"""Times that people see, on the calendar.

Engine time stands still while no coordinator runs, and so falls behind the calendar (`engine_time`). Inside, times are
engine times; here, where answers leave, those for people and for workers that go by a clock become times of the day.
"""

from __future__ import annotations

from typing import Any

import msgspec

from drumlin.coordinator.messages import (
    DeadLettersView,
    DeadLetterView,
    HostsView,
    HostView,
    NextURL,
    NodesView,
    NodeView,
    Stats,
    TotalsView,
    URLStory,
)
from drumlin.protocol import Assignment, Work

NEGLIGIBLE_S = 0.5
"""Below this the two are taken to be the same."""
TIMES: dict[type, tuple[str, ...]] = {
    Assignment: ("deadline", "not_before"),
    DeadLetterView: ("first_failed", "last_failed"),
    HostView: ("next_contact", "lease_until"),
    NodeView: ("last_seen", "registered_at"),
    Stats: ("time",),
    TotalsView: ("next_event",),
    URLStory: ("first_seen", "retry_at", "lease_until"),
}
TIMES_MS: dict[type, tuple[str, ...]] = {NextURL: ("allowed_after_epoch_ms", "lease_ends_epoch_ms")}
PARTS: dict[type, tuple[str, ...]] = {
    DeadLettersView: ("dead_letters",),
    HostsView: ("hosts",),
    NodesView: ("nodes",),
    Stats: ("totals",),
    URLStory: ("dead_letter", "host_state"),
    # drumlin's own nodes go by their own clocks and get no list of assignments.
    Work: ("assignments",),
}


def on_calendar(answer: Any, behind_s: float) -> Any:
    """An answer with its times as people know them; zero stays zero, since it stands for never."""
    if abs(behind_s) < NEGLIGIBLE_S:
        return answer
    return _shifted(answer, behind_s)


def _shifted(value: Any, seconds: float) -> Any:
    if isinstance(value, list):
        return [_shifted(one, seconds) for one in value]
    kind, changes = type(value), {}
    for name in TIMES.get(kind, ()):
        if moment := getattr(value, name):
            changes[name] = moment + seconds
    for name in TIMES_MS.get(kind, ()):
        if moment := getattr(value, name):
            changes[name] = moment + round(seconds * 1000)
    for name in PARTS.get(kind, ()):
        changes[name] = _shifted(getattr(value, name), seconds)
    return msgspec.structs.replace(value, **changes) if changes else value
