"""The final report of a crawl: the same figures as a table for people and as `report.json`."""

from __future__ import annotations

import heapq
from collections import Counter
from pathlib import Path

import msgspec

from drumlin.api.explaining.seed_fates import FruitlessSeed
from drumlin.api.explaining.why import out_of_reach
from drumlin.config.record import CrawlRecord
from drumlin.coordinator.patience import first_in_backoff
from drumlin.coordinator.totals import add_up
from drumlin.disk import write_whole
from drumlin.engines.base import Engine
from drumlin.model import GroupPlace

TOP_HOSTS = 10
OUT_OF_REACH_SHOWN = 10
REPORT_NAME = "report.json"
ELAPSED_KEY = "elapsed_s"
COMPLETE_KEY = "complete"
YES = b"yes"
"""The value of `COMPLETE_KEY` in the engine once the index and the report of an ended crawl are made."""


class TopHost(msgspec.Struct):
    host: str
    pages: int
    bytes: int


class Report(msgspec.Struct):
    """How a crawl ended and what it fetched."""

    state: str
    stop_reason: str
    interrupted: bool
    already_finished: bool
    pages: int
    urls: int
    urls_pending: int
    bytes: int
    duration_s: float
    pages_per_s: float
    statuses: dict[str, int]
    outcomes: dict[str, int]
    duplicates: dict[str, int]
    robots_denied: int
    retries: dict[str, int]
    dead_letters: dict[str, int]
    refused: dict[str, int]
    top_hosts: list[TopHost]
    out_of_reach: list[str] = []
    """Some of the hosts in back-off: why, and when they are tried next."""
    fruitless_seeds: list[FruitlessSeed] = []
    """Seeds that gave no page, among the first thousand."""
    crawl: CrawlRecord | None = None
    """What the crawl is of, and its runs."""

    def write(self, path: Path) -> None:
        write_whole(path, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


async def elapsed_before_s(engine: Engine) -> float:
    """How long the crawl has run, in all its runs."""
    saved = await engine.get_meta(ELAPSED_KEY)
    return float(saved) if saved else 0.0


async def make_report(engine: Engine, state: str, stop_reason: str, duration_s: float, now: float) -> Report:
    """Collect the figures. `now` is engine time, for when hosts in back-off are tried next."""
    totals = add_up(await engine.stats_all(0.0))
    duplicates = totals.group("duplicates.")
    hosts = [host for shard in range(engine.shard_count) for host in await engine.top_hosts(shard, TOP_HOSTS)]
    top = heapq.nlargest(TOP_HOSTS, hosts, key=lambda host: (host.pages, host.bytes))
    return Report(
        state=str(state),
        stop_reason=stop_reason,
        interrupted=False,
        already_finished=False,
        pages=totals.pages,
        urls=totals.known,
        urls_pending=totals.pending,
        bytes=totals.bytes,
        duration_s=round(duration_s, 3),
        pages_per_s=round(totals.pages / duration_s, 1) if duration_s else 0.0,
        statuses=totals.group("status."),
        outcomes=totals.group("outcome."),
        duplicates={"exact": duplicates.get("exact", 0), "near": duplicates.get("near", 0)},
        robots_denied=totals.counters.get("outcome.denied", 0),
        retries=totals.group("retried."),
        dead_letters=await _dead_letters(engine),
        refused=totals.group("refused."),
        top_hosts=[TopHost(host.host, host.pages, host.bytes) for host in top],
        out_of_reach=[out_of_reach(host, now) for host in await first_in_backoff(engine, now, OUT_OF_REACH_SHOWN)],
    )


async def _dead_letters(engine: Engine) -> dict[str, int]:
    """How many there are of each kind now. The counters may say more: a person may have retried or dropped some."""
    kinds: Counter[str] = Counter()
    after: GroupPlace | None = None
    while groups := await engine.dead_groups_all(after=after):
        after = groups[-1].place
        for group in groups:
            kinds[group.kind] += group.letters
    return dict(kinds.most_common())
