"""What can happen to a process, by name, and the ids that say to whom.

An event's name stays the same when its sentence changes, so programs can wait for it. `docs/how-to/read-logs.md` lists
all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum

ID_FIELDS = ("crawl", "coordinator", "node", "lease", "request", "trace_id", "span_id")
"""The ids that are shown to people too; other fields are in lines of JSON only, because the sentence says them."""
FIELDS = "drumlin_fields"
"""The attribute of a log record that holds its fields."""


class Event(StrEnum):
    """The name of something that happened."""

    STARTED = "started"
    STOPPING = "stopping"
    STOPPED = "stopped"
    JOINED = "joined"
    JOINED_AGAIN = "joined_again"
    REFUSED = "refused"
    DRAINING = "draining"
    DRAINED = "drained"
    LEFT = "left"
    FAILED = "failed"
    SILENT = "silent"
    BACK = "back"
    MISDEED = "misdeed"
    QUARANTINED = "quarantined"
    RELEASED = "released"
    RESTARTED = "restarted"
    COORDINATOR_LOST = "coordinator_lost"
    COORDINATOR_BACK = "coordinator_back"
    COORDINATOR_STRANGE = "coordinator_strange"
    ENGINE_LOST = "engine_lost"
    ENGINE_BACK = "engine_back"
    STORE_LOST = "store_lost"
    STORE_BACK = "store_back"
    STORE_COMPLETE = "store_complete"
    BUNDLE_LOST = "bundle_lost"
    LEADS = "leads"
    FOLLOWS = "follows"
    CRAWL_STATE = "crawl_state"
    SETTINGS_CHANGED = "settings_changed"
    AUDIT = "audit"
    BUG = "bug"
    TRACED = "traced"
    TRACES_LOST = "traces_lost"
    TRACES_BACK = "traces_back"
    BROKER_LOST = "broker_lost"
    BROKER_BACK = "broker_back"
    SEEDS_LOST = "seeds_lost"
    SEEDS_BACK = "seeds_back"


HAPPENED_MAX = 20_000


class Happenings:
    """What happened since somebody last took it, and to whom: noted beside entries of the log that people should see in
    the crawl's history too. If nobody takes it, the oldest is forgotten."""

    def __init__(self) -> None:
        self._noted: deque[tuple[Event, str]] = deque(maxlen=HAPPENED_MAX)
        self.listener: Callable[[Event, str], None] | None = None
        """Hears of everything at once, too."""

    def note(self, kind: Event, who: str = "") -> None:
        self._noted.append((kind, who))
        if self.listener is not None:
            self.listener(kind, who)

    def take(self) -> list[tuple[Event, str]]:
        taken = list(self._noted)
        self._noted.clear()
        return taken

    def put_back(self, taken: list[tuple[Event, str]]) -> None:
        self._noted.extendleft(reversed(taken))


current_request: ContextVar[str] = ContextVar("current_request", default="")
"""The id of the request that is being answered; empty outside of requests."""

_process_ids: dict[str, str] = {}


def event(kind: Event, **fields: str | float) -> dict[str, object]:
    """The `extra` of a log entry: what happened, and to whom. Fields without a value are left out."""
    return {FIELDS: {"event": str(kind), **{name: value for name, value in fields.items() if value != ""}}}


def identify(**ids: str) -> None:
    """Note ids that stand in every further entry of this process; an empty one is forgotten."""
    _process_ids.update(ids)
    for name in [name for name, value in _process_ids.items() if not value]:
        del _process_ids[name]


def forget_ids() -> None:
    """Begin without ids, as a process does."""
    _process_ids.clear()


def common_ids() -> dict[str, str]:
    """The ids of this process and of the request that it is answering."""
    request = current_request.get()
    return {**_process_ids, "request": request} if request else dict(_process_ids)
