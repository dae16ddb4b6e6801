"""Engines keep the shards of a frontier: every known URL, its state, its host's queue, leases and next contact.

An engine is mechanical. It keeps order, exclusiveness and durability; how long to wait, how often to retry and how
much to fetch are decided by its caller and passed in, as is `now`. `base.Engine` is the contract:

- `memory` (`MemoryEngine`) is the contract in plain Python: the specification that the others are tested against.
- `rocksdb` (`RocksEngine`) keeps everything in RocksDB: the default of `drumlin crawl`.
- `redis` (`RedisEngine`) keeps it on a Redis or Valkey server or cluster, where many coordinators share it.

Invariants: a host has at most one live lease; every accepted URL is in exactly one state; what was acknowledged
survives kill -9 (rocksdb, and redis with `appendonly yes`); settling twice changes nothing. `conformance` tests them on
any engine, including your own.

Limits: an embedded engine (memory, rocksdb) is used by one thread of one process at a time; all URLs of a host live in
one shard; the number of shards is fixed when the frontier is founded. `blocking` wraps an engine for code that is not
asynchronous, `kept` is how a frontier is moved from one engine to another, `paging` makes one list of those of all
shards, and `watched` measures how long calls take. Read `base` first, then `memory`.
"""

from __future__ import annotations

from drumlin.engines.base import SHARD_COUNT_DEFAULT, SHARD_COUNT_MAX, Added, Engine, shard_of
from drumlin.engines.kept import CLOSED_KEY, Closed
from drumlin.errors import ConfigError, EngineError

__all__ = ["SHARD_COUNT_DEFAULT", "SHARD_COUNT_MAX", "Added", "Engine", "open_engine", "shard_of"]


async def open_engine(
    spec: str,
    *,
    shard_count: int | None = None,
    sync: bool = False,
    read_only: bool = False,
    closed: bool = False,
    founds: bool = True,
) -> Engine:
    """Open the engine that `spec` names: `memory`, `rocksdb:PATH` (created there if it does not exist), or
    `redis://HOST:PORT[,HOST:PORT…]/[NAMESPACE]` (`rediss://` with TLS).

    `shard_count` is for a new frontier; an existing one keeps the number that it has. `sync` makes every call safe from
    power loss, not only from kill -9. With `read_only`, nothing is written to the database's folder, and calls that
    would write fail. `sync` and `read_only` have an effect on `rocksdb` only.

    A frontier that is only half imported, or that was moved to another engine, is refused, unless it is opened to be
    looked at (`read_only`) or by those who move frontiers (`closed`).

    Without `founds`, a `ConfigError` says so where there is no frontier and names those that are there; this has an
    effect on `redis` only, since anybody can see whether a folder exists.
    """
    engine = await _open(spec, shard_count, sync=sync, read_only=read_only, founds=founds)
    reason = None if read_only or closed else Closed.read(await engine.get_meta(CLOSED_KEY))
    if reason is not None:
        await engine.close()
        raise EngineError(reason.sentence, reason.hint)
    return engine


async def _open(spec: str, shard_count: int | None, *, sync: bool, read_only: bool, founds: bool) -> Engine:
    kind, _, place = spec.partition(":")
    if shard_count is not None and not 1 <= shard_count <= SHARD_COUNT_MAX:
        raise ConfigError(f"A frontier has between 1 and {SHARD_COUNT_MAX} shards, not {shard_count}.")
    if kind == "memory" and not place:
        from drumlin.engines.memory.engine import MemoryEngine

        return MemoryEngine(shard_count or SHARD_COUNT_DEFAULT)
    if kind == "rocksdb" and place:
        from drumlin.engines.rocksdb.engine import RocksEngine

        return RocksEngine(place, shard_count=shard_count, sync=sync, read_only=read_only)
    if kind in ("redis", "rediss"):
        from drumlin.engines.redis.engine import open_redis

        return await open_redis(spec, shard_count=shard_count, founds=founds)
    raise ConfigError(f"There is no engine {kind!r}.", "Use `memory`, `rocksdb:PATH` or `redis://HOST:PORT/NAMESPACE`.")
