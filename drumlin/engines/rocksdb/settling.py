"""Settling and previewing on RocksDB: records the results of leased tasks, or says what recording would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from drumlin.engines.base import REFUSED
from drumlin.engines.embedded import refuses_for_good, verdict_on
from drumlin.engines.rocksdb.change import Change
from drumlin.engines.rocksdb.layout import SCHEDULED, Host, Seen, decode_seen
from drumlin.model import DeadLetter, FailureKind, Preview, Settled, Settlement, Task, TaskState, Verdict


def settle(change: Change, settlements: Sequence[Settlement], now: float) -> list[list[Verdict]]:
    """See `Engine.settle_all`."""
    keys, known = _look_up(change, settlements)
    remaining = iter(keys)
    return [_settle(change, settlement, remaining, known, now) for settlement in settlements]


def preview(change: Change, settlements: Sequence[Settlement]) -> list[Preview]:
    """See `Engine.preview_all`."""
    keys, known = _look_up(change, settlements)
    change.shard.remember(known)
    remaining = iter(keys)
    return [_preview(change, settlement, remaining, known) for settlement in settlements]


def _look_up(change: Change, settlements: Sequence[Settlement]) -> tuple[list[bytes], dict[bytes, bytes | None]]:
    """The keys of all URLs in order, and the value of each. One read fetches all of them, except those that a preview
    has just read."""
    state = change.shard
    state.load([settlement.host for settlement in settlements])
    keys = [
        state.hosts[settlement.host].seen_key(settled.url)
        for settlement in settlements
        for settled in settlement.settled
    ]
    known = {key: state.previewed.pop(key) for key in keys if key in state.previewed}
    missing = [key for key in keys if key not in known]
    known.update(zip(missing, change.storage.get_many("seen", missing), strict=True))
    return keys, known


def _is_live(host: Host, settlement: Settlement) -> bool:
    return host.lease is not None and host.lease.lease_id == settlement.lease_id


def _preview(
    change: Change, settlement: Settlement, keys: Iterator[bytes], known: dict[bytes, bytes | None]
) -> Preview:
    host = change.shard.hosts[settlement.host]
    live = _is_live(host, settlement)
    verdicts = []
    for settled, key in zip(settlement.settled, keys, strict=False):
        value = known[key]
        if not value:
            verdicts.append(Verdict.STALE)
            continue
        seen = decode_seen(value)
        leased = change.is_leased(host, seen)
        verdicts.append(verdict_on(settled, seen.id, seen.attempt_id, live, leased, seen.code > SCHEDULED))
    return Preview(live, verdicts)


def _settle(
    change: Change, settlement: Settlement, keys: Iterator[bytes], known: dict[bytes, bytes | None], now: float
) -> list[Verdict]:
    host = change.shard.hosts[settlement.host]
    live = _is_live(host, settlement)
    verdicts = []
    for settled, key in zip(settlement.settled, keys, strict=False):
        value = change.seen_written.get(key) or known[key]
        if not value:
            verdicts.append(Verdict.STALE)
            continue
        seen = decode_seen(value)
        leased = change.is_leased(host, seen)
        verdict = verdict_on(settled, seen.id, seen.attempt_id, live, leased, seen.code > SCHEDULED)
        if settled.refused and verdict is Verdict.SETTLED:
            verdict = Verdict.OPEN
        verdicts.append(verdict)
        if verdict is Verdict.SETTLED:
            _settle_task(change, host, key, seen, settled, now)
        elif refuses_for_good(settled, seen.id, seen.attempt_id, live, leased):
            change.put_seen(key, seen._replace(attempt_id=REFUSED))
    if live:
        _learn(change, host, settlement)
    return verdicts


def _settle_task(change: Change, host: Host, key: bytes, seen: Seen, settled: Settled, now: float) -> None:
    if settled.state is TaskState.DONE:
        change.take(host, seen, for_good=True)
        host.record.pages += settled.size is not None
        change.put_done(key, seen._replace(attempt_id=settled.attempt_id))
    else:
        _fail_task(change, host, key, seen, settled, now)
    host.record.bytes += settled.size or 0
    change.count(settled.counts)


def _fail_task(change: Change, host: Host, key: bytes, seen: Seen, settled: Settled, now: float) -> None:
    task, first_failed = change.task(host, seen), seen.first_failed
    if not settled.put_off:
        task, first_failed = replace(task, attempts=task.attempts + 1), first_failed or now
    change.take(host, seen)
    seen = seen._replace(attempt_id=settled.attempt_id, retry_at=settled.retry_at, first_failed=first_failed)
    if settled.state is TaskState.SCHEDULED:
        change.put_scheduled(host, key, task, seen)
    else:
        change.put_dead(key, seen, letter_of(host, task, settled.cause_of_death, settled.error, first_failed, now))


def _learn(change: Change, host: Host, settlement: Settlement) -> None:
    record = host.record
    change.touch(host)
    if settlement.delay_s is not None:
        record.delay_s = settlement.delay_s
    if settlement.note is not None:
        record.noted = bool(settlement.note)
        change.batch.put(host.key, settlement.note, change.handles["notes"])
    if settlement.in_backoff is not None and settlement.in_backoff != record.in_backoff:
        change.mark(host, settlement.in_backoff)
    if settlement.slow_s is not None:
        record.slow_s = settlement.slow_s
    record.next_contact = max(record.next_contact, settlement.next_contact)
    if settlement.release and host.lease is not None:
        change.end_lease(host, host.lease, record.next_contact)


def letter_of(host: Host, task: Task, kind: FailureKind, error: str, first_failed: float, now: float) -> DeadLetter:
    return DeadLetter(task.url, host.name, kind, task.attempts, error, first_failed, now, task.found_on, task)
