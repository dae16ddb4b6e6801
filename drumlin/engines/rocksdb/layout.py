"""What the rocksdb engine writes: column families, keys and values. If you change anything here, raise `FORMAT`, unless
older data can still be read correctly.

All integers and times in keys are big-endian, and times are never negative, so RocksDB's byte order is their order.
Every key but those of `meta` and `contents` begins with its shard (2 bytes).

| column family | key after the shard | value |
|---|---|---|
| seen | xxh3-64 of host (8), xxh3-128 of the URL's identity (16), or its short mark (7) | `Seen`: state and where the
task is |
| queue | host, 0, 9 - priority (1), id (8) | `Task`, whether queued or leased |
| scheduled | retry time (8), id (8) | host and `Task` |
| dead | id (8) | `DeadLetter` |
| hosts | host | `HostRecord` |
| leases | host | `LeaseRecord` |
| notes | host | the host's note |
| ready | next contact (8), host | nothing |
| deadlines | lease deadline (8), host | node |
| meta | `shard` and shard: `ShardRecord`; `meta.` and a key: a value of the crawl's own; `backoff`, shard and host: a
host in back-off; `letters`, shard, kind, 0, host, 0, id: a dead letter; `letter_count`, shard, kind, 0, host: how many
(8 bytes); `letter_groups`, shard, kind, 0, 2^64 - 1 - how many (8), host: the same, largest first; `filled` and shard:
how many steps of an import are done | |
| contents | whatever `drumlin.dedupe` chooses | |

A leased task stays where it is in `queue`; only its host's `LeaseRecord` says that it is leased. So leasing writes
nothing per task, and when a lease is deleted, its tasks are queued in their old places again.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import msgspec
import xxhash

from drumlin.engines.kept import MARK_BYTES, short_mark
from drumlin.model import PRIORITY_MAX, DeadLetter, Task
from drumlin.urls import identity

FORMAT = b"1"
FORMAT_SHORT = b"2"
"""As `FORMAT`, and some URLs that are done have only a short mark: the frontier was imported from Redis. Versions that
do not look for short marks would fetch those URLs again, so they must not read it."""
FAMILIES = (
    "seen",
    "queue",
    "scheduled",
    "dead",
    "hosts",
    "leases",
    "notes",
    "ready",
    "deadlines",
    "meta",
    "contents",
)

SHARD_BYTES = 2
TIME_BYTES = 8
ID_BYTES = 8

# Codes of the first byte of a `Seen` value. `WAITING` is queued or leased and never failed; `WAITING_AGAIN` has failed.
WAITING = 0
WAITING_AGAIN = 1
SCHEDULED = 2
DONE = 3
DEAD = 4

_place = Struct(">BBQ")  # code, priority, id
_times = Struct(">dd")  # retry_at, first_failed
_PLACE_BYTES = _place.size
_TIMES_END = _PLACE_BYTES + _times.size
_with_times = frozenset((WAITING_AGAIN, SCHEDULED))

pack_place = _place.pack
pack_shard = Struct(">H").pack
pack_time = Struct(">d").pack
pack_id = Struct(">Q").pack
pack_queue_place = Struct(">BQ").pack
unpack_time = Struct(">d").unpack_from


class Seen(NamedTuple):
    """What is kept of every accepted URL: its state, and where to find its task."""

    code: int
    priority: int
    id: int
    attempt_id: bytes = b""
    retry_at: float = 0.0
    first_failed: float = 0.0


def encode_seen(seen: Seen) -> bytes:
    """The value of a URL in `seen`. Times are written only for states that have them, since most URLs are done and have
    none."""
    place = pack_place(seen.code, seen.priority, seen.id)
    times = _times.pack(seen.retry_at, seen.first_failed) if seen.code in _with_times else b""
    return place + times + seen.attempt_id


def decode_seen(value: bytes) -> Seen:
    code, priority, task_id = _place.unpack_from(value)
    if code not in _with_times:
        return Seen(code, priority, task_id, value[_PLACE_BYTES:])
    retry_at, first_failed = _times.unpack_from(value, _PLACE_BYTES)
    return Seen(code, priority, task_id, value[_TIMES_END:], retry_at, first_failed)


def short_key(key: bytes) -> bytes:
    """The key under which a URL with this key stands if only its short mark is known."""
    return key[:-MARK_BYTES] + short_mark(key[-MARK_BYTES:])


class HostRecord(msgspec.Struct, array_like=True):
    """A host.

    `queued` counts its tasks that are queued and not leased, and `heads` gives, for each priority that may have
    such tasks, an id at or below the lowest: a scan that starts there need not pass over deleted entries.
    `ready_at` and `deadline` are the times under which the host stands in `ready` and `deadlines`.
    """

    next_contact: float = 0.0
    delay_s: float | None = None
    queued: int = 0
    heads: dict[int, int] = {}
    ready_at: float | None = None
    deadline: float | None = None
    noted: bool = False
    urls: int = 0
    pages: int = 0
    bytes: int = 0
    in_backoff: bool = False
    slow_s: float = 0.0

    def lost_delay_s(self, default_s: float) -> float:
        """How long the host must be left alone when a node may have contacted it just now."""
        return max(default_s, self.delay_s or 0.0, self.slow_s)


class LeaseRecord(msgspec.Struct, array_like=True):
    """A live lease. `tasks` maps the id of each task that it holds to its priority; on disk it may also contain tasks
    that are done (see `Change.take`)."""

    lease_id: str
    node: str
    deadline: float
    delay_default_s: float
    tasks: dict[int, int] = {}


class ShardRecord(msgspec.Struct, array_like=True):
    """A shard's totals, and for each time index a key at or below its lowest entry. `listed` is whether its dead
    letters are listed in `meta`, which earlier versions did not do. `ready` is how many entries of the index `ready`
    are not later than `ready_until`: to count the ready hosts, only those are looked at whose time has come since."""

    next_id: int = 1
    queued: int = 0
    scheduled: int = 0
    leased: int = 0
    done: int = 0
    dead: int = 0
    hosts_queued: int = 0
    hosts_leased: int = 0
    counters: dict[str, int] = {}
    floors: dict[str, bytes] = {}
    hosts_in_backoff: int = 0
    listed: bool = False
    ready: int = 0
    ready_until: float = -1.0


BACKOFF = b"backoff"

encode = msgspec.msgpack.Encoder().encode
decode_task = msgspec.msgpack.Decoder(Task).decode
decode_scheduled = msgspec.msgpack.Decoder(tuple[str, Task]).decode
decode_letter = msgspec.msgpack.Decoder(DeadLetter).decode
decode_host = msgspec.msgpack.Decoder(HostRecord).decode
decode_lease = msgspec.msgpack.Decoder(LeaseRecord).decode
decode_shard = msgspec.msgpack.Decoder(ShardRecord).decode


class Host:
    """A host in memory: its records and the prefixes of its keys."""

    __slots__ = ("key", "lease", "lease_changed", "name", "queue_prefix", "record", "seen_prefix")

    def __init__(self, shard_prefix: bytes, name: str, record: HostRecord, lease: LeaseRecord | None) -> None:
        encoded = name.encode()
        self.name = name
        self.key = shard_prefix + encoded
        self.queue_prefix = self.key + b"\0"
        self.seen_prefix = shard_prefix + xxhash.xxh3_64_digest(encoded)
        self.record = record
        self.lease = lease
        self.lease_changed = False

    def queue_key(self, priority: int, task_id: int) -> bytes:
        return self.queue_prefix + pack_queue_place(PRIORITY_MAX - priority, task_id)

    def seen_key(self, url: str) -> bytes:
        return self.seen_prefix + xxhash.xxh3_128_digest(identity(url).encode())

    def lower_head(self, priority: int, task_id: int) -> None:
        """Make sure that a scan from `heads` finds this task."""
        heads = self.record.heads
        if heads.get(priority, task_id) >= task_id:
            heads[priority] = task_id
