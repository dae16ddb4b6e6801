"""Removal on request (`drumlin.engines.base.Engine.remove`): a host with all its URLs, or some URLs of it.

What is kept by host (queue, seen, notes, leases) is removed by ranges of keys. What is kept by time or id (scheduled
tasks, dead letters) is looked through. Each call is one write, so a kill leaves all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from drumlin.engines.embedded import Embedded
from drumlin.engines.kept import KeptTask
from drumlin.engines.rocksdb.change import Change, Shard
from drumlin.engines.rocksdb.layout import (
    DEAD,
    DONE,
    SCHEDULED,
    Host,
    decode_scheduled,
    encode,
    pack_id,
    pack_time,
    short_key,
)
from drumlin.engines.rocksdb.storage import Storage, translated
from drumlin.model import DeadLetter, RemovedURLs, TaskState

LETTERS_MAX = 1 << 62


class RocksRemoving(Embedded):
    """These calls of `drumlin.engines.base.Engine`, for the engine to inherit."""

    _shards: list[Shard]
    _storage: Storage
    _short: bool

    async def remove(
        self, shard: int, host: str, urls: Sequence[str] | None, now: float, *, dry_run: bool = False
    ) -> RemovedURLs:
        state = self._shards[shard]
        if dry_run:
            with translated():
                removed = self._remove(Change(state), host, urls, now)
            # What was counted was changed in memory only.
            state.forget()
            return removed
        with Change(state) as change:
            return self._remove(change, host, urls, now)

    def _remove(self, change: Change, name: str, urls: Sequence[str] | None, now: float) -> RemovedURLs:
        known = change.storage.get("hosts", change.shard.prefix + name.encode())
        if known is None:
            return RemovedURLs()
        host = change.host(name)
        change.lose_lease(host, now)
        # They are keys, and so may name the host. The next look finds the lowest ones again.
        change.record.floors = {}
        return _remove_host(change, host) if urls is None else self._remove_urls(change, host, urls)

    def _remove_urls(self, change: Change, host: Host, urls: Sequence[str]) -> RemovedURLs:
        counts = dict.fromkeys(("queued", "scheduled", "dead", "done"), 0)
        for key in dict.fromkeys(map(host.seen_key, urls)):
            seen = change.seen(key)
            if seen is None and self._short:
                key = short_key(key)
                seen = change.seen(key)
            if seen is None:
                continue
            change.take(host, seen)
            change.forget_seen(key)
            host.record.urls -= 1
            change.record.done -= seen.code == DONE
            counts[{SCHEDULED: "scheduled", DEAD: "dead", DONE: "done"}.get(seen.code, "queued")] += 1
        change.touch(host)
        return RemovedURLs(**counts)

    async def rewrite(self, shard: int, kept: Sequence[KeptTask]) -> None:
        with Change(self._shards[shard]) as change:
            for one in kept:
                _rewrite(change, one)

    async def expunge(self) -> None:
        with translated():
            self._storage.expunge()


def _remove_host(change: Change, host: Host) -> RemovedURLs:
    shard, record, batch = change.record, host.record, change.batch
    queued, scheduled, letters = record.queued, list(_scheduled(change, host.name)), list(_letters(change, host.name))
    done = record.urls - queued - len(scheduled) - len(letters)
    for family, prefix in (("queue", host.queue_prefix), ("seen", host.seen_prefix)):
        batch.delete_range(prefix, _after(prefix), change.handles[family])
    for key in scheduled:
        batch.delete(key, change.handles["scheduled"])
    for letter in letters:
        change.groups[change.shard.listing.remove(batch, letter)] -= 1
        batch.delete(change.shard.prefix + pack_id(letter.task.id), change.handles["dead"])
    shard.queued -= queued
    shard.scheduled -= len(scheduled)
    shard.dead -= len(letters)
    shard.done -= done
    record.queued = 0
    # Takes it out of the indexes by time; then nothing of it is left but its record.
    change.write_host(host)
    change.forget(host)
    change.counted = True
    change.shard.previewed.clear()
    return RemovedURLs(queued, len(scheduled), len(letters), done, 1)


def _scheduled(change: Change, host: str) -> Iterator[bytes]:
    for key, value in change.storage.scan("scheduled", change.shard.prefix):
        if decode_scheduled(value)[0] == host:
            yield key


def _letters(change: Change, host: str) -> Iterator[DeadLetter]:
    return iter(change.shard.listing.letters(None, host, None, LETTERS_MAX))


def _after(prefix: bytes) -> bytes:
    """The first key behind all that begin with this prefix, which does not consist of 255s alone."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,))


def _rewrite(change: Change, kept: KeptTask) -> None:
    host, task, storage = change.host(kept.host), kept.task, change.storage
    if kept.state is TaskState.QUEUED:
        change.write_task(host, task)
    elif kept.state is TaskState.SCHEDULED:
        key = change.shard.prefix + pack_time(kept.retry_at) + pack_id(task.id)
        change.batch.put(key, encode((kept.host, task)), change.handles["scheduled"])
    else:
        key = change.shard.prefix + pack_id(task.id)
        seen = change.seen(host.seen_key(task.url))
        if seen is not None and storage.get("dead", key) is not None:
            letter = replace(change.letter(seen), found_on=task.found_on, task=task)
            change.batch.put(key, encode(letter), change.handles["dead"])
