"""What a planner should know before renting all of a plan: sentences, none of which changes a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from drumlin.config.quantities import show_many, show_rate, show_size
from drumlin.plan.costs import MEASURED, Costs
from drumlin.plan.pace import Pace, Wish, node_pace

CORES_OF_ONE_MACHINE = 2
"""How many cores a machine had that was seen to crawl by itself at full speed."""
URLS_OF_ONE_MACHINE_MAX = 10e6
"""The most URLs that were in a queue on RocksDB when it was measured (`bench.moving`, `bench.screens`). It holds only
caches in memory, so more will do, but each look-up that misses them reads the disk, and nobody knows how slow that
makes a page. As many contents, with 220 bytes of memory for a sketch in use, still fit a common machine."""
PAGES_PER_S_OF_SLOW_NODES = 100.0
"""A slower node tells its pages by fives at most: it collects them for 20 ms and until it has the answer about the last
ones, which takes some 10 ms. With fives a page was measured to cost `TIMES_OF_COORDINATORS` and `TIMES_OF_ENGINE` as
much as with hundreds, for which the costs are."""
TIMES_OF_COORDINATORS, TIMES_OF_ENGINE = "five", "three"
SHARE_WORTH_A_NOTE = 0.5


def notes(wish: Wish, costs: Costs, pace: Pace, data: Mapping[str, float]) -> Iterator[str]:
    """The sentences that hold for this plan. `data` has the sizes of the parts of the engine's data."""
    if wish.pages is not None and wish.pages > wish.urls:
        yield _more_pages_than_urls(wish, wish.pages)
    if wish.nodes is None and pace.pages_per_s <= CORES_OF_ONE_MACHINE * node_pace(wish, costs).pages_per_s:
        yield _one_machine(wish)
    elif costs["coordinator_cpu"] == MEASURED["coordinator_cpu"]:
        yield from _slow_nodes(wish, costs, pace)
    contents, in_all = data.get("contents", 0.0), sum(data.values())
    if in_all > wish.master_bytes and contents > SHARE_WORTH_A_NOTE * in_all:
        yield (
            f"{contents / in_all:.0%} of the engine's data is there to find duplicates in all of the crawl: with "
            f"--contents off (`?contents=off` in the engine's address) {show_size(in_all - contents)} are left."
        )


def _more_pages_than_urls(wish: Wish, pages: float) -> str:
    return (
        f"{show_many(wish.urls, 'URL')} cannot give {show_many(pages, 'page')}, because a crawl takes one page from a "
        f"URL: give more --urls or fewer --pages."
    )


def _one_machine(wish: Wish) -> str:
    if wish.urls <= URLS_OF_ONE_MACHINE_MAX:
        return "One machine of two cores does this with `drumlin crawl`, without coordinators and without Redis."
    return (
        f"Two cores are enough for this pace, but the queue of `drumlin crawl` on one machine was measured with "
        f"{show_many(URLS_OF_ONE_MACHINE_MAX, 'URL')} at most, not with {show_many(wish.urls, 'URL')}."
    )


def _slow_nodes(wish: Wish, costs: Costs, pace: Pace) -> Iterator[str]:
    each = node_pace(wish, costs).pages_per_s
    if wish.nodes is not None:
        each = pace.pages_per_s / (wish.nodes * wish.availability)
    if each < PAGES_PER_S_OF_SLOW_NODES:
        yield (
            f"These nodes are slow: one that fetches {show_rate(each)} tells a few pages at a time, and so a page "
            f"costs coordinators up to {TIMES_OF_COORDINATORS} times and Redis up to {TIMES_OF_ENGINE} times the CPU "
            f"that is counted below. `bench.load` measures it with the --batch that they will have."
        )
