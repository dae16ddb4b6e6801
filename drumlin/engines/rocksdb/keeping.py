"""A shard of the rocksdb engine told as records, and made from such records (`drumlin.engines.kept`).

Everything is read in the order in which it lies on the disk, except notes, and what `seen` has of queued tasks, which
is looked up a page at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from drumlin.engines.kept import (
    MARK_BYTES,
    PAGE,
    SHORT_BYTES,
    Kept,
    KeptCounters,
    KeptDone,
    KeptHost,
    KeptTask,
    Section,
    after_lease,
    is_blank,
)
from drumlin.engines.rocksdb.change import Change, Shard
from drumlin.engines.rocksdb.layout import (
    DONE,
    FORMAT_SHORT,
    ID_BYTES,
    SHARD_BYTES,
    Host,
    HostRecord,
    Seen,
    decode_host,
    decode_lease,
    decode_letter,
    decode_scheduled,
    decode_seen,
    decode_task,
    encode_seen,
    pack_id,
    short_key,
)
from drumlin.engines.rocksdb.storage import Storage, translated
from drumlin.errors import EngineError
from drumlin.model import DeadLetter, Task, TaskState

STEP = b"filled"
_QUEUE_PLACE_BYTES = 2 + ID_BYTES
"""What follows the host in a key of `queue`: a zero, the priority, the id."""
_Kept = tuple[str, Task, DeadLetter | None, float]


def told(state: Shard, shard: int, section: Section) -> Iterator[Kept]:
    """A section of what one shard keeps."""
    with translated():
        yield from _SECTIONS[section](state, shard)


def _told_counters(state: Shard, shard: int) -> Iterator[Kept]:
    if state.record.counters:
        yield KeptCounters(shard, dict(state.record.counters))


def _told_hosts(state: Shard, shard: int) -> Iterator[Kept]:
    for name, record in _hosts(state):
        key = state.prefix + name.encode()
        next_contact = record.next_contact
        if record.deadline is not None:
            lease = decode_lease(state.storage.read("leases", key))
            next_contact = after_lease(next_contact, lease.deadline, record.lost_delay_s(lease.delay_default_s))
        note = state.storage.read("notes", key) if record.noted else b""
        pace = (next_contact, record.delay_s, record.slow_s, record.in_backoff, note)
        kept = KeptHost(name, *pace, record.urls, record.pages, record.bytes)
        if not is_blank(kept):
            yield kept


def _hosts(state: Shard) -> Iterator[tuple[str, HostRecord]]:
    for key, value in state.storage.scan("hosts", state.prefix):
        yield key[SHARD_BYTES:].decode(), decode_host(value)


def _told_queued(state: Shard, shard: int) -> Iterator[Kept]:
    entries = state.storage.scan("queue", state.prefix)
    found = ((key[SHARD_BYTES:-_QUEUE_PLACE_BYTES].decode(), decode_task(value), None, 0.0) for key, value in entries)
    return _told_tasks(state, shard, TaskState.QUEUED, found)


def _told_scheduled(state: Shard, shard: int) -> Iterator[Kept]:
    found = (decode_scheduled(value) for _, value in state.storage.scan("scheduled", state.prefix))
    return _told_tasks(state, shard, TaskState.SCHEDULED, ((*one, None, 0.0) for one in found))


def _told_dead(state: Shard, shard: int) -> Iterator[Kept]:
    letters = (decode_letter(value) for _, value in state.storage.scan("dead", state.prefix))
    return _told_tasks(state, shard, TaskState.DEAD, ((one.host, one.task, one, one.first_failed) for one in letters))


def _told_tasks(state: Shard, shard: int, told_as: TaskState, found: Iterator[_Kept]) -> Iterator[Kept]:
    """Tasks with what `seen` has of each: its last attempt, its first failure, and when it is tried again."""
    while batch := list(islice(found, PAGE)):
        hosts = {name: Host(state.prefix, name, HostRecord(), None) for name, *_ in batch}
        keys = [hosts[name].seen_key(task.url) for name, task, _, _ in batch]
        for (name, task, letter, failed), value in zip(batch, state.storage.get_many("seen", keys), strict=True):
            if value is None:
                raise EngineError(f"The crawl's queue is damaged: it has {task.url}, and says that it was never seen.")
            seen = decode_seen(value)
            past = (seen.attempt_id, failed or seen.first_failed, seen.retry_at)
            death = (letter.kind, letter.last_error, letter.last_failed) if letter else ()
            yield KeptTask(name, shard, told_as, task, *past, *death)


def _told_done(state: Shard, shard: int) -> Iterator[Kept]:
    for name, record in _hosts(state):
        if record.urls:
            host = Host(state.prefix, name, record, None)
            found = (
                (key[len(host.seen_prefix) :], decode_seen(value))
                for key, value in state.storage.scan("seen", host.seen_prefix)
            )
            yield from _told_marks(name, shard, ((mark, seen) for mark, seen in found if seen.code == DONE))


def _told_marks(host: str, shard: int, done: Iterator[tuple[bytes, Seen]]) -> Iterator[Kept]:
    while batch := list(islice(done, PAGE)):
        whole = [one for one in batch if len(one[0]) == MARK_BYTES]
        if whole:
            marks = b"".join(mark for mark, _ in whole)
            past = ([seen.id for _, seen in whole], [seen.attempt_id for _, seen in whole])
            yield KeptDone(host, shard, MARK_BYTES, marks, *past)
        if len(whole) < len(batch):
            short = b"".join(mark for mark, _ in batch if len(mark) == SHORT_BYTES)
            yield KeptDone(host, shard, SHORT_BYTES, short)


_SECTIONS: dict[Section, Callable[[Shard, int], Iterator[Kept]]] = {
    Section.COUNTERS: _told_counters,
    Section.HOSTS: _told_hosts,
    Section.QUEUED: _told_queued,
    Section.SCHEDULED: _told_scheduled,
    Section.DEAD: _told_dead,
    Section.DONE: _told_done,
}


def with_short(storage: Storage, keys: list[bytes], values: list[bytes | None]) -> list[bytes | None]:
    """The values of URLs in `seen`, looked up by their short marks where there is none."""
    missing = [place for place, value in enumerate(values) if value is None]
    short = storage.get_many("seen", [short_key(keys[place]) for place in missing])
    for place, value in zip(missing, short, strict=True):
        values[place] = value
    return values


def is_filled(state: Shard, step: int) -> bool:
    """Whether a step of an import was done before."""
    with translated():
        done = state.storage.get("meta", STEP + state.prefix)
    return done is not None and int.from_bytes(done, "big") >= step


def fill(change: Change, step: int, kept: Sequence[Kept], contents: Sequence[tuple[bytes, bytes]]) -> None:
    """Add what another engine told, and that this step is done, all in one write."""
    for one in kept:
        if isinstance(one, KeptCounters):
            change.count(one.counters)
        elif isinstance(one, KeptHost):
            _fill_host(change, one)
        elif isinstance(one, KeptTask):
            _fill_task(change, one)
        elif isinstance(one, KeptDone):
            _fill_done(change, one)
    for key, value in contents:
        change.batch.put(key, value, change.handles["contents"])
    change.batch.put(STEP + change.shard.prefix, pack_id(step), change.handles["meta"])


def _fill_host(change: Change, kept: KeptHost) -> None:
    host = change.host(kept.host)
    record = host.record
    record.next_contact, record.delay_s, record.slow_s = kept.next_contact, kept.delay_s, kept.slow_s
    record.urls, record.pages, record.bytes = kept.urls, kept.pages, kept.bytes
    if kept.note:
        record.noted = True
        change.batch.put(host.key, kept.note, change.handles["notes"])
    if kept.in_backoff:
        change.mark(host, in_backoff=True)
    change.touch(host)


def _fill_task(change: Change, kept: KeptTask) -> None:
    host, task = change.host(kept.host), kept.task
    key = host.seen_key(task.url)
    seen = Seen(0, task.priority, task.id, kept.attempt_id, kept.retry_at, kept.first_failed)
    change.record.next_id = max(change.record.next_id, task.id + 1)
    if kept.state is TaskState.QUEUED:
        change.put_queued(host, key, task, seen)
    elif kept.state is TaskState.SCHEDULED:
        change.put_scheduled(host, key, task, seen)
    elif kept.kind is not None:
        past = (kept.kind, task.attempts, kept.error, kept.first_failed, kept.last_failed)
        change.put_dead(key, seen, DeadLetter(task.url, kept.host, *past, task.found_on, task))


def _fill_done(change: Change, kept: KeptDone) -> None:
    host = change.host(kept.host)
    if kept.size == SHORT_BYTES:
        change.batch.put(b"format", FORMAT_SHORT, change.handles["meta"])
    for mark, task_id, attempt_id in kept.each():
        change.batch.put(host.seen_prefix + mark, encode_seen(Seen(DONE, 0, task_id, attempt_id)), change.seen_handle)
        change.record.next_id = max(change.record.next_id, task_id + 1)
    change.record.done += kept.urls
    change.counted = True
