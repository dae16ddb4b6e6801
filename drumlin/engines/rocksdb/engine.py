"""The embedded engine: all state is in RocksDB and survives kill -9; resident memory is fixed.

Each call is one `Change`, written as one batch to the write-ahead log before the call returns. With `sync` the log
is also forced to the disk, so the data survives power loss too. `layout` says what is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from math import inf
from pathlib import Path

from msgspec.structs import replace
from rocksdict import Checkpoint
from xxhash import xxh3_128_digest

from drumlin.engines.base import EXPIRE_LIMIT, Added
from drumlin.engines.embedded import EmbeddedContents
from drumlin.engines.kept import MARK_BYTES, SHORT_BITS, Kept, KeptDone, Section
from drumlin.engines.rocksdb.change import HOSTS_CACHED_MAX, Change, Shard
from drumlin.engines.rocksdb.founding import found_frontier
from drumlin.engines.rocksdb.keeping import fill, is_filled, told, with_short
from drumlin.engines.rocksdb.layout import (
    BACKOFF,
    DEAD,
    DONE,
    SCHEDULED,
    SHARD_BYTES,
    WAITING_AGAIN,
    Host,
    LeaseRecord,
    decode_host,
    decode_scheduled,
    short_key,
)
from drumlin.engines.rocksdb.removing import RocksRemoving
from drumlin.engines.rocksdb.settling import letter_of, preview, settle
from drumlin.engines.rocksdb.storage import RocksKeyValue, RocksValues, Storage, translated
from drumlin.errors import EngineError
from drumlin.model import (
    DeadGroup,
    DeadLetter,
    FailureKind,
    GroupPlace,
    HostStanding,
    HostState,
    HostSummary,
    Lease,
    LetterPlace,
    NewURLs,
    Preview,
    Renewal,
    Settlement,
    ShardStats,
    Task,
    TaskState,
    TaskStory,
    Verdict,
    Visit,
)
from drumlin.urls import host_of, identities

HOSTS_CACHED_PER_SHARD_MIN = 64
CHECKPOINTS = "checkpoints"
"""The folder beside the frontier with its checkpoints. It must be on the same file system, since they share files."""

_ADDED, _SEEN, _CAPPED = Added.ADDED, Added.SEEN, Added.CAPPED
_STATES = {SCHEDULED: TaskState.SCHEDULED, DONE: TaskState.DONE, DEAD: TaskState.DEAD}


class RocksEngine(RocksRemoving):
    """See `drumlin.engines.base.Engine`, whose methods these are."""

    def __init__(
        self, path: str, *, shard_count: int | None = None, sync: bool = False, read_only: bool = False
    ) -> None:
        self._path = path
        self._storage = Storage(path, sync=sync, read_only=read_only)
        try:
            with translated():
                self.shard_count, self._short = found_frontier(self._storage, shard_count)
        except BaseException:
            self._storage.close()
            raise
        self.contents = EmbeddedContents(RocksKeyValue(self._storage, "contents"))
        self.values = RocksValues(self._storage)
        hosts_max = max(HOSTS_CACHED_MAX // self.shard_count, HOSTS_CACHED_PER_SHARD_MIN)
        with translated():
            self._shards = [Shard(self._storage, number, hosts_max) for number in range(self.shard_count)]

    def __repr__(self) -> str:
        return f"<RocksEngine {self._path}: {self.shard_count} shards>"

    # What is to be fetched

    async def add(
        self, shard: int, found: Sequence[NewURLs], now: float, *, host_urls_max: int | None = None
    ) -> list[Added]:
        state, cap = self._shards[shard], inf if host_urls_max is None else host_urls_max
        with Change(state) as change:
            state.load([new.host for new in found])
            keys: list[bytes] = []
            for new in found:
                prefix = state.hosts[new.host].seen_prefix
                keys += [prefix + xxh3_128_digest(one.encode()) for one in identities(new.urls)]
            values = self._storage.get_many("seen", keys)
            looked_up = zip(keys, with_short(self._storage, keys, values) if self._short else values, strict=True)
            written = change.seen_written
            answers: list[Added] = []
            for new in found:
                host = state.hosts[new.host]
                for url in new.urls:
                    key, value = next(looked_up)
                    if value is not None or key in written:
                        answers.append(_SEEN)
                    elif host.record.urls >= cap:
                        answers.append(_CAPPED)
                    else:
                        change.put_new(host, key, url, new, now)
                        answers.append(_ADDED)
            return answers

    async def lease(
        self,
        shard: int,
        node: str,
        request: str,
        now: float,
        *,
        until: float,
        hosts_max: int,
        urls_max: int,
        urls_per_host: int,
        horizon_s: float = 0.0,
        delay_default_s: float = 0.0,
        skip_hosts: Container[str] = (),
        only_hosts: Sequence[str] = (),
    ) -> list[Lease]:
        leases: list[Lease] = []
        with Change(self._shards[shard]) as change:
            for name in self._due(change, now + horizon_s, only_hosts):
                size = min(urls_per_host, urls_max)
                if len(leases) >= hosts_max or size <= 0:
                    break
                if name not in skip_hosts:
                    host = change.host(name)
                    lease = LeaseRecord(f"{request}.{len(leases)}", node, until, delay_default_s)
                    leases.append(self._grant(change, shard, host, lease, size, now))
                    urls_max -= len(leases[-1].tasks)
        return leases

    async def visit(self, shard: int, visit: Visit, now: float) -> Lease | None:
        with Change(self._shards[shard]) as change:
            host = change.host(visit.host)
            if host.lease is not None or host.record.next_contact > visit.due_by:
                return None
            lease = LeaseRecord(visit.lease_id, visit.node, visit.until, visit.delay_default_s)
            return self._grant(change, shard, host, lease, 0, now)

    async def forget(self, shard: int, hosts: Sequence[str], now: float) -> list[str]:
        kept = []
        with Change(self._shards[shard]) as change:
            for name in hosts:
                host = change.host(name)
                if host.record.urls:
                    continue
                if host.lease is not None or host.record.next_contact > now:
                    kept.append(name)
                else:
                    change.forget(host)
        return kept

    def _due(self, change: Change, until: float, only_hosts: Sequence[str]) -> Iterator[str]:
        """The hosts that may be leased, the longest due first."""
        if not only_hosts:
            for _, encoded, _ in change.shard.times("ready", until):
                yield encoded.decode()
            return
        change.shard.load(only_hosts)
        chosen = ((change.host(name).record.ready_at, name) for name in dict.fromkeys(only_hosts))
        for _, name in sorted((ready_at, name) for ready_at, name in chosen if ready_at is not None):
            if change.host(name).record.next_contact <= until:
                yield name

    def _grant(self, change: Change, shard: int, host: Host, lease: LeaseRecord, urls_max: int, now: float) -> Lease:
        record = host.record
        return Lease(
            shard,
            host.name,
            lease.lease_id,
            lease.node,
            lease.deadline,
            max(now, record.next_contact),
            record.delay_s,
            change.grant(host, lease, urls_max),
            self._storage.read("notes", host.key) if record.noted else b"",
        )

    async def extend_all(
        self, renewals: Sequence[Renewal], now: float, *, until: float, delay_default_s: float = 0.0
    ) -> list[Lease | None]:
        """Extend all leases of a shard in one write: nodes renew dozens at a time, and the write is the costly part."""
        places: dict[int, list[int]] = defaultdict(list)
        for place, renewal in enumerate(renewals):
            places[renewal.shard].append(place)
        leases: list[Lease | None] = [None] * len(renewals)
        for shard, members in places.items():
            with Change(self._shards[shard]) as change:
                change.shard.load([renewals[place].host for place in members])
                for place in members:
                    leases[place] = self._extend(change, renewals[place], now, until, delay_default_s)
        return leases

    def _extend(
        self, change: Change, renewal: Renewal, now: float, until: float, delay_default_s: float
    ) -> Lease | None:
        host = change.host(renewal.host)
        lease = host.lease
        if lease is None or lease.lease_id != renewal.lease_id or lease.deadline <= now:
            return None
        lease.deadline = until
        lease.delay_default_s = max(lease.delay_default_s, delay_default_s)
        return self._grant(change, renewal.shard, host, lease, renewal.urls_max, now)

    # What became of it

    async def settle(self, shard: int, settlements: Sequence[Settlement], now: float) -> list[list[Verdict]]:
        with Change(self._shards[shard]) as change:
            return settle(change, settlements, now)

    async def preview(self, shard: int, settlements: Sequence[Settlement]) -> list[Preview]:
        with Change(self._shards[shard]) as change:
            return preview(change, settlements)

    async def expire(self, shard: int, now: float, *, limit: int = EXPIRE_LIMIT) -> list[str]:
        state = self._shards[shard]
        with Change(state) as change:
            over = [(deadline, name.decode()) for deadline, name, _ in islice(state.times("deadlines", now), limit)]
            for deadline, name in over:
                change.lose_lease(change.host(name), max(deadline, now))
            for _, _, value in list(islice(state.times("scheduled", now), limit)):
                self._retry(change, *decode_scheduled(value), now)
            return [name for _, name in over]

    def _retry(self, change: Change, name: str, task: Task, now: float) -> None:
        host = change.host(name)
        key = host.seen_key(task.url)
        seen = change.seen(key)
        if seen is not None:
            change.take(host, seen)
            change.put_queued(host, key, task, seen, now)

    async def release_node(self, shard: int, node: str, now: float) -> int:
        state, holder = self._shards[shard], node.encode()
        with Change(state) as change:
            names = [name.decode() for _, name, value in state.times("deadlines", inf) if value == holder]
            for name in names:
                change.lose_lease(change.host(name), now)
            return len(names)

    async def strike(
        self, shard: int, url: str, now: float, *, limit: int, kind: FailureKind, error: str, counter: str = ""
    ) -> bool:
        with Change(self._shards[shard]) as change:
            host = change.host(host_of(url))
            key = host.seen_key(url)
            seen = change.seen(key)
            if seen is None or seen.code > WAITING_AGAIN:
                return False
            task = change.task(host, seen)
            task = replace(task, crashes=task.crashes + 1)
            seen = seen._replace(code=WAITING_AGAIN, first_failed=seen.first_failed or now)
            if task.crashes < limit:
                change.put_seen(key, seen)
                change.write_task(host, task)
                return False
            change.take(host, seen)
            change.put_dead(key, seen, letter_of(host, task, kind, error, seen.first_failed, now))
            change.count({counter: 1} if counter else {})
            return True

    async def reprioritise(self, shard: int, changes: Sequence[tuple[str, int]]) -> int:
        with Change(self._shards[shard]) as change:
            return sum(self._reprioritise(change, url, priority) for url, priority in changes)

    def _reprioritise(self, change: Change, url: str, priority: int) -> bool:
        host = change.host(host_of(url))
        key = host.seen_key(url)
        seen = change.seen(key)
        if seen is None or seen.code > WAITING_AGAIN or seen.priority == priority or change.is_leased(host, seen):
            return False
        task = change.task(host, seen)
        change.take(host, seen)
        change.put_queued(host, key, replace(task, priority=priority), seen)
        return True

    # What went wrong for good

    def dead_letters(
        self, shard: int, kind: FailureKind | None, host: str, after: LetterPlace | None, limit: int
    ) -> list[DeadLetter]:
        with translated():
            return list(self._shards[shard].listing.letters(kind, host, after, limit))

    def dead_groups(
        self, shard: int, kind: FailureKind | None, after: GroupPlace | None, limit: int
    ) -> list[DeadGroup]:
        with translated():
            return self._shards[shard].listing.groups(kind, after, limit)

    async def revive(self, shard: int, urls: Sequence[str], now: float, *, counter: str = "") -> int:
        return self._end_all_dead(shard, urls, now, counter)

    async def drop(self, shard: int, urls: Sequence[str], *, counter: str = "") -> int:
        return self._end_all_dead(shard, urls, None, counter)

    def _end_all_dead(self, shard: int, urls: Sequence[str], now: float | None, counter: str) -> int:
        with Change(self._shards[shard]) as change:
            ended = sum(change.end_dead(url, now) for url in urls)
            change.count({counter: -ended} if counter and ended else {})
            return ended

    async def forget_done(self, shard: int, urls: Sequence[str]) -> int:
        with Change(self._shards[shard]) as change:
            keys = dict.fromkeys(change.host(host_of(url)).seen_key(url) for url in urls)
            done = [key for key in keys if (seen := change.seen(key)) is not None and seen.code == DONE]
            for key in done:
                change.forget_seen(key)
            return len(done)

    # What is known

    async def story(self, shard: int, url: str) -> TaskStory | None:
        change = Change(self._shards[shard])
        with translated():
            host = change.host(host_of(url))
            key = host.seen_key(url)
            seen = change.seen(key) or (change.seen(short_key(key)) if self._short else None)
            if seen is None:
                return None
            waiting = TaskState.LEASED if change.is_leased(host, seen) else TaskState.QUEUED
            task = None if seen.code == DONE else change.task(host, seen)
            letter = change.letter(seen) if seen.code == DEAD else None
            return TaskStory(_STATES.get(seen.code, waiting), task, seen.retry_at, seen.attempt_id, letter)

    async def host_note(self, shard: int, host: str) -> bytes:
        with translated():
            return self._storage.get("notes", self._shards[shard].prefix + host.encode()) or b""

    async def host_state(self, shard: int, host: str) -> HostState | None:
        with translated():
            known = Change(self._shards[shard]).host(host)
            return self._host_state(known) if known.record.urls else None

    async def hosts(self, shard: int, standing: HostStanding, now: float, *, limit: int) -> list[HostState]:
        state = self._shards[shard]
        with translated():
            names = [name.decode() for name in islice(self._standing(state, standing, now), limit)]
            change = Change(state)
            state.load(names)
            return [self._host_state(change.host(name)) for name in names]

    def _standing(self, state: Shard, standing: HostStanding, now: float) -> Iterator[bytes]:
        """The names of the hosts with this standing."""
        if standing is HostStanding.BACKOFF:
            return self._in_backoff(state.prefix)
        if standing is HostStanding.WAITING:
            return state.names_after("ready", now)
        index, until = ("deadlines", inf) if standing is HostStanding.LEASED else ("ready", now)
        return (name for _, name, _ in state.times(index, until))

    def _in_backoff(self, prefix: bytes) -> Iterator[bytes]:
        """The names of the hosts in back-off, in order."""
        start = BACKOFF + prefix
        return (key[len(start) :] for key, _ in self._storage.scan("meta", start))

    async def hurry(self, shard: int, now: float, *, delay_default_s: float = 0.0) -> int:
        state, hurried = self._shards[shard], 0
        with Change(state) as change:
            for name in list(self._in_backoff(state.prefix)):
                host = change.host(name.decode())
                soonest = now + host.record.lost_delay_s(delay_default_s)
                if host.lease is None and host.record.next_contact > soonest:
                    host.record.next_contact = soonest
                    change.touch(host)
                    hurried += 1
        return hurried

    def _host_state(self, host: Host) -> HostState:
        record, lease = host.record, host.lease
        return HostState(
            host.name,
            record.next_contact,
            record.delay_s,
            record.queued,
            record.urls,
            record.pages,
            record.bytes,
            *((lease.lease_id, lease.node, lease.deadline) if lease else ("", "", 0.0)),
            self._storage.read("notes", host.key) if record.noted else b"",
            record.in_backoff,
        )

    def host_names(self, shard: int, prefix: str, after: str, limit: int) -> list[str]:
        begin = self._shards[shard].prefix + prefix.encode()
        start = self._shards[shard].prefix + after.encode() + b"\0"
        with translated():
            known = self._storage.scan("hosts", begin, start)
            names = (key[SHARD_BYTES:].decode() for key, value in known if decode_host(value).urls)
            return list(islice(names, limit))

    async def set_delay(self, shard: int, host: str, delay_s: float | None) -> None:
        with Change(self._shards[shard]) as change:
            known = change.host(host)
            known.record.delay_s = delay_s
            change.touch(known)

    async def stats(self, shard: int, now: float) -> ShardStats:
        state = self._shards[shard]
        record = state.record
        with translated():
            hosts_ready = state.count_ready(now)
            events = [
                time
                for index in ("ready", "deadlines", "scheduled")
                for time, _, _ in islice(state.times(index, inf), 1)
            ]
        return ShardStats(
            queued=record.queued,
            scheduled=record.scheduled,
            leased=record.leased,
            done=record.done,
            dead=record.dead,
            hosts_ready=hosts_ready,
            hosts_waiting=record.hosts_queued - hosts_ready,
            hosts_leased=record.hosts_leased,
            next_event=min(events, default=inf),
            counters=dict(record.counters),
            hosts_in_backoff=record.hosts_in_backoff,
        )

    async def count(self, shard: int, counts: dict[str, int]) -> None:
        with Change(self._shards[shard]) as change:
            change.count(counts)

    async def top_hosts(self, shard: int, n: int) -> list[HostSummary]:
        prefix = self._shards[shard].prefix
        with translated():
            return nsmallest(n, self._summaries(prefix), key=lambda one: (-one.pages, -one.queued, one.host))

    def _summaries(self, prefix: bytes) -> Iterator[HostSummary]:
        for key, value in self._storage.scan("hosts", prefix):
            record = decode_host(value)
            if record.urls:
                yield HostSummary(key[SHARD_BYTES:].decode(), record.pages, record.bytes, record.queued)

    # The engine itself

    def told(self, section: Section, shard: int) -> Iterator[Kept]:
        return told(self._shards[shard], shard, section)

    async def fill(self, shard: int, step: int, kept: Sequence[Kept], now: float) -> None:
        state = self._shards[shard]
        if not is_filled(state, step):
            with Change(state) as change:
                fill(change, step, kept, self.contents.written(kept))
            self._short = self._short or any(isinstance(one, KeptDone) and one.size < MARK_BYTES for one in kept)

    @property
    def mark_bits(self) -> int:
        return SHORT_BITS if self._short else super().mark_bits

    async def snapshot(self, name: str) -> str:
        place = Path(self._path).absolute().parent / CHECKPOINTS / name
        if place.exists():
            raise EngineError(f"There is a checkpoint {place} already.", "Give another name.")
        with translated():
            # What is in it would let its reader make tokens.
            place.parent.mkdir(mode=0o700, exist_ok=True)
            Checkpoint(self._storage.database).create_checkpoint(str(place))
        return str(place)

    def at_rest(self) -> bool:
        """Whether RocksDB is idle in the background. Benchmarks wait for this before they begin to measure."""
        return self._storage.at_rest()

    async def close(self) -> None:
        self._shards.clear()
        self._storage.close()
