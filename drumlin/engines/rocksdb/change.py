"""One call's change to one shard: it reads hosts through a cache, collects writes, and commits them as one batch.

Hosts are changed in place and written, together with their entries in the time indexes, when the change commits. To
change a task's state, `take` it from where it is, then call one of the `put` methods, as in the memory engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from types import TracebackType

from msgspec.structs import replace
from rocksdict import WriteBatch

from drumlin.engines.rocksdb.layout import (
    BACKOFF,
    DEAD,
    DONE,
    SCHEDULED,
    SHARD_BYTES,
    TIME_BYTES,
    WAITING,
    WAITING_AGAIN,
    Host,
    HostRecord,
    LeaseRecord,
    Seen,
    ShardRecord,
    decode_host,
    decode_lease,
    decode_letter,
    decode_scheduled,
    decode_seen,
    decode_shard,
    decode_task,
    encode,
    encode_seen,
    pack_id,
    pack_place,
    pack_shard,
    pack_time,
    unpack_time,
)
from drumlin.engines.rocksdb.letters import Listing, Unlisted
from drumlin.engines.rocksdb.storage import Storage, translate
from drumlin.model import PRIORITY_MAX, DeadLetter, NewURLs, Task
from drumlin.urls import host_of

# How many decoded host records are cached over all shards, at about 1 KB each. Evicted ones are read again.
HOSTS_CACHED_MAX = 20_000
# How many URLs a shard remembers that were previewed but not settled yet. A batch is settled soon after its preview.
PREVIEWED_MAX = 10_000
_AFTER_EVERY_TIME = pack_time(inf) + b"\xff"


class Shard:
    """A shard's record and a cache of its host records. Between two changes they agree with the disk."""

    def __init__(self, storage: Storage, number: int, hosts_max: int) -> None:
        self.storage = storage
        self.prefix = pack_shard(number)
        self.hosts_max = hosts_max
        self.hosts: dict[str, Host] = {}
        self.previewed: dict[bytes, bytes | None] = {}
        """Values read for a preview, by key, so settling the same URLs need not read them again."""
        self.forget()
        self.listing = self._listing()

    def _listing(self) -> Listing:
        """The lists of dead letters. Those that an earlier version did not list are listed now, once."""
        if not self.record.listed and self.record.dead and self.storage.read_only:
            return Unlisted(self.storage, self.prefix)
        listing = Listing(self.storage, self.prefix)
        if not self.record.listed and self.record.dead:
            batch = WriteBatch(raw_mode=True)
            listing.put_all(batch)
            self.record.listed = True
            batch.put(b"shard" + self.prefix, encode(self.record), self.storage.handles["meta"])
            self.storage.write(batch)
        self.record.listed = True
        return listing

    def forget(self) -> None:
        """Drop everything cached, since a failed change may have left it half done. The disk has the truth."""
        self.hosts.clear()
        self.previewed.clear()
        value = self.storage.get("meta", b"shard" + self.prefix)
        self.record = decode_shard(value) if value else ShardRecord(listed=True)

    def load(self, names: Iterable[str]) -> None:
        """Bring hosts into the cache; unknown hosts get an empty record."""
        missing = [name for name in dict.fromkeys(names) if name not in self.hosts]
        if not missing:
            return
        values = self.storage.get_many("hosts", [self.prefix + name.encode() for name in missing])
        for name, value in zip(missing, values, strict=True):
            record = decode_host(value) if value else HostRecord()
            host = self.hosts[name] = Host(self.prefix, name, record, None)
            if record.deadline is not None:
                host.lease = self._read_lease(host)

    def remember(self, previewed: dict[bytes, bytes | None]) -> None:
        if len(self.previewed) + len(previewed) > PREVIEWED_MAX:
            self.previewed.clear()
        self.previewed.update(previewed)

    def _read_lease(self, host: Host) -> LeaseRecord:
        """Read a host's lease, without the tasks that are done. Settling a done task does not rewrite the lease (see
        `Change.take`), so the record may still name it; but it is no longer in the queue."""
        lease = decode_lease(self.storage.read("leases", host.key))
        keys = [host.queue_key(priority, task_id) for task_id, priority in lease.tasks.items()]
        found = zip(lease.tasks.items(), self.storage.get_many("queue", keys), strict=True)
        lease.tasks = {task_id: priority for (task_id, priority), value in found if value is not None}
        return lease

    def trim(self) -> None:
        """Evict the hosts that have been in the cache longest, down to `hosts_max`."""
        excess = len(self.hosts) - self.hosts_max
        for name in list(islice(self.hosts, max(excess, 0))):
            del self.hosts[name]

    def times(self, index: str, until: float) -> Iterator[tuple[float, bytes, bytes]]:
        """The entries of a time index up to `until`, earliest first: time, rest of the key, value."""
        entries = self.storage.families[index].iter()
        entries.seek(self.record.floors.get(index, self.prefix))
        lowest = True
        while entries.valid():
            key: bytes = entries.key()
            if key[:SHARD_BYTES] != self.prefix:
                break
            if lowest:
                self.record.floors[index] = key
                lowest = False
            time: float = unpack_time(key, SHARD_BYTES)[0]
            if time > until:
                return
            yield time, key[SHARD_BYTES + TIME_BYTES :], entries.value()
            entries.next()
        if lowest:
            self.record.floors[index] = self.prefix + _AFTER_EVERY_TIME

    def count_ready(self, now: float) -> int:
        """How many hosts may be leased now."""
        record = self.record
        if now < record.ready_until:
            return sum(1 for _ in self.times("ready", now))
        start = self.prefix + pack_time(record.ready_until) + b"\xff" if record.ready_until >= 0 else self.prefix
        for key, _ in self.storage.scan("ready", self.prefix, start):
            if unpack_time(key, SHARD_BYTES)[0] > now:
                break
            record.ready += 1
        record.ready_until = now
        return record.ready

    def names_after(self, index: str, time: float) -> Iterator[bytes]:
        """The names in a time index later than `time`, earliest first."""
        start = self.prefix + pack_time(time) + b"\xff"
        for key, _ in self.storage.scan(index, self.prefix, start):
            yield key[SHARD_BYTES + TIME_BYTES :]


