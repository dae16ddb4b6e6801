"""What the memory engine keeps of one shard: every task an `Entry`, host queues and time indexes as sorted lists."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TypeVar

from drumlin.engines.embedded import refuses_for_good, verdict_on
from drumlin.engines.kept import mark_of, short_mark
from drumlin.model import DeadLetter, FailureKind, HostState, Settled, Task, TaskState, Verdict
from drumlin.urls import identity

AFTER_EVERY_NAME = "\U0010ffff"


_Place = TypeVar("_Place", tuple[float, str], tuple[int, int, str], tuple[float, int, str])


def _remove(ordered: list[_Place], item: _Place) -> None:
    del ordered[bisect_left(ordered, item)]


@dataclass(slots=True)
class Entry:
    """A task, its state, and the values that belong to that state."""

    host: str
    task: Task
    state: TaskState = TaskState.QUEUED
    attempt_id: bytes = b""
    retry_at: float = 0.0
    first_failed: float = 0.0
    letter: DeadLetter | None = None

    @property
    def place(self) -> tuple[int, int, str]:
        """Where the task stands in its host's queue: by priority, then by arrival."""
        return (-self.task.priority, self.task.id, self.task.url)


@dataclass(slots=True)
class Grant:
    """A live lease as the engine keeps it."""

    lease_id: str
    node: str
    deadline: float
    delay_default_s: float
    urls: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Host:
    """A host. `ready_at` is when it may be leased; None while it is leased or has nothing queued."""

    name: str
    next_contact: float = 0.0
    ready_at: float | None = None
    delay_s: float | None = None
    note: bytes = b""
    in_backoff: bool = False
    slow_s: float = 0.0
    queue: list[tuple[int, int, str]] = field(default_factory=list)
    grant: Grant | None = None
    urls: int = 0
    pages: int = 0
    bytes: int = 0

    def lost_delay_s(self, default_s: float) -> float:
        """How long the host must be left alone when a node may have contacted it just now."""
        return max(default_s, self.delay_s or 0.0, self.slow_s)


