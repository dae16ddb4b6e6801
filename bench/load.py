"""The load test: ten thousand simulated nodes on real coordinators and a real Redis, on one machine.

    python -m bench.load                                  8,000 pages/s for a minute, one Redis, two coordinators
    python -m bench.load --masters 3                      on a cluster of three masters
    python -m bench.load --find-max                       then more and more, until a target is missed
    python -m bench.load --auth --tls                     with tokens, signed results and TLS
    python -m bench.load --nodes 500 --rate 1000 --urls 100000 --measure 10      a quick look

When measuring begins, 15 % of the nodes die for good; another 15 % vanish and come back all the time. Latencies count
from when a call was due.
docs/explanation/capacity.md says what was measured with it and what that means.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import uvloop

from bench.load_fleet import Fleet
from bench.load_nodes import FleetSettings
from bench.load_report import Measured, Usage, holds, print_lost_work, print_measured, print_row, print_row_names
from bench.load_servers import (
    ADDRESS,
    REWRITE_NEVER,
    Redis,
    Server,
    cpu_s_of,
    machine_cpu_s,
    make_security,
    start_coordinator,
    stopping,
)
from bench.load_web import LoadWeb
from drumlin.engines import Engine, open_engine
from drumlin.fleet.cluster import free_ports
from drumlin.model import NewURLs

FILL_BATCH = 5_000
DEAD_SHARE = 0.15
STEP = 1.06
STEPS_MAX = 12
STEP_WARM_S = 8.0
COLLECT_AFTER = 100_000
"""How many new objects there are between two runs of the garbage collector. Its pauses in this process would look like
slow coordinators."""
OPEN_FILES = 20_000


class Filled(NamedTuple):
    urls: int
    bytes_per_url: float
    seconds: float


async def fill(engine: Engine, web: LoadWeb, urls: int, redis: Redis) -> Filled:
    """Queue about `urls` URLs, and measure how much memory they take."""
    before, began = redis.used_bytes(), time.monotonic()
    batch: list[NewURLs] = []
    count = waiting = 0
    for host, size in enumerate(web.initial_sizes(urls)):
        name = web.host_name(host)
        batch.append(NewURLs(name, [web.new_url(host) for _ in range(size)], 5, 1, f"https://{name}/"))
        count, waiting = count + size, waiting + size
        if waiting >= FILL_BATCH:
            await add(engine, batch)
            batch, waiting = [], 0
    await add(engine, batch)
    return Filled(count, (redis.used_bytes() - before) / max(1, count), time.monotonic() - began)


async def add(engine: Engine, batch: Sequence[NewURLs]) -> None:
    shards: dict[int, list[NewURLs]] = {}
    for new in batch:
        shards.setdefault(engine.shard_of(new.host), []).append(new)
    await engine.add_all(shards, time.time())


class LoadTest:
    """One fleet on one set of servers, measured at one pace after the other."""

    def __init__(self, fleet: Fleet, redis: Redis, coordinators: Sequence[Server]) -> None:
        self.fleet = fleet
        self.redis = redis
        self._coordinators = coordinators

    async def measure(self, pace: float, warm_s: float, measure_s: float, kill: int = 0) -> Measured:
        """Run at this pace, first unmeasured; `kill` nodes die as measuring begins."""
        fleet = self.fleet
        fleet.set_pace(pace)
        await asyncio.sleep(warm_s)
        fleet.record.restart()
        before, began = self._usage(), time.perf_counter()
        fleet.kill(fleet.nodes[:kill])
        await asyncio.sleep(measure_s)
        elapsed_s = time.perf_counter() - began
        fleet.count_unanswered()
        return Measured.of(pace, elapsed_s, fleet.record, before, self._usage())

    def _usage(self) -> Usage:
        return Usage(
            sum(server.cpu_s() for server in self._coordinators),
            self.redis.cpu_s(),
            cpu_s_of(os.getpid()),
            machine_cpu_s(),
            sum(server.resident_mb() for server in self._coordinators),
            self.redis.used_bytes() / 1e6,
        )


async def run(options: argparse.Namespace, folder: Path) -> list[Measured]:
    redis = Redis(folder, options.masters, options.aof_rewrite)
    with stopping(list(redis.servers)) as servers:
        ports = free_ports(options.coordinators)
        security = make_security(folder, redis.url, auth=options.auth, tls=options.tls)
        coordinators = []
        for number, port in enumerate(ports):
            founding = options.crawl_option if number == 0 else ()
            coordinators.append(start_coordinator(folder, redis.url, port, security, founding))
            servers.append(coordinators[-1])
        web = LoadWeb(options.hosts, options.seed, mixed=options.mixed)
        engine = await open_engine(redis.url)
        filled = await fill(engine, web, options.urls, redis)
        print(
            f"{filled.urls:,} URLs of {options.hosts:,} hosts queued in {filled.seconds:.0f} s:"
            f" {filled.bytes_per_url:.0f} bytes of Redis each",
            flush=True,
        )
        settings = settings_of(options, security.join_token)
        fleet = Fleet(settings, [(ADDRESS, port) for port in ports], web, security.client)
        measured = await drive(LoadTest(fleet, redis, coordinators), options, engine)
        fleet.end()
        await engine.close()
        await asyncio.sleep(0.5)
    return measured


async def count_held(engine: Engine, hosts: Sequence[str], dead: set[str]) -> int:
    """How many of these hosts are still leased to a dead node."""
    states = [await engine.host_state(engine.shard_of(host), host) for host in hosts]
    return sum(state is not None and state.node in dead for state in states)


async def drive(test: LoadTest, options: argparse.Namespace, engine: Engine) -> list[Measured]:
    fleet = test.fleet
    began = time.perf_counter()
    await fleet.register_all()
    registering = fleet.record.percentiles_ms("register")
    print(
        f"{fleet.registered:,} nodes registered in {time.perf_counter() - began:.0f} s,"
        f" p99 {registering[2] if registering else 0:.0f} ms",
        flush=True,
    )
    gc.freeze()
    dead = round(options.nodes * DEAD_SHARE)
    flapping = round(options.nodes * fleet.settings.flapping_share)
    fleet.flap(fleet.nodes[dead : dead + flapping])
    first = await test.measure(options.rate, options.warm, options.measure, dead)
    print_measured(first)
    print(f"Redis has forked {test.redis.forks()} times, standing still {test.redis.fork_ms_max():.0f} ms for the last")
    held = await count_held(engine, fleet.lost_work.missing, {node.name for node in fleet.nodes[:dead]})
    print_lost_work(fleet.lost_work, held)
    measured = [first]
    if options.find_max:
        measured += await find_max(test, options, first)
    return measured


async def find_max(test: LoadTest, options: argparse.Namespace, first: Measured) -> list[Measured]:
    """Raise the pace step by step until a target is missed; if the first pace missed one already, lower it."""
    measured: list[Measured] = []
    raising = holds(first)
    pace = float(options.rate) * (STEP if raising else 1 / STEP)
    print_row_names()
    for _ in range(STEPS_MAX):
        measured.append(await test.measure(pace, STEP_WARM_S, options.step))
        print_row(measured[-1])
        if holds(measured[-1]) is not raising:
            break
        pace *= STEP if raising else 1 / STEP
    held = [one.pages_per_s for one in (first, *measured) if holds(one)]
    print(f"highest load that held the targets: {max(held, default=0):,.0f} pages/s", flush=True)
    return measured


def settings_of(options: argparse.Namespace, join_token: str = "") -> FleetSettings:
    return FleetSettings(
        nodes=options.nodes,
        batch_pages=options.batch,
        fetch_s=options.fetch,
        asks_known=not options.no_known,
        join_token=join_token,
        seed=options.seed,
    )


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=8_000.0, help="pages a second")
    parser.add_argument("--batch", type=int, default=100, help="pages that a node asks for in one turn")
    parser.add_argument("--fetch", type=float, default=15.0, help="seconds from a node's work request to its results")
    parser.add_argument("--masters", type=int, default=1, help="1 is a single Redis, 3 and more a cluster")
    parser.add_argument("--coordinators", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=60_000)
    parser.add_argument("--urls", type=int, default=2_000_000, help="URLs queued before the load begins")
    parser.add_argument("--warm", type=float, default=25.0, help="seconds at full pace before measuring")
    parser.add_argument("--measure", type=float, default=60.0, help="seconds measured")
    parser.add_argument("--step", type=float, default=20.0, help="seconds measured at each step of --find-max")
    parser.add_argument("--find-max", action="store_true")
    parser.add_argument("--mixed", action="store_true", help="URLs end as on the real web, not all as pages")
    parser.add_argument("--no-known", action="store_true", help="nodes do not ask which contents are known")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--auth", action="store_true", help="nodes have tokens and sign their results")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--aof-rewrite", default=REWRITE_NEVER, help="when a single Redis rewrites its file, as 64mb")
    parser.add_argument("--crawl-option", action="append", default=["--scope=any"], help="for the first coordinator")
    parser.add_argument("--directory", help="where the servers keep their files (default: a temporary directory)")
    parser.add_argument("--json", help="file to write every figure to")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse_options()
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    gc.set_threshold(COLLECT_AFTER, 50, 1000)
    with TemporaryDirectory(dir=options.directory) as folder:
        measured = uvloop.run(run(options, Path(folder)))
    if options.json:
        Path(options.json).write_bytes(msgspec.json.format(msgspec.json.encode(measured)))


if __name__ == "__main__":
    main()