class Change:
    """A context manager: commits at its end, or, after an error, drops the shard's cache and translates the error."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.record = shard.record
        self.storage = shard.storage
        self.handles = shard.storage.handles
        self.seen_handle = self.handles["seen"]
        self.queue_handle = self.handles["queue"]
        self.batch = WriteBatch(raw_mode=True)
        self.touched: dict[str, Host] = {}
        self.counted = False
        self.groups: Counter[bytes] = Counter()
        """How many dead letters more or fewer each group has now."""
        # What this change wrote and may read again itself: RocksDB does not show a batch before it is written.
        self.seen_written: dict[bytes, bytes] = {}
        self.tasks_written: dict[int, Task] = {}

    def __enter__(self) -> Change:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.commit()
        except BaseException as failure:
            error = failure
        if error is not None:
            self.shard.forget()
            raise translate(error) from error

    def commit(self) -> None:
        for host in self.touched.values():
            self.write_host(host)
        self.shard.listing.count(self.batch, self.groups)
        if self.counted or self.touched or not self.batch.is_empty():
            self.batch.put(b"shard" + self.shard.prefix, encode(self.record), self.handles["meta"])
            self.storage.write(self.batch)
        previewed = self.shard.previewed
        for key in previewed.keys() & self.seen_written.keys():
            del previewed[key]
        self.shard.trim()

    # Hosts

    def host(self, name: str) -> Host:
        """A host, to read or to change; call `touch` when you change it."""
        found = self.shard.hosts.get(name)
        if found is None:
            self.shard.load((name,))
            found = self.shard.hosts[name]
        return found

    def touch(self, host: Host) -> None:
        self.touched[host.name] = host

    def forget(self, host: Host) -> None:
        """Remove a host. It must have no URLs and no lease, and so no entry in a time index."""
        if host.record.in_backoff:
            self.mark(host, in_backoff=False)
        for family in ("hosts", "notes"):
            self.batch.delete(host.key, self.handles[family])
        self.touched.pop(host.name, None)
        self.shard.hosts.pop(host.name, None)

    def mark(self, host: Host, in_backoff: bool) -> None:
        """Note that the host is in back-off from now on, or no longer."""
        host.record.in_backoff = in_backoff
        key = BACKOFF + host.key
        if in_backoff:
            self.batch.put(key, b"", self.handles["meta"])
        else:
            self.batch.delete(key, self.handles["meta"])
        self.record.hosts_in_backoff += 1 if in_backoff else -1

    def write_host(self, host: Host) -> None:
        """Write a host and its entries in the indexes by time."""
        record, lease = host.record, host.lease
        ready_at = record.next_contact if record.queued and lease is None else None
        if ready_at != record.ready_at:
            self.record.hosts_queued += (ready_at is not None) - (record.ready_at is not None)
            self._move("ready", host, record.ready_at, ready_at, b"")
            until = self.record.ready_until
            self.record.ready += (ready_at is not None and ready_at <= until) - (
                record.ready_at is not None and record.ready_at <= until
            )
            record.ready_at = ready_at
        if host.lease_changed:
            self._write_lease(host, lease)
        self.batch.put(host.key, encode(record), self.handles["hosts"])

    def _write_lease(self, host: Host, lease: LeaseRecord | None) -> None:
        record, host.lease_changed = host.record, False
        deadline = lease.deadline if lease else None
        self.record.hosts_leased += (deadline is not None) - (record.deadline is not None)
        node = lease.node.encode() if lease else b""
        self._move("deadlines", host, record.deadline, deadline, node)
        record.deadline = deadline
        if lease:
            self.batch.put(host.key, encode(lease), self.handles["leases"])
        else:
            self.batch.delete(host.key, self.handles["leases"])

    def _move(self, index: str, host: Host, old: float | None, new: float | None, value: bytes) -> None:
        if old == new:
            return
        if old is not None:
            self.batch.delete(self.shard.prefix + pack_time(old) + host.name.encode(), self.handles[index])
        if new is not None:
            self._put_time(index, self.shard.prefix + pack_time(new) + host.name.encode(), value)

    def _put_time(self, index: str, key: bytes, value: bytes) -> None:
        self.batch.put(key, value, self.handles[index])
        if key < self.record.floors.get(index, key):
            self.record.floors[index] = key

    # What is remembered of URLs

    def seen(self, key: bytes) -> Seen | None:
        value = self.seen_written.get(key) or self.storage.get("seen", key)
        return decode_seen(value) if value else None

    def put_seen(self, key: bytes, seen: Seen) -> None:
        value = self.seen_written[key] = encode_seen(seen)
        self.batch.put(key, value, self.seen_handle)

    # Tasks: where they are, and how they move

    def is_leased(self, host: Host, seen: Seen) -> bool:
        return host.lease is not None and seen.code <= WAITING_AGAIN and seen.id in host.lease.tasks

    def task(self, host: Host, seen: Seen) -> Task:
        """The task, wherever it is kept. A done task is not kept: do not ask for one."""
        if seen.id in self.tasks_written:
            return self.tasks_written[seen.id]
        if seen.code <= WAITING_AGAIN:
            return decode_task(self.storage.read("queue", host.queue_key(seen.priority, seen.id)))
        if seen.code == SCHEDULED:
            return decode_scheduled(self.storage.read("scheduled", self._scheduled_key(seen)))[1]
        return self.letter(seen).task

    def letter(self, seen: Seen) -> DeadLetter:
        return decode_letter(self.storage.read("dead", self.shard.prefix + pack_id(seen.id)))

    def _scheduled_key(self, seen: Seen) -> bytes:
        return self.shard.prefix + pack_time(seen.retry_at) + pack_id(seen.id)

    def take(self, host: Host, seen: Seen, *, for_good: bool = False) -> None:
        """Remove the task from its queue, lease, schedule or the dead letters, whichever holds it.

        A done task never comes back (`for_good`), so its lease need not be rewritten: see `Shard._read_lease`.
        """
        self.touched[host.name] = host
        if seen.code <= WAITING_AGAIN:
            if host.lease is not None and host.lease.tasks.pop(seen.id, None) is not None:
                host.lease_changed = host.lease_changed or not for_good
                self.record.leased -= 1
            else:
                host.record.queued -= 1
                self.record.queued -= 1
            self.batch.delete(host.queue_key(seen.priority, seen.id), self.queue_handle)
        elif seen.code == SCHEDULED:
            self.record.scheduled -= 1
            self.batch.delete(self._scheduled_key(seen), self.handles["scheduled"])
        elif seen.code == DEAD:
            self.record.dead -= 1
            self.groups[self.shard.listing.remove(self.batch, self.letter(seen))] -= 1
            self.batch.delete(self.shard.prefix + pack_id(seen.id), self.handles["dead"])

    def put_new(self, host: Host, key: bytes, url: str, new: NewURLs, now: float) -> None:
        """Queue a URL that is new, as most are. Faster than `put_queued`: it omits what only older tasks need."""
        shard, record, priority = self.record, host.record, new.priority
        task_id = shard.next_id
        shard.next_id = task_id + 1
        shard.queued += 1
        if not record.queued and host.lease is None and record.next_contact < now:
            record.next_contact = now
        record.queued += 1
        record.urls += 1
        record.heads.setdefault(priority, task_id)
        self.touched[host.name] = host
        value = self.seen_written[key] = pack_place(WAITING, priority, task_id)
        self.batch.put(key, value, self.seen_handle)
        # The fields of `Task` in their order: a tuple is encoded to the same bytes and is faster to make.
        task = (task_id, url, priority, new.depth, 0, new.found_on, new.redirects, 0, now)
        self.batch.put(host.queue_key(priority, task_id), encode(task), self.queue_handle)

    def put_queued(self, host: Host, key: bytes, task: Task, seen: Seen, now: float = 0.0) -> None:
        """Queue the task. A host that had nothing to do becomes ready at `now`, or at its next contact if later."""
        record = host.record
        if not record.queued and host.lease is None and record.next_contact < now:
            record.next_contact = now
        record.queued += 1
        self.record.queued += 1
        host.lower_head(task.priority, task.id)
        self.touched[host.name] = host
        code = WAITING_AGAIN if seen.first_failed else WAITING
        self.put_seen(key, Seen(code, task.priority, task.id, seen.attempt_id, 0.0, seen.first_failed))
        self.write_task(host, task)

    def write_task(self, host: Host, task: Task) -> None:
        self.tasks_written[task.id] = task
        self.batch.put(host.queue_key(task.priority, task.id), encode(task), self.queue_handle)

    def put_scheduled(self, host: Host, key: bytes, task: Task, seen: Seen) -> None:
        self.record.scheduled += 1
        self.tasks_written[task.id] = task
        self.put_seen(key, seen._replace(code=SCHEDULED))
        self._put_time("scheduled", self._scheduled_key(seen), encode((host.name, task)))

    def put_dead(self, key: bytes, seen: Seen, letter: DeadLetter) -> None:
        self.record.dead += 1
        self.tasks_written[letter.task.id] = letter.task
        self.put_seen(key, Seen(DEAD, letter.task.priority, letter.task.id, seen.attempt_id))
        self.groups[self.shard.listing.put(self.batch, letter)] += 1
        self.batch.put(self.shard.prefix + pack_id(letter.task.id), encode(letter), self.handles["dead"])

    def put_done(self, key: bytes, seen: Seen) -> None:
        self.record.done += 1
        self.put_seen(key, Seen(DONE, seen.priority, seen.id, seen.attempt_id))

    def forget_seen(self, key: bytes) -> None:
        """A URL that is done becomes unknown."""
        self.batch.delete(key, self.seen_handle)

    # Leases

    def queue_head(self, host: Host, tasks_max: int) -> list[Task]:
        """The first tasks of the queue that are not leased, in order. Moves `heads` behind them."""
        heads, held = host.record.heads, host.lease.tasks if host.lease else {}
        entries = self.storage.families["queue"].iter()
        tasks: list[Task] = []
        for priority in sorted(heads, reverse=True):
            prefix = host.queue_prefix + bytes((PRIORITY_MAX - priority,))
            entries.seek(host.queue_key(priority, heads[priority]))
            while len(tasks) < tasks_max and entries.valid() and entries.key().startswith(prefix):
                task = decode_task(entries.value())
                if task.id not in held:
                    tasks.append(task)
                heads[priority] = task.id + 1
                entries.next()
            if len(tasks) == tasks_max:
                return tasks
            del heads[priority]
        return tasks

    def grant(self, host: Host, lease: LeaseRecord, tasks_max: int) -> list[Task]:
        """Add the head of the queue to `lease`, which may be new or the host's present one."""
        host.lease = lease
        tasks = self.queue_head(host, max(tasks_max, 0))
        for task in tasks:
            lease.tasks[task.id] = task.priority
        host.lease_changed = True
        host.record.queued -= len(tasks)
        self.record.queued -= len(tasks)
        self.record.leased += len(tasks)
        self.touch(host)
        return tasks

    def lose_lease(self, host: Host, ended: float) -> None:
        """End a lease whose node fell silent. That node may have contacted the host until `ended`."""
        if host.lease is not None:
            delay_s = host.record.lost_delay_s(host.lease.delay_default_s)
            self.end_lease(host, host.lease, max(host.record.next_contact, ended) + delay_s)

    def end_lease(self, host: Host, lease: LeaseRecord, next_contact: float) -> None:
        """End a lease. Its tasks count as queued again; they never left their places in the queue."""
        host.lease = None
        for task_id, priority in lease.tasks.items():
            host.lower_head(priority, task_id)
        host.lease_changed = True
        host.record.queued += len(lease.tasks)
        host.record.next_contact = next_contact
        self.record.queued += len(lease.tasks)
        self.record.leased -= len(lease.tasks)
        self.touch(host)

    def end_dead(self, url: str, now: float | None) -> bool:
        """Take a URL from the dead letters. With `now` it is queued again; without, it counts as done. Returns whether
        it was there."""
        host = self.host(host_of(url))
        key = host.seen_key(url)
        seen = self.seen(key)
        if seen is None or seen.code != DEAD:
            return False
        task = self.task(host, seen)
        self.take(host, seen)
        if now is None:
            self.put_done(key, seen)
        else:
            self.put_queued(host, key, replace(task, attempts=0, crashes=0), seen, now)
        return True

    def count(self, counts: dict[str, int]) -> None:
        counters = self.record.counters
        for name, value in counts.items():
            counters[name] = counters.get(name, 0) + value
        self.counted = True
