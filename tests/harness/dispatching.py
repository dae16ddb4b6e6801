"""A dispatcher on the memory engine, nodes that ask it for work, and their results."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.totals import Totals
from drumlin.engines import open_engine
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.model import Outcome
from drumlin.protocol import (
    Accepted,
    Assignment,
    CrawlState,
    Heartbeat,
    HeartbeatReply,
    HostReport,
    Known,
    KnownRequest,
    NodeRecord,
    Register,
    Result,
    Results,
    Work,
    WorkLease,
    WorkRequest,
)

HOSTS = [f"h{number}.test" for number in range(5)]
SEEDS = [f"http://{host}/" for host in HOSTS]


class Driven:
    """A dispatcher on an engine that never waits, so its coroutines can be run without an event loop."""

    def __init__(self, made: Dispatcher) -> None:
        self.made = made
        self.budget = made.budget

    @property
    def state(self) -> CrawlState:
        return self.made.state

    def seed(self, urls: list[str], now: float) -> int:
        return drive(self.made.seed(urls, now))

    def register(self, node: str, now: float, *, boot: int = 1, **more: Any) -> NodeRecord:
        message = Register(0.0, node, **({"instance": f"spool of {node}"} | more), boot=boot)
        return drive(self.made.register(message, now))

    def leave(self, node: str, now: float) -> None:
        drive(self.made.leave(node, now))

    def work(self, node: str, request: WorkRequest, now: float) -> Work:
        return drive(self.made.work(node, request, now))

    def results(self, results: Results, now: float, node: str | None = None) -> Accepted:
        return drive(self.made.take(node, results, now)).accepted

    def known(self, request: KnownRequest) -> Known:
        return drive(self.made.known(request))

    def heartbeat(self, node: str, beat: Heartbeat, now: float) -> HeartbeatReply:
        return drive(self.made.heartbeat(node, beat, now))

    def totals(self, now: float) -> Totals:
        return drive(self.made.totals(now))

    def tick(self, now: float) -> Totals:
        return drive(self.made.tick(now, now))


def dispatcher(seeds: list[str] = SEEDS, shards: int = 3, **config: Any) -> Driven:
    settings_of_crawl = CrawlConfig(**({"delay_s": 1.0, "backoff_base_s": 1.0, "lease_s": 10.0} | config))
    made = Driven(Dispatcher(MemoryEngine(shards), settings_of_crawl, seeds, chance=random.Random(1)))
    drive(made.made.open())
    made.seed(seeds, 0.0)
    return made


class Asker:
    """Numbers its requests, as a node does."""

    def __init__(self, made: Driven, node: str = "n0") -> None:
        self.made = made
        self.node = node
        self.requests = 0

    def work(
        self,
        now: float,
        hosts: int = 10,
        tasks: int = 100,
        renew: tuple[tuple[str, str], ...] = (),
        **more: Any,
    ) -> list[WorkLease]:
        self.requests += 1
        request = WorkRequest(tasks, max_hosts=hosts, request_id=f"{self.requests}", renew=list(renew), **more)
        return self.made.work(self.node, request, now).leases


def result(task: Assignment, outcome: Outcome = Outcome.FETCHED, **more: Any) -> Result:
    made = Result(
        task.assignment_id,
        task.url,
        0 if outcome is Outcome.DENIED else 200,
        sha256(task.url.encode()).hexdigest(),
        [],
        1.0,
        outcome,
        size=10 if outcome is Outcome.FETCHED else 0,
        record_id="r",
        redirect_chain=list(task.redirects),
    )
    for name, value in more.items():
        setattr(made, name, value)
    return made


def batch_of(results: list[Result], hosts: list[HostReport] | None = None) -> Results:
    return Results(results, hosts or [], canonical_links=True)


def release(lease: WorkLease, next_contact_s: float = 0.0, **more: Any) -> HostReport:
    return HostReport(lease.lease_id, lease.host, True, next_contact_s, **more)


def with_dispatchers(test: Callable[[Dispatcher, Dispatcher], Awaitable[None]]) -> None:
    """Run a test with two dispatchers on one engine."""

    async def run() -> None:
        engine = await open_engine("memory:", shard_count=2)
        config = CrawlConfig(delay_s=0.0)
        two = [Dispatcher(engine, config, [], chance=random.Random(1), name=name, ends=False) for name in "ab"]
        for one in two:
            await one.open()
        await test(*two)

    asyncio.run(run())