@dataclass(slots=True)
class Shard:
    """One shard. To change a task's state, `take` it from where it is, then call one of the `put` methods.

    Leased hosts are found by name, by the node that holds them, and by deadline."""

    entries: dict[str, Entry] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    ready: list[tuple[float, str]] = field(default_factory=list)
    leased: dict[str, Host] = field(default_factory=dict)
    leases_of: dict[str, dict[str, Host]] = field(default_factory=dict)
    deadlines: list[tuple[float, str]] = field(default_factory=list)
    scheduled: list[tuple[float, int, str]] = field(default_factory=list)
    backing_off: dict[str, Host] = field(default_factory=dict)
    totals: dict[TaskState, int] = field(default_factory=lambda: dict.fromkeys(TaskState, 0))
    counters: dict[str, int] = field(default_factory=dict)
    next_id: int = 1
    marked: dict[bytes, Entry] = field(default_factory=dict)
    """URLs that were done in another engine, which told only their marks."""
    step: int = 0
    """How many steps of an import are done."""

    def host(self, name: str) -> Host:
        return self.hosts.setdefault(name, Host(name))

    def in_backoff(self) -> list[Host]:
        """The hosts in back-off, by name."""
        return sorted(self.backing_off.values(), key=lambda host: host.name)

    def mark(self, host: Host, in_backoff: bool) -> None:
        """Note whether a host is in back-off."""
        host.in_backoff = in_backoff
        if in_backoff:
            self.backing_off[host.name] = host
        else:
            self.backing_off.pop(host.name, None)

    def refresh(self, host: Host) -> None:
        """Bring the list of ready hosts up to date after a change to the host."""
        if host.ready_at is not None:
            _remove(self.ready, (host.ready_at, host.name))
        host.ready_at = host.next_contact if host.queue and not host.grant else None
        if host.ready_at is not None:
            insort(self.ready, (host.ready_at, host.name))

    def take(self, entry: Entry) -> None:
        """Remove the task from its queue, lease, schedule or the dead letters, whichever holds it."""
        host = self.hosts[entry.host]
        if entry.state is TaskState.QUEUED:
            _remove(host.queue, entry.place)
            self.refresh(host)
        elif entry.state is TaskState.LEASED and host.grant:
            host.grant.urls.remove(entry.task.url)
        elif entry.state is TaskState.SCHEDULED:
            _remove(self.scheduled, (entry.retry_at, entry.task.id, entry.task.url))
        entry.retry_at = 0.0
        entry.letter = None
        self.totals[entry.state] -= 1

    def put(self, entry: Entry, state: TaskState) -> None:
        entry.state = state
        self.totals[state] += 1

    def put_queued(self, entry: Entry, now: float = 0.0) -> None:
        """Queue the task. A host that had nothing to do becomes ready at `now`, or at its next contact if later."""
        host = self.hosts[entry.host]
        if not host.queue and not host.grant:
            host.next_contact = max(host.next_contact, now)
        insort(host.queue, entry.place)
        self.refresh(host)
        self.put(entry, TaskState.QUEUED)

    def put_leased(self, entry: Entry, grant: Grant) -> None:
        grant.urls.add(entry.task.url)
        self.put(entry, TaskState.LEASED)

    def put_scheduled(self, entry: Entry, retry_at: float) -> None:
        entry.retry_at = retry_at
        insort(self.scheduled, (retry_at, entry.task.id, entry.task.url))
        self.put(entry, TaskState.SCHEDULED)

    def put_dead(self, entry: Entry, kind: FailureKind, error: str, now: float) -> None:
        task = entry.task
        entry.letter = DeadLetter(
            task.url, entry.host, kind, task.attempts, error, entry.first_failed, now, task.found_on, task
        )
        self.put(entry, TaskState.DEAD)

    def entry(self, url: str) -> Entry | None:
        """The entry of a page, by any spelling of its URL."""
        entry = self.entries.get(identity(url))
        if entry is None and self.marked:
            mark = mark_of(url)
            return self.marked.get(mark) or self.marked.get(short_mark(mark))
        return entry

    def begin_lease(self, host: Host, grant: Grant) -> None:
        host.grant = grant
        self.leased[host.name] = host
        self.leases_of.setdefault(grant.node, {})[host.name] = host
        insort(self.deadlines, (grant.deadline, host.name))

    def prolong_lease(self, host: Host, grant: Grant, deadline: float) -> None:
        _remove(self.deadlines, (grant.deadline, host.name))
        grant.deadline = deadline
        insort(self.deadlines, (deadline, host.name))

    def lose_lease(self, host: Host, ended: float) -> None:
        """End a lease whose node fell silent. That node may have contacted the host until `ended`."""
        if host.grant:
            delay_s = host.lost_delay_s(host.grant.delay_default_s)
            self.end_lease(host, host.grant, max(host.next_contact, ended) + delay_s)

    def end_lease(self, host: Host, grant: Grant, next_contact: float) -> None:
        """Return what is left of the lease to its place in the queue."""
        host.grant = None
        del self.leased[host.name]
        _remove(self.deadlines, (grant.deadline, host.name))
        own = self.leases_of[grant.node]
        del own[host.name]
        if not own:
            del self.leases_of[grant.node]
        host.next_contact = next_contact
        for url in grant.urls:
            self.totals[TaskState.LEASED] -= 1
            self.put_queued(self.entries[identity(url)])
        self.refresh(host)

    def count(self, counts: dict[str, int]) -> None:
        for name, value in counts.items():
            self.counters[name] = self.counters.get(name, 0) + value


def host_state(host: Host) -> HostState:
    lease = (host.grant.lease_id, host.grant.node, host.grant.deadline) if host.grant else ("", "", 0.0)
    return HostState(
        host.name,
        host.next_contact,
        host.delay_s,
        len(host.queue),
        host.urls,
        host.pages,
        host.bytes,
        *lease,
        host.note,
        host.in_backoff,
    )


def verdict_of(entry: Entry | None, settled: Settled, live: bool) -> Verdict:
    """What `settle_all` says about a task."""
    if entry is None:
        return Verdict.STALE
    leased, ended = entry.state is TaskState.LEASED, entry.state in (TaskState.DONE, TaskState.DEAD)
    return verdict_on(settled, entry.task.id, entry.attempt_id, live, leased, ended)


def refused_for_good(entry: Entry, settled: Settled, live: bool) -> bool:
    """Whether the task is to be marked, because another lease holds it."""
    return refuses_for_good(settled, entry.task.id, entry.attempt_id, live, entry.state is TaskState.LEASED)
