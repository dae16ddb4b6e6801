"""Fills a frontier with many URLs before a crawl begins, to compare the cost of a page with that of a small frontier.

The URLs belong to the hosts that are crawled and have the lowest priority. They are in the same queues as the pages
that are found, and only some are fetched (and answered with 404), when a host has nothing else in its queue.
"""

from __future__ import annotations

import time
from pathlib import Path

from drumlin.engines.blocking import open_blocking
from drumlin.local.crawl import SHARD_COUNT
from drumlin.model import PRIORITY_MIN, NewURLs
from drumlin.urls import host_of

BATCH = 5_000


def fill(frontier: Path, seeds: list[str], urls: int) -> None:
    """Found a frontier with `urls` URLs, spread over the hosts of the seeds."""
    frontier.parent.mkdir(parents=True, exist_ok=True)
    engine = open_blocking(f"rocksdb:{frontier}", shard_count=SHARD_COUNT)
    for seed in seeds:
        host = host_of(seed)
        shard = engine.shard_of(host)
        for start in range(0, urls // len(seeds), BATCH):
            numbers = range(start, min(start + BATCH, urls // len(seeds)))
            found = NewURLs(host, [f"{seed}archive/{n:x}/{n}.html" for n in numbers], PRIORITY_MIN)
            engine.add(shard, [found], time.time())
    engine.close()
