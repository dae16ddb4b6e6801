"""Real sites: drumlin fetches the same pages of two large manuals as Scrapy does with the same scope."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from drumlin.urls import canonical
from tests.harness.crawls import ROOT, Crawl, dead_letters
from tests.harness.manuals import manuals
from tests.harness.outputs import check_no_leftovers, check_warcs, query

SCRAPY_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
SPIDER = ROOT / "tests" / "slow" / "manual_spider.py"
CRAWL_S_MAX = 900.0
PAGES_MIN = 1_500

Pages = set[tuple[str, int]]


def pages_of_scrapy(seeds: tuple[str, str]) -> Pages:
    """Canonical URL and status of each page that Scrapy fetched."""
    command = [str(SCRAPY_PYTHON), str(SPIDER), *seeds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CRAWL_S_MAX, check=False)
    assert done.returncode == 0, done.stderr
    pages = set()
    for line in done.stdout.splitlines():
        url, status = json.loads(line)
        pages.add((canonical(url) or url, status))
    return pages


@pytest.mark.slow
@pytest.mark.timeout(2 * CRAWL_S_MAX)
def test_drumlin_fetches_the_same_pages_of_real_manuals_as_scrapy(tmp_path: Path) -> None:
    if not SCRAPY_PYTHON.exists():
        pytest.skip("Scrapy is not installed: make .venv-bench/.ready")
    with manuals(tmp_path) as seeds:
        crawl = Crawl(tmp_path / "crawl", *seeds)
        started = time.monotonic()
        report = crawl.run(CRAWL_S_MAX)
        between = time.monotonic()
        theirs = pages_of_scrapy(seeds)
        print(f"drumlin {between - started:.1f} s, Scrapy {time.monotonic() - between:.1f} s, {len(theirs)} pages")
    rows = query(crawl.out, "SELECT url, fetch_status FROM {pages}")
    ours: Pages = {(url, status) for url, status in rows}
    assert sorted(ours - theirs) == []
    assert sorted(theirs - ours) == []
    assert len(rows) == len(ours) == report["pages"]
    assert len(ours) > PAGES_MIN
    assert dead_letters(crawl.out) == []
    check_no_leftovers(crawl.out)
    check_warcs(crawl.out)
