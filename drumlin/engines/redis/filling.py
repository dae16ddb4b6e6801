"""What another engine kept, as `fill` of `lua/filling.lua` takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from drumlin.engines.kept import Kept, KeptContent, KeptCounters, KeptDone, KeptHost, KeptSketch, KeptTask, mark_of
from drumlin.engines.redis.contents import DIGEST_BYTES, write_entry
from drumlin.engines.redis.records import (
    as_string,
    attempt_mark,
    encode,
    number_of,
    write_record,
)
from drumlin.model import TaskState


class _Group:
    """What is written of one host."""

    def __init__(self) -> None:
        self.marks: list[str] = []
        self.done = 0
        self.highest = 0
        self.attempts: list[int] = []
        self.queued: list[Any] = []
        self.scheduled: list[Any] = []
        self.dead: list[Any] = []

    def add_task(self, kept: KeptTask) -> None:
        mark, task = mark_of(kept.task.url), kept.task
        attempt = self._see(mark, task.id, kept.attempt_id)
        record = as_string(write_record(task, kept.host, kept.first_failed, attempt, kept.attempt_id))
        if kept.state is TaskState.QUEUED:
            self.queued += (record, task.priority)
        elif kept.state is TaskState.SCHEDULED:
            self.scheduled += (record, kept.retry_at)
        else:
            self.dead += (record, kept.kind, kept.error, kept.last_failed)

    def add_done(self, kept: KeptDone) -> None:
        for mark, task_id, attempt_id in kept.each():
            self._see(mark, task_id, attempt_id)
            self.done += 1

    def _see(self, mark: bytes, task_id: int, attempt_id: bytes) -> int:
        """Note that the URL was accepted, and its last attempt, if one is known; returns the mark of that."""
        self.marks.append(number_of(mark))
        self.highest = max(self.highest, task_id)
        if not attempt_id:
            return 0
        attempt = attempt_mark(task_id, mark, attempt_id)
        self.attempts += (task_id, attempt)
        return attempt

    def written(self) -> tuple[Any, ...]:
        return (self.marks, self.done, self.highest, self.attempts, self.queued, self.scheduled, self.dead)


class _Domain:
    def __init__(self) -> None:
        self.fields: list[msgspec.Raw] = []
        self.log: list[bytes] = []


def write_kept(step: int, kept: Sequence[Kept], now: float) -> bytes:
    """One step of an import into a shard."""
    counters: list[Any] = []
    hosts: list[tuple[Any, ...]] = []
    groups: dict[str, _Group] = {}
    domains: dict[str, _Domain] = {}
    for one in kept:
        if isinstance(one, KeptCounters):
            counters += [part for pair in one.counters.items() for part in pair]
        elif isinstance(one, KeptHost):
            hosts.append(_written_host(one))
        elif isinstance(one, KeptTask):
            groups.setdefault(one.host, _Group()).add_task(one)
        elif isinstance(one, KeptDone):
            groups.setdefault(one.host, _Group()).add_done(one)
        elif isinstance(one, KeptContent):
            entry = write_entry(one.content, one.near)
            digest = as_string(one.content.digest[:DIGEST_BYTES])
            domains.setdefault(one.content.domain, _Domain()).fields += (digest, as_string(entry))
        elif isinstance(one, KeptSketch):
            domains.setdefault(one.domain, _Domain()).log.append(one.sketch + one.digest[:DIGEST_BYTES])
    tasks = [(name, *group.written()) for name, group in groups.items()]
    contents = [(name, domain.fields, as_string(b"".join(domain.log))) for name, domain in domains.items()]
    return encode((step, now, counters, hosts, tasks, contents))


def _written_host(kept: KeptHost) -> tuple[Any, ...]:
    delay_s = -1 if kept.delay_s is None else kept.delay_s
    pace = (kept.next_contact, delay_s, kept.slow_s, kept.in_backoff, as_string(kept.note))
    return (kept.host, *pace, kept.urls, kept.pages, kept.bytes)
