"""µs of CPU per page that the rocksdb engine takes, with a small, a large and a broad frontier.

A page leases its share of a host's queue, settles one task, adds 5 new links and 5 known ones. CPU time is that of the
whole process, RocksDB's background threads included.

    python -m bench.engines                     50 thousand URLs, 5 million, and 1 million hosts
    python -m bench.engines --urls 200000 --hosts 800
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from drumlin.engines.blocking import BlockingEngine, open_blocking
from drumlin.engines.rocksdb import RocksEngine
from drumlin.model import Lease, NewURL, Settled, Settlement, TaskState

SEED = 1
NODE = "node"
FILL_BATCH = 1_000
HOSTS_PER_LEASE = 20
URLS_PER_HOST = 10
LINKS_NEW = 5
LINKS_KNOWN = 5
LINK_ELSEWHERE_SHARE = 0.1
# Enough for several compactions to fall within.
PAGES = 60_000
REST_POLL_S = 0.1
REST_POLLS_MAX = 3_000


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

    def url(self, host: int, path: int) -> NewURL:
        name = self.names[host]
        return NewURL(
            f"https://{name}/articles/2026/{path}/a-title-of-usual-length", name, 5, 1, f"https://{name}/articles/2026"
        )

    def new(self, host: int) -> NewURL:
        self.sizes[host] += 1
        return self.url(host, self.sizes[host] - 1)

    def links(self, name: str) -> Iterator[NewURL]:
        chance, hosts = self.chance, len(self.names)
        for _ in range(LINKS_NEW):
            elsewhere = chance.random() < LINK_ELSEWHERE_SHARE
            yield self.new(chance.randrange(hosts) if elsewhere else self.numbers[name])
        for _ in range(LINKS_KNOWN):
            elsewhere = chance.random() < LINK_ELSEWHERE_SHARE
            host = chance.randrange(hosts) if elsewhere else self.numbers[name]
            yield self.url(host, chance.randrange(max(self.sizes[host], 1)))


def fill(engine: BlockingEngine, web: Web, urls: int) -> None:
    hosts = len(web.names)
    for start in range(0, urls, FILL_BATCH):
        engine.add(0, [web.new(number % hosts) for number in range(start, min(start + FILL_BATCH, urls))], 0.0)


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
    """Let RocksDB sort out what was filled in within minutes: a crawl takes hours for it and pays as it goes."""
    for _ in range(REST_POLLS_MAX):
        if engine.at_rest():
            return
        time.sleep(REST_POLL_S)


def settlement(lease: Lease, now: float) -> Settlement:
    settled = [
        Settled(task.id, task.url, TaskState.DONE, b"capture:%08d" % task.id, size=37_000, counts={"pages": 1})
        for task in lease.tasks
    ]
    return Settlement(lease.host, lease.token, settled, release=True, next_contact=now + 1.0)


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
    arguments = parser.parse_args()
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
