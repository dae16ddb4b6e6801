"""The redis engine on a cluster in trouble: a master killed, slots on the move, replicas missing; each under load.

The load adds, leases and settles without pause and writes down what was acknowledged. In the end everything
acknowledged must be there, nothing may have been given out after it was settled, and every URL must end as done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from drumlin.engines.base import shard_of
from drumlin.engines.redis.engine import RedisEngine, open_redis
from drumlin.engines.redis.founding import SHARDS_PER_MASTER
from drumlin.engines.redis.topology import slot_of
from drumlin.errors import EngineError
from drumlin.model import Lease, NewURLs, Settled, Settlement, TaskState
from tests.harness.redis import RedisCluster, RedisServer, redis_cluster, redis_server, url_of

SHARDS = 8
HOSTS = 40
URLS_PER_ROUND = 30
ROUNDS_AROUND = 40
LEASE_S = 10_000.0


class Load:
    """Makes calls without a pause, as coordinators do, and notes what was acknowledged."""

    def __init__(self, engine: RedisEngine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._number = 0
        self.rounds = 0
        self.now = 1_000.0
        self.added: set[str] = set()
        self.done: set[str] = set()
        self.given_after_done: list[str] = []
        self.longest_s = 0.0

    async def run(self, *, until: Callable[[], bool]) -> None:
        while not until():
            begin = time.monotonic()
            await self.round()
            self.longest_s = max(self.longest_s, time.monotonic() - begin)

    async def round(self, *, adding: bool = True) -> int:
        self.rounds += 1
        self.now += 1.0
        if adding:
            await self._add()
        requests = [self._lease(shard) for shard in range(SHARDS)]
        leases = [lease for found in await asyncio.gather(*requests) for lease in found]
        await self._settle(leases)
        return len(leases)

    async def _add(self) -> None:
        batches: dict[int, list[NewURLs]] = {}
        for _ in range(URLS_PER_ROUND):
            self._number += 1
            host = f"h{self._number % HOSTS}.example"
            new = NewURLs(host, [f"https://{host}/{self._name}/{self._number}"])
            batches.setdefault(shard_of(host, SHARDS), []).append(new)
        await self._engine.add_all(batches, self.now)
        self.added |= {new.urls[0] for urls in batches.values() for new in urls}

    async def _lease(self, shard: int) -> list[Lease]:
        request = f"{self._name}.{self.rounds}.{shard}"
        until = self.now + LEASE_S
        return await self._engine.lease(
            shard, self._name, request, self.now, until=until, hosts_max=3, urls_max=9, urls_per_host=3
        )

    async def _settle(self, leases: list[Lease]) -> None:
        batches: dict[int, list[Settlement]] = {}
        for lease in leases:
            self.given_after_done += [task.url for task in lease.tasks if task.url in self.done]
            parts = [Settled(task.id, task.url, TaskState.DONE, task.url.encode()) for task in lease.tasks]
            batches.setdefault(lease.shard, []).append(Settlement(lease.host, lease.lease_id, parts, release=True))
        await self._engine.settle_all(batches, self.now)
        self.done |= {task.url for lease in leases for task in lease.tasks}


async def drain(loads: list[Load]) -> None:
    """Lease and settle everything that is queued."""
    while sum([await load.round(adding=False) for load in loads]):
        pass


async def check(engine: RedisEngine, loads: list[Load]) -> None:
    await drain(loads)
    added = set[str]().union(*(load.added for load in loads))
    done = [url for load in loads for url in load.done]
    assert [url for load in loads for url in load.given_after_done] == []
    assert len(done) == len(set(done)), "given to two"
    assert set(done) == added
    stats = await engine.stats_all(1e6)
    assert sum(one.done for one in stats) == len(added)
    assert sum(one.queued + one.leased + one.scheduled + one.dead for one in stats) == 0


@asynccontextmanager
async def engines_on(url: str, count: int) -> AsyncIterator[list[RedisEngine]]:
    engines = [await open_redis(url, shard_count=SHARDS) for _ in range(count)]
    try:
        yield engines
    finally:
        for engine in engines:
            await engine.close()


async def through(url: str, trouble: Callable[[], Awaitable[None]]) -> float:
    """Load from two engines before, during and after a disturbance. Returns the longest time that a round of calls
    took."""
    async with engines_on(url, 2) as engines:
        loads = [Load(engine, f"load-{number}") for number, engine in enumerate(engines)]
        over = asyncio.Event()

        async def disturb() -> None:
            while any(load.rounds < ROUNDS_AROUND for load in loads):
                await asyncio.sleep(0.01)
            await trouble()
            at = [load.rounds for load in loads]
            while any(load.rounds < before + ROUNDS_AROUND for load, before in zip(loads, at, strict=True)):
                await asyncio.sleep(0.01)
            over.set()

        await asyncio.gather(disturb(), *(load.run(until=over.is_set) for load in loads))
        await check(engines[0], loads)
        return max(load.longest_s for load in loads)


def test_nothing_acknowledged_is_lost_when_a_master_is_killed(tmp_path: Path) -> None:
    # Two replicas for each master: the one that takes over needs another one to confirm its writes.
    with redis_cluster(tmp_path, replicas=2) as cluster:

        async def kill_a_master() -> None:
            cluster.masters[0].kill()

        url = url_of(*cluster.servers[1:3], namespace="n", options="?replicas=1")
        longest_s = asyncio.run(through(url, kill_a_master))
        print(f"the longest call around the loss of a master took {longest_s:.1f} s")


def test_a_new_frontier_has_shards_for_each_master(tmp_path: Path) -> None:
    async def count(url: str) -> int:
        engine = await open_redis(url)
        await engine.close()
        return engine.shard_count

    with redis_cluster(tmp_path, masters=2) as cluster:
        assert asyncio.run(count(url_of(cluster.servers[0], namespace="n"))) == 2 * SHARDS_PER_MASTER


def test_calls_go_on_while_slots_move_to_another_master(tmp_path: Path) -> None:
    with redis_cluster(tmp_path, masters=2) as cluster:
        moved: list[int] = []

        async def move() -> None:
            for shard in range(SHARDS):
                keys = await asyncio.to_thread(move_slot, cluster, slot_of(f"n:{shard}"))
                moved.append(keys)

        asyncio.run(through(url_of(cluster.servers[0], namespace="n"), move))
        assert min(moved) > 0


def move_slot(cluster: RedisCluster, slot: int) -> int:
    """Move a slot from the master that has it to the other, a few keys at a time; returns how many keys moved."""
    source, target = cluster.masters
    if not source.command("CLUSTER", "COUNTKEYSINSLOT", slot):
        source, target = target, source
    target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id_of(source))
    source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id_of(target))
    moved = 0
    while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 7):
        answer = source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *keys)
        assert answer in (b"OK", b"NOKEY"), answer
        moved += len(keys)
        # Long enough for calls to find a slot that is half moved.
        time.sleep(0.005)
    for server in (target, source):
        assert server.command("CLUSTER", "SETSLOT", slot, "NODE", cluster.id_of(target)) == b"OK"
    return moved


def test_a_server_that_joins_without_the_functions_gets_them(tmp_path: Path) -> None:
    async def add_after_flush(server: RedisServer) -> None:
        async with engines_on(url_of(server, namespace="n"), 1) as (engine,):
            server.command("FUNCTION", "FLUSH")
            assert len(await engine.add_all({0: [NewURLs("a.example", ["https://a.example/"])]}, 1.0)) == 1

    with redis_server(tmp_path) as server:
        asyncio.run(add_after_flush(server))


def test_a_write_that_too_few_replicas_confirm_is_not_acknowledged(tmp_path: Path) -> None:
    news = [NewURLs("a.example", ["https://a.example/"])]

    async def write_without_replica(master: RedisServer, replica: RedisServer) -> None:
        url = url_of(master, namespace="n", options="?replicas=1")
        engine = await open_redis(url, shard_count=1, patience_s=3.0)
        await engine.add_all({0: [NewURLs("b.example", ["https://b.example/"])]}, 1.0)
        replica.kill()
        with pytest.raises(EngineError, match="Fewer than 1 replicas"):
            await engine.add_all({0: news}, 1.0)
        replica.start()
        await engine.close()
        # On a connection that has written nothing itself, the repeated call waits for what the first one wrote.
        again = await open_redis(url, shard_count=1)
        await again.add_all({0: news}, 1.0)
        assert int(replica.command("GET", "{n:0}") or 0) == 2
        await again.close()

    with redis_server(tmp_path / "master", "--repl-diskless-sync-delay", "0") as master:
        with redis_server(tmp_path / "replica", "--replicaof", f"127.0.0.1 {master.port}") as replica:
            asyncio.run(write_without_replica(master, replica))
