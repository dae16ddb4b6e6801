"""How much of Redis's memory a URL takes: while it is queued, once it is done, and in the index of contents.

    python -m bench.load_memory                    2 million URLs of 40,000 hosts, one Redis
    python -m bench.load_memory --urls 200000 --hosts 4000

Hosts have the sizes of `bench.load_web`, about 50 URLs on average. A done URL is one that is seen and whose capture is
still remembered against repeated settlements (two weeks); after that it is merely seen.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.dedupe import made_up_sketch
from bench.load import fill
from bench.load_servers import Redis, stopping
from bench.load_web import PAGE_BYTES, LoadWeb, random_digests
from drumlin.dedupe import OVERLAP_MIN
from drumlin.engines import Engine, open_engine
from drumlin.model import Content, Lease, Settled, Settlement, TaskState
from drumlin.urls import domain_of

NODE = "memory"
HOSTS_PER_LEASE = 200
URLS_PER_LEASE = 5_000
LEASE_S = 600.0


class Memory(NamedTuple):
    """Bytes of Redis's memory for each URL in these states."""

    urls: int
    queued: float
    done: float
    content: float


async def finish_all(engine: Engine, web: LoadWeb, now: float, *, record: bool) -> int:
    """Lease and settle everything that is queued; returns how many URLs that were."""
    done, requests = 0, count()
    for shard in range(engine.shard_count):
        while leases := await take(engine, shard, f"{NODE}:{next(requests)}", now):
            if record:
                await engine.contents.record(contents_of(leases, web, now), OVERLAP_MIN)
            await engine.settle_all({shard: [settlement_of(lease) for lease in leases]}, now)
            done += sum(len(lease.tasks) for lease in leases)
    return done


async def take(engine: Engine, shard: int, request: str, now: float) -> list[Lease]:
    return await engine.lease(
        shard,
        NODE,
        request,
        now,
        until=now + LEASE_S,
        hosts_max=HOSTS_PER_LEASE,
        urls_max=URLS_PER_LEASE,
        urls_per_host=URLS_PER_LEASE,
    )


def settlement_of(lease: Lease) -> Settlement:
    settled = [
        Settled(task.id, task.url, TaskState.DONE, b"capture:%d" % task.id, size=PAGE_BYTES, counts={"pages": 1})
        for task in lease.tasks
    ]
    return Settlement(lease.host, lease.lease_id, settled, release=True)


def contents_of(leases: list[Lease], web: LoadWeb, now: float) -> list[Content]:
    tasks = [(domain_of(lease.host), task.url) for lease in leases for task in lease.tasks]
    return [
        Content(domain, url, bytes.fromhex(digest), made_up_sketch(web.chance), now, f"urn:uuid:{digest[:36]}")
        for (domain, url), digest in zip(tasks, random_digests(len(tasks)), strict=True)
    ]


async def measure(folder: Path, urls: int, hosts: int, *, record: bool) -> tuple[int, float, float]:
    """URLs, bytes for each while queued, and bytes for each when all are done."""
    redis = Redis(folder, 1)
    with stopping(list(redis.servers)):
        engine = await open_engine(redis.url)
        web = LoadWeb(hosts, 1)
        before = redis.used_bytes()
        filled = await fill(engine, web, urls, redis)
        done = await finish_all(engine, web, time.time() + 1.0, record=record)
        assert done == filled.urls
        after = redis.used_bytes()
        await engine.close()
    return done, filled.bytes_per_url, (after - before) / done


async def compare(folder: Path, urls: int, hosts: int) -> Memory:
    """Once without and once with the index of contents."""
    (folder / "plain").mkdir()
    (folder / "contents").mkdir()
    total, queued, done = await measure(folder / "plain", urls, hosts, record=False)
    _, _, recorded = await measure(folder / "contents", urls, hosts, record=True)
    return Memory(total, queued, done, recorded - done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, default=2_000_000)
    parser.add_argument("--hosts", type=int, default=40_000)
    parser.add_argument("--directory", help="where Redis keeps its files (default: a temporary directory)")
    options = parser.parse_args()
    with TemporaryDirectory(dir=options.directory) as folder:
        memory = asyncio.run(compare(Path(folder), options.urls, options.hosts))
    print(f"{memory.urls:,} URLs of {options.hosts:,} hosts, bytes of Redis's memory for each URL")
    print(f"  queued                        {memory.queued:7.1f}")
    print(f"  done                          {memory.done:7.1f}")
    print(f"  its content, in the index     {memory.content:7.1f}")


if __name__ == "__main__":
    main()
