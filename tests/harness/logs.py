"""Reading logs that are lines of JSON, as a log system would."""

from __future__ import annotations

import json
from typing import Any


def entries(text: str) -> list[dict[str, Any]]:
    """All entries; every line must be one."""
    return [json.loads(line) for line in text.splitlines()]


def events(text: str) -> list[str]:
    """The names of what happened, in order."""
    return [entry["event"] for entry in entries(text) if "event" in entry]


def of_event(text: str, name: str) -> list[dict[str, Any]]:
    """The entries of this event."""
    return [entry for entry in entries(text) if entry.get("event") == name]
