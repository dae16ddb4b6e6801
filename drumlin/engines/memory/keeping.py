"""A shard of the memory engine told as records, and made from such records (`drumlin.engines.kept`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from drumlin.engines.kept import (
    MARK_BYTES,
    SHORT_BYTES,
    Kept,
    KeptCounters,
    KeptDone,
    KeptHost,
    KeptTask,
    Section,
    after_lease,
    is_blank,
    mark_of,
)
from drumlin.engines.memory.shard import Entry, Host, Shard
from drumlin.model import DeadLetter, Task, TaskState
from drumlin.urls import identity


def told(state: Shard, shard: int, section: Section) -> Iterator[Kept]:
    """A section of what one shard keeps."""
    return _SECTIONS[section](state, shard)


def _told_counters(state: Shard, shard: int) -> Iterator[Kept]:
    if state.counters:
        yield KeptCounters(shard, dict(state.counters))


def _told_hosts(state: Shard, shard: int) -> Iterator[Kept]:
    for name in sorted(state.hosts):
        host = state.hosts[name]
        next_contact, grant = host.next_contact, host.grant
        if grant is not None:
            next_contact = after_lease(next_contact, grant.deadline, host.lost_delay_s(grant.delay_default_s))
        pace = (next_contact, host.delay_s, host.slow_s, host.in_backoff, host.note)
        kept = KeptHost(name, *pace, host.urls, host.pages, host.bytes)
        if not is_blank(kept):
            yield kept


def _told_queued(state: Shard, shard: int) -> Iterator[Kept]:
    for name in sorted(state.hosts):
        host = state.hosts[name]
        held = [state.entries[identity(url)].place for url in (host.grant.urls if host.grant else ())]
        for _, _, url in sorted([*host.queue, *held]):
            entry = state.entries[identity(url)]
            yield KeptTask(name, shard, TaskState.QUEUED, entry.task, entry.attempt_id, entry.first_failed)


def _told_scheduled(state: Shard, shard: int) -> Iterator[Kept]:
    for retry_at, _, url in state.scheduled:
        entry = state.entries[identity(url)]
        past = (entry.attempt_id, entry.first_failed)
        yield KeptTask(entry.host, shard, TaskState.SCHEDULED, entry.task, *past, retry_at)


def _told_dead(state: Shard, shard: int) -> Iterator[Kept]:
    dead = [(entry.letter, entry) for entry in state.entries.values() if entry.letter]
    for letter, entry in sorted(dead, key=lambda one: one[0].place):
        past = (entry.attempt_id, letter.first_failed, 0.0, letter.kind, letter.last_error, letter.last_failed)
        yield KeptTask(entry.host, shard, TaskState.DEAD, entry.task, *past)


def _told_done(state: Shard, shard: int) -> Iterator[Kept]:
    done = ((mark_of(one.task.url), one) for one in state.entries.values() if one.state is TaskState.DONE)
    for mark, entry in chain(done, state.marked.items()):
        known = ([entry.task.id], [entry.attempt_id]) if len(mark) == MARK_BYTES else ([], [])
        yield KeptDone(entry.host, shard, len(mark), mark, *known)


_SECTIONS: dict[Section, Callable[[Shard, int], Iterator[Kept]]] = {
    Section.COUNTERS: _told_counters,
    Section.HOSTS: _told_hosts,
    Section.QUEUED: _told_queued,
    Section.SCHEDULED: _told_scheduled,
    Section.DEAD: _told_dead,
    Section.DONE: _told_done,
}


def fill(state: Shard, kept: Sequence[Kept]) -> None:
    """Add what another engine told."""
    for one in kept:
        if isinstance(one, KeptCounters):
            state.count(one.counters)
        elif isinstance(one, KeptHost):
            _fill_host(state, one)
        elif isinstance(one, KeptTask):
            _fill_task(state, one)
        elif isinstance(one, KeptDone):
            _fill_done(state, one)


def _fill_host(state: Shard, kept: KeptHost) -> None:
    host = state.hosts[kept.host] = Host(kept.host, kept.next_contact, None, kept.delay_s, kept.note)
    host.slow_s, host.urls, host.pages, host.bytes = kept.slow_s, kept.urls, kept.pages, kept.bytes
    state.mark(host, kept.in_backoff)


def _fill_task(state: Shard, kept: KeptTask) -> None:
    task = kept.task
    entry = Entry(kept.host, task, attempt_id=kept.attempt_id, first_failed=kept.first_failed)
    state.entries[identity(task.url)] = entry
    state.next_id = max(state.next_id, task.id + 1)
    if kept.state is TaskState.QUEUED:
        state.put_queued(entry)
    elif kept.state is TaskState.SCHEDULED:
        state.put_scheduled(entry, kept.retry_at)
    elif kept.kind is not None:
        past = (kept.kind, task.attempts, kept.error, kept.first_failed, kept.last_failed)
        entry.letter = DeadLetter(task.url, kept.host, *past, task.found_on, task)
        state.put(entry, TaskState.DEAD)


def _fill_done(state: Shard, kept: KeptDone) -> None:
    for mark, task_id, attempt_id in kept.each():
        state.next_id = max(state.next_id, task_id + 1)
        entry = state.marked[mark] = Entry(kept.host, Task(task_id, "", 0, 0, 0, "", ()), attempt_id=attempt_id)
        state.put(entry, TaskState.DONE)


def has_short_marks(state: Shard) -> bool:
    return any(len(mark) == SHORT_BYTES for mark in state.marked)
