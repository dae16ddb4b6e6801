"""A few kills of a small crawl; tests/slow/test_crash.py has the large one."""

from __future__ import annotations

import random
from pathlib import Path

from tests.harness.crawls import Crawl, benchmark_web
from tests.harness.kills import NODES, check_nothing_lost, crawl_through_kills

KILLS = 3
CRAWL_S_MAX = 120.0


def test_a_small_crawl_killed_three_times_stores_every_page_once(tmp_path: Path) -> None:
    with benchmark_web(tmp_path, 20, 20, "--latency-ms", "100") as web:
        crawl = Crawl(tmp_path / "crawl", "-i", str(web.seeds), "--nodes", str(NODES))
        try:
            crawl_through_kills(web, crawl, KILLS, random.Random(7))
            assert crawl.wait(CRAWL_S_MAX) == 0, crawl.errors
        finally:
            crawl.end()
        figures = check_nothing_lost(web, crawl, KILLS)
    assert crawl.report()["pages"] == 400
    print(figures)
