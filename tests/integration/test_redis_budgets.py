"""A host's budget holds while coordinators that know nothing of each other ask a real Redis at the same moments."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.engines.redis.engine import open_redis
from drumlin.model import NewURLs
from drumlin.protocol import HostReport, Result, Results, WorkRequest
from tests.harness.redis import redis_server, url_of

NOW = 1_000_000.0
HOST = "a.example"
COORDINATORS = 4
BUDGET = 57  # not a multiple of what a request takes, so the last lease must be smaller
TURNS = 400
"""Many more than it takes: each coordinator looks at the host four times a second of the nodes' time."""


async def work_on(made: Dispatcher, node: str) -> int:
    """Fetch whatever is given out, one small request after the other. Returns the number of pages."""
    pages = 0
    for turn in range(TURNS):
        now = NOW + turn / 10
        for lease in (await made.work(node, WorkRequest(4), now)).leases:
            results = [
                Result(one.assignment_id, one.url, 200, "", [], now, "fetched", size=1, capture_id=one.assignment_id)
                for one in lease.assignments
            ]
            release = HostReport(lease.lease_id, lease.host, release=True)
            pages += (await made.take(node, Results(results, [release]), now)).accepted.accepted_count
    return pages


def test_coordinators_that_ask_at_the_same_moments_give_out_no_page_too_many(tmp_path: Path) -> None:
    async def check(url: str) -> None:
        engines = [await open_redis(url, shard_count=2) for _ in range(COORDINATORS)]
        made = [
            Dispatcher(engine, CrawlConfig(delay_s=0.0), [], chance=random.Random(1), name=f"c{n}", ends=False)
            for n, engine in enumerate(engines)
        ]
        await made[0].enqueue([NewURLs(HOST, [f"http://{HOST}/{n}" for n in range(200)])], NOW)
        await made[0].orders.limit(HOST, BUDGET)
        for one in made:
            await one.orders.refresh()
        pages = await asyncio.gather(*(work_on(one, f"n{n}") for n, one in enumerate(made)))
        assert sum(pages) == BUDGET
        assert sum(count > 0 for count in pages) > 1, "one coordinator did it all, so that nothing was put to the test"
        for engine in engines:
            await engine.close()

    with redis_server(tmp_path) as server:
        asyncio.run(check(url_of(server, namespace="n")))
