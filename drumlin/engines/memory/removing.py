"""Removal on request from a shard of the memory engine (`drumlin.engines.base.Engine.remove`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from drumlin.engines.kept import KeptTask
from drumlin.engines.memory.shard import Entry, Host, Shard
from drumlin.model import RemovedURLs, TaskState
from drumlin.urls import identities, identity


def remove(state: Shard, name: str, urls: Sequence[str] | None, now: float, *, dry_run: bool) -> RemovedURLs:
    host = state.hosts.get(name)
    if host is None:
        return RemovedURLs()
    entries = _all_of(state, name) if urls is None else _named(state, name, urls)
    known = Counter(entry.state for entry in entries)
    removed = RemovedURLs(
        known[TaskState.QUEUED] + known[TaskState.LEASED],
        known[TaskState.SCHEDULED],
        known[TaskState.DEAD],
        # URLs that were forgotten count as done too, and among those of their host.
        known[TaskState.DONE] if urls is not None else host.urls - sum(known.values()) + known[TaskState.DONE],
        int(urls is None),
    )
    if not dry_run:
        state.lose_lease(host, now)
        _take_all(state, entries)
        host.urls -= len(entries)
        if urls is None:
            _forget(state, host)
    return removed


def _all_of(state: Shard, name: str) -> list[Entry]:
    return [entry for entry in (*state.entries.values(), *state.marked.values()) if entry.host == name]


def _named(state: Shard, name: str, urls: Sequence[str]) -> list[Entry]:
    found = [state.entry(page) for page in dict.fromkeys(identities(urls))]
    return [entry for entry in found if entry is not None and entry.host == name]


def _take_all(state: Shard, entries: Iterable[Entry]) -> None:
    for entry in entries:
        state.take(entry)
        # One that was done in another engine is known by its mark alone.
        if not entry.task.url:
            state.marked = {mark: one for mark, one in state.marked.items() if one is not entry}
        else:
            del state.entries[identity(entry.task.url)]


def _forget(state: Shard, host: Host) -> None:
    state.totals[TaskState.DONE] -= host.urls
    state.mark(host, in_backoff=False)
    del state.hosts[host.name]


def rewrite(state: Shard, kept: Sequence[KeptTask]) -> None:
    for one in kept:
        entry = state.entries[identity(one.task.url)]
        entry.task = one.task
        if entry.letter is not None:
            entry.letter = replace(entry.letter, found_on=one.task.found_on, task=one.task)
