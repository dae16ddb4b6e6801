"""Kill -9 twenty times during one crawl of 20,000 pages: nodes, the coordinator, all at once."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.crawls import Crawl, benchmark_web
from tests.harness.kills import NODES, check_nothing_lost, crawl_through_kills

KILLS = 20
SEED = 2
LATENCY_MS = 200
CRAWL_S_MAX = 600.0
TMPFS = Path("/dev/shm")


@pytest.fixture
def fast_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if there is room for the archive of about a gigabyte."""
    folder = Path(tempfile.mkdtemp(prefix="drumlin-crash-", dir=TMPFS if TMPFS.is_dir() else tmp_path))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_kills_lose_no_url_and_store_no_page_twice(fast_disk: Path) -> None:
    with benchmark_web(fast_disk, 200, 100, "--latency-ms", str(LATENCY_MS)) as web:
        crawl = Crawl(fast_disk / "crawl", "-i", str(web.seeds), "--nodes", str(NODES))
        try:
            story = crawl_through_kills(web, crawl, KILLS, random.Random(SEED))
            assert crawl.wait(CRAWL_S_MAX) == 0, crawl.errors
        finally:
            crawl.end()
        figures = check_nothing_lost(web, crawl, KILLS)
    assert crawl.report()["pages"] == 20_000
    print([f"{victim} at {pages}" for victim, pages in story], figures)
