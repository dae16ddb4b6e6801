"""A frontier of many URLs to begin a crawl with, so that its cost can be compared with that of a small one.

The URLs belong to the hosts that are crawled and have the lowest priority: they lie in the same queues as the pages
that are found, and only some are reached (and answered with 404), while a host has nothing else to offer.
"""

from __future__ import annotations

import time
from pathlib import Path

from drumlin.engines.blocking import open_blocking
from drumlin.local import SHARD_COUNT
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
