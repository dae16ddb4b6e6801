"""Coordinators that die behind a load balancer: no node exits, and every page is stored once.

`tests/slow/test_balanced_slow.py` does the same for longer, and loses replies.
"""

from __future__ import annotations

from pathlib import Path

from tests.harness.balanced import Balanced, balanced, joined, kill_each, wait_for_progress
from tests.harness.crawls import Web, benchmark_web
from tests.harness.fleet import check_every_page_stored_once, check_politeness

HOSTS = 20
DELAY_S = 0.2
POLITE = ("--delay", str(DELAY_S))
CRAWL_S_MAX = 240.0
NODES = 2


def check_nothing_lost_nor_doubled(crawl: Balanced, web: Web, in_flight: int) -> None:
    """`in_flight` is how many requests may have been under way when something was killed, and were repeated."""
    crawl.wait_for_nodes(CRAWL_S_MAX)
    figures = check_every_page_stored_once(web, crawl.store)
    assert figures["asked again"] <= in_flight, figures
    check_politeness(web, crawl.store, DELAY_S)


def test_each_coordinator_is_killed_in_turn_and_no_node_with_it(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, 150, "--gap-s", str(DELAY_S)) as web,
        balanced(tmp_path, "-i", str(web.seeds), *POLITE) as crawl,
    ):
        for number in range(NODES):
            crawl.node(f"node-{number}")
        wait_for_progress(crawl, web, HOSTS)
        assert kill_each(crawl, web, rounds=2) > len(crawl.ports), "some that were started again"
        assert [joined(crawl, f"node-{number}") for number in range(NODES)] == [1] * NODES
        check_nothing_lost_nor_doubled(crawl, web, in_flight=0)
