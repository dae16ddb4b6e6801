"""µs of CPU per page that the engines take: rocksdb with a small, a large and a broad frontier, redis on some masters.

A page leases its share of a host's queue, settles one task, adds 5 new links and 5 known ones. CPU time is that of the
whole process, RocksDB's background threads included.

    python -m bench.engines                     50 thousand URLs, 5 million, and 1 million hosts
    python -m bench.engines --urls 200000 --hosts 800
    python -m bench.engines --redis 1 3         redis alone and a cluster of three masters, 2 million URLs

The redis rows are for batches of 100 pages with 10 links each, as coordinators get them: leases from 10 shards,
links to hosts of nearly all. Bytes are Redis's own count of its memory after filling in the URLs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from drumlin.engines.blocking import BlockingEngine, open_blocking
from drumlin.engines.redis.engine import RedisEngine, open_redis
from drumlin.engines.rocksdb.engine import RocksEngine
from drumlin.model import Lease, NewURLs, Settled, Settlement, TaskState
from tests.harness.redis import RedisServer, redis_cluster, url_of

SEED = 1
NODE = "node"
FILL_BATCH = 1_000
HOSTS_PER_LEASE = 20
URLS_PER_HOST = 10
LINKS_NEW = 5
LINKS_KNOWN = 5
LINK_ELSEWHERE_SHARE = 0.1
# Enough for several compactions to happen meanwhile.
PAGES = 60_000
REST_POLL_S = 0.1
REST_POLLS_MAX = 3_000
REDIS_CASE_URLS = 2_000_000
REDIS_CASE_HOSTS = 20_000
REDIS_SHARDS_LEASED = 10
REDIS_HOSTS_PER_SHARD = 2
REDIS_URLS_PER_HOST = 5
REDIS_BATCHES_TOGETHER = 20


class Case(NamedTuple):
    name: str
    urls: int
    hosts: int


CASES = (
    Case("small", 50_000, 200),
    Case("large", 5_000_000, 20_000),
    Case("broad", 1_000_000, 1_000_000),
)


class Result(NamedTuple):
    pages: int
    lease_us: float
    settle_us: float
    add_us: float
    fill_us: float
    reopen_s: float
    resident_mb: float

    @property
    def page_us(self) -> float:
        return self.lease_us + self.settle_us + self.add_us


class Web:
    """Hosts whose pages are numbered; remembers how many of each are known."""

    def __init__(self, hosts: int) -> None:
        self.names = [f"www.site-{number}.example" for number in range(hosts)]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self.sizes = [0] * hosts
        self.chance = random.Random(SEED)

    def url(self, host: int, path: int) -> str:
        return f"https://{self.names[host]}/articles/2026/{path}/a-title-of-usual-length"

    def new(self, host: int) -> str:
        self.sizes[host] += 1
        return self.url(host, self.sizes[host] - 1)

    def found(self, host: int, urls: list[str]) -> NewURLs:
        name = self.names[host]
        return NewURLs(name, urls, 5, 1, f"https://{name}/articles/2026")

    def links(self, name: str) -> Iterator[NewURLs]:
        own = self.numbers[name]
        urls: dict[int, list[str]] = {}
        for place in range(LINKS_NEW + LINKS_KNOWN):
            elsewhere = self.chance.random() < LINK_ELSEWHERE_SHARE
            host = self.chance.randrange(len(self.names)) if elsewhere else own
            known = self.chance.randrange(max(self.sizes[host], 1))
            urls.setdefault(host, []).append(self.new(host) if place < LINKS_NEW else self.url(host, known))
        yield from (self.found(host, mine) for host, mine in urls.items())


def fill(engine: BlockingEngine, web: Web, urls: int) -> None:
    hosts = len(web.names)
    for start in range(0, urls, FILL_BATCH):
        numbers = range(start, min(start + FILL_BATCH, urls))
        engine.add(0, [web.found(number % hosts, [web.new(number % hosts)]) for number in numbers], 0.0)


def crawl(engine: BlockingEngine, web: Web, pages: int, now: float) -> tuple[int, float, float, float]:
    """Pages done, and the seconds of CPU that leasing, settling and adding took."""
    clock = time.process_time
    done, lease_s, settle_s, add_s = 0, 0.0, 0.0, 0.0
    while done < pages:
        now += 1.0
        begin = clock()
        leases = engine.lease(
            0,
            NODE,
            f"{now}",
            now,
            until=now + 60,
            hosts_max=HOSTS_PER_LEASE,
            urls_max=HOSTS_PER_LEASE * URLS_PER_HOST,
            urls_per_host=URLS_PER_HOST,
        )
        lease_s += clock() - begin
        tasks = [(lease.host, task) for lease in leases for task in lease.tasks]
        if not tasks:
            break
        links = [link for host, _ in tasks for link in web.links(host)]
        settlements = [settlement(lease, now) for lease in leases]
        begin = clock()
        engine.add(0, links, now)
        add_s += clock() - begin
        begin = clock()
        engine.settle(0, settlements, now)
        settle_s += clock() - begin
        done += len(tasks)
    return done, lease_s, settle_s, add_s


def wait_until_at_rest(engine: RocksEngine) -> None:
    """Wait until RocksDB has compacted the URLs that were added within minutes. A crawl adds them over hours, and
    compaction keeps up with it."""
    for _ in range(REST_POLLS_MAX):
        if engine.at_rest():
            return
        time.sleep(REST_POLL_S)


def settlement(lease: Lease, now: float) -> Settlement:
    settled = [
        Settled(task.id, task.url, TaskState.DONE, b"capture:%08d" % task.id, size=37_000, counts={"pages": 1})
        for task in lease.tasks
    ]
    return Settlement(lease.host, lease.lease_id, settled, release=True, next_contact=now + 1.0)


class Clocks:
    """CPU seconds of this process and of the servers, added up stage by stage."""

    def __init__(self, servers: list[RedisServer]) -> None:
        self._files = [Path(f"/proc/{server.pid}/schedstat") for server in servers]
        self._last = self._read()
        self.client_s: dict[str, float] = {}
        self.redis_s: dict[str, float] = {}

    def _read(self) -> tuple[float, float]:
        return time.process_time(), sum(int(file.read_text().split()[0]) for file in self._files) / 1e9

    def start(self) -> None:
        self._last = self._read()

    def stop(self, stage: str) -> None:
        (client, redis), (client_before, redis_before) = self._read(), self._last
        self.client_s[stage] = self.client_s.get(stage, 0.0) + client - client_before
        self.redis_s[stage] = self.redis_s.get(stage, 0.0) + redis - redis_before


def by_shard(engine: RedisEngine, urls: list[NewURLs]) -> dict[int, list[NewURLs]]:
    shards: dict[int, list[NewURLs]] = {}
    for new in urls:
        shards.setdefault(engine.shard_of(new.host), []).append(new)
    return shards


async def fill_redis(engine: RedisEngine, web: Web, urls: int) -> None:
    """As many URLs as asked for, found a few at a time."""
    hosts = len(web.names)
    for start in range(0, urls, FILL_BATCH):
        groups = range(start // LINKS_NEW, min(start + FILL_BATCH, urls) // LINKS_NEW)
        found = [web.found(group % hosts, [web.new(group % hosts) for _ in range(LINKS_NEW)]) for group in groups]
        await engine.add_all(by_shard(engine, found), 0.0)


async def lease_redis(engine: RedisEngine, first_shard: int, now: float) -> list[Lease]:
    calls = [
        engine.lease(
            (first_shard + number) % engine.shard_count,
            NODE,
            f"{now}.{number}",
            now,
            until=now + 60,
            hosts_max=REDIS_HOSTS_PER_SHARD,
            urls_max=REDIS_HOSTS_PER_SHARD * REDIS_URLS_PER_HOST,
            urls_per_host=REDIS_URLS_PER_HOST,
        )
        for number in range(REDIS_SHARDS_LEASED)
    ]
    return [lease for leases in await asyncio.gather(*calls) for lease in leases]


async def crawl_redis(engine: RedisEngine, web: Web, pages: int, clocks: Clocks) -> int:
    """Crawl several batches at a time, stage by stage, so each stage can be timed by itself."""
    done, now, shard = 0, 1.0, 0
    while done < pages:
        clocks.start()
        batches = []
        for _ in range(REDIS_BATCHES_TOGETHER):
            now, shard = now + 1.0, shard + REDIS_SHARDS_LEASED
            batches.append(await lease_redis(engine, shard, now))
        clocks.stop("lease")
        hosts = [[lease.host for lease in leases for _ in lease.tasks] for leases in batches]
        found = [by_shard(engine, [link for host in names for link in web.links(host)]) for names in hosts]
        settled: list[dict[int, list[Settlement]]] = []
        for leases in batches:
            settled.append({})
            for lease in leases:
                settled[-1].setdefault(lease.shard, []).append(settlement(lease, now))
        clocks.start()
        for links in found:
            await engine.add_all(links, now)
        clocks.stop("add")
        clocks.start()
        for settlements in settled:
            await engine.settle_all(settlements, now)
        clocks.stop("settle")
        done += sum(map(len, hosts))
    return done


async def measure_redis(servers: list[RedisServer], case: Case, pages: int) -> str:
    engine = await open_redis(url_of(servers[0], namespace="bench"))
    web = Web(case.hosts)
    await fill_redis(engine, web, case.urls)
    size = sum(int(server.info("memory")["used_memory"]) for server in servers) / case.urls
    clocks = Clocks(servers)
    done = await crawl_redis(engine, web, pages, clocks)
    await engine.close()
    columns = [f"redis, {len(servers)} master{'s' * (len(servers) > 1)}  {size:4.0f} bytes/URL"]
    for name, seconds in (("client", clocks.client_s), ("Redis", clocks.redis_s)):
        stages = "  ".join(f"{stage} {spent / done * 1e6:.1f}" for stage, spent in seconds.items())
        columns.append(f"{name} {sum(seconds.values()) / done * 1e6:.1f} µs/page ({stages})")
    return "  ".join(columns)


def run_redis(masters: int, case: Case, pages: int, directory: str | None) -> None:
    with TemporaryDirectory(dir=directory) as folder, redis_cluster(Path(folder), masters=masters) as cluster:
        print(asyncio.run(measure_redis(cluster.servers, case, pages)), flush=True)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def measure(case: Case, path: str, pages: int = PAGES) -> Result:
    web = Web(case.hosts)
    before_mb = resident_mb()
    rocks = RocksEngine(path)
    engine = BlockingEngine(rocks)
    begin = time.process_time()
    fill(engine, web, case.urls)
    wait_until_at_rest(rocks)
    fill_s = time.process_time() - begin
    done, lease_s, settle_s, add_s = crawl(engine, web, pages, 1.0)
    engine_mb = resident_mb() - before_mb
    engine.close()
    begin = time.perf_counter()
    again = open_blocking(f"rocksdb:{path}")
    again.stats(0, 1e9)
    reopen_s = time.perf_counter() - begin
    again.close()
    lease_us, settle_us, add_us = (seconds / done * 1e6 for seconds in (lease_s, settle_s, add_s))
    return Result(done, lease_us, settle_us, add_us, fill_s / case.urls * 1e6, reopen_s, engine_mb)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--directory", help="where to keep the database (default: a temporary directory)")
    parser.add_argument("--redis", type=int, nargs="+", metavar="MASTERS", help="measure redis on so many masters")
    arguments = parser.parse_args()
    if arguments.redis:
        case = Case("redis", arguments.urls or REDIS_CASE_URLS, REDIS_CASE_HOSTS)
        for masters in arguments.redis:
            run_redis(masters, case, arguments.pages, arguments.directory)
        return
    cases = (Case("asked", arguments.urls, arguments.hosts),) if arguments.urls else CASES
    print("case      URLs      hosts   µs/page  (lease  settle    add)  µs/URL filled  reopen s  engine MB")
    for case in cases:
        with TemporaryDirectory(dir=arguments.directory) as directory:
            result = measure(case, str(Path(directory) / "engine"), arguments.pages)
        print(row(case, result), flush=True)


def row(case: Case, result: Result) -> str:
    parts = f"({result.lease_us:5.1f} {result.settle_us:7.1f} {result.add_us:6.1f})"
    sizes = f"{case.name:6} {case.urls:9,} {case.hosts:9,}"
    return (
        f"{sizes}  {result.page_us:8.1f}  {parts}  {result.fill_us:13.1f}  {result.reopen_s:8.2f}"
        f"  {result.resident_mb:9.0f}"
    )


if __name__ == "__main__":
    main()
