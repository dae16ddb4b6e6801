"""A few kills of a small crawl; tests/slow/test_crash.py has the large one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import drumlin.local.crawl
from drumlin.api.explaining.report import Report
from drumlin.config import CrawlConfig, ProcessConfig
from drumlin.config.record import CrawlRecord
from drumlin.errors import StorageError
from drumlin.local.crawl import LocalCrawl
from drumlin.testing import FakeWeb
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


def run_here(out: Path, seed: str) -> Report:
    process = ProcessConfig(out=str(out), nodes=1, concurrency=10)
    config = CrawlConfig(delay_s=0.0, allow_private=True)
    return LocalCrawl(process, config, [seed], on_progress=lambda totals, crawl: None).run()


def test_a_crawl_killed_before_its_index_was_merged_merges_it_when_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(folder: Path) -> None:
        raise SystemExit(9)

    with FakeWeb(hosts=0) as web:
        seed = web.page("shop", "/", "<!DOCTYPE html><title>Shop</title>")
        with monkeypatch.context() as patched:
            patched.setattr(drumlin.local.crawl, "merge", die)
            with pytest.raises(SystemExit):
                run_here(tmp_path / "crawl", seed)
        assert not run_here(tmp_path / "crawl", seed).already_finished
        assert run_here(tmp_path / "crawl", seed).already_finished
    index = (tmp_path / "crawl" / "warc" / "index.cdxj").read_text()
    assert index.count("\n") == 2, "the page and its host's robots.txt"


def test_a_run_that_could_not_go_on_is_noted_as_such_and_not_as_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(crawl: LocalCrawl, traces: object) -> None:
        raise StorageError("The disk is full.")

    monkeypatch.setattr(LocalCrawl, "_crawl", fail)
    with pytest.raises(StorageError):
        run_here(tmp_path / "crawl", "http://127.0.0.1:1/")
    record = CrawlRecord.read(tmp_path / "crawl")
    assert record is not None
    assert [run.reason for run in record.runs] == ["failed: The disk is full."]
