"""A crawl that one machine began is moved to a Redis Cluster and finished by a fleet: nothing is lost, nothing is
stored twice, and no host is hurried."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.crawls import Crawl, Web, benchmark_web, kill_process, wait_until
from tests.harness.fleet import check_every_page_stored_once, check_politeness, drumlin, needs_redis
from tests.harness.redis import RedisCluster, redis_cluster, url_of
from tests.harness.standing import standing

pytestmark = needs_redis

HOSTS = 12
PAGES = 15
DELAY_S = 0.25
STEP_S_MAX = 180.0
SHARE = 0.3


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with benchmark_web(tmp_path, HOSTS, PAGES, "--gap-s", str(DELAY_S)) as found:
        yield found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    with redis_cluster(tmp_path / "redis", "--appendonly", "yes") as found:
        yield found


def begin(web: Web, out: Path) -> Crawl:
    """A crawl on one machine, which has fetched some of the pages."""
    crawl = Crawl(out, "--delay", f"{DELAY_S}s", "--lease", "5s", "--nodes", "2", "-i", str(web.seeds))
    crawl.start()
    wait_until(lambda: web.accounts()["pages_distinct"] > SHARE * web.pages, STEP_S_MAX, "some of the pages")
    crawl.nodes()
    return crawl


def finish(web: Web, tmp_path: Path, out: Path, url: str, *, resumes: bool) -> dict[str, object]:
    """Let a fleet finish the crawl in the store that it has."""
    with standing(tmp_path, "--engine", url, "--store", str(out), "--finish", founds=False) as fleet:
        fleet.store = out
        if resumes:
            fleet.remote.post("/api/v1/crawl/resume", {})
        for name in ("f0", "f1"):
            fleet.node(name)
        fleet.wait_for_nodes(STEP_S_MAX)
        wait_until(lambda: bool(fleet.remote.get("/api/v1/crawl")["complete"]), STEP_S_MAX, "the store to be complete")
    figures = check_every_page_stored_once(web, out)
    figures["least gap"] = check_politeness(web, out, DELAY_S)
    return figures


def migrate(tmp_path: Path, out: Path, url: str) -> dict[str, int]:
    moved = drumlin(tmp_path, "frontier", "migrate", "--from", f"rocksdb:{out}", "--to", url, "--json")
    assert moved.returncode == 0, moved.stderr
    records: dict[str, int] = json.loads(moved.stdout)["records"]
    return records


def test_a_crawl_that_was_stopped_is_finished_by_a_fleet_and_every_page_asked_for_once(
    tmp_path: Path, web: Web, cluster: RedisCluster
) -> None:
    out, url = tmp_path / "out", url_of(cluster.servers[0], namespace="moved")
    crawl = begin(web, out)
    try:
        crawl.process.send_signal(signal.SIGINT)
        crawl.wait(STEP_S_MAX)
    finally:
        crawl.end()
    records = migrate(tmp_path, out, url)
    assert records["done"] >= SHARE * web.pages
    assert records["queued"] > 0
    again = drumlin(tmp_path, "crawl", "-i", str(web.seeds), "--out", str(out), "--allow-private")
    assert (again.returncode, f"was moved to {url}" in again.stderr) == (4, True), again.stderr
    figures = finish(web, tmp_path, out, url, resumes=True)
    print(figures)
    assert figures["asked again"] == 0


def test_a_crawl_that_was_killed_is_finished_by_a_fleet(tmp_path: Path, web: Web, cluster: RedisCluster) -> None:
    """Only what nodes had fetched in the last moments and not stored yet is asked for again, as after any kill."""
    out, url = tmp_path / "out", url_of(cluster.servers[0], namespace="moved")
    crawl = begin(web, out)
    try:
        # The coordinator first: what nodes have stored and not told is in their journals.
        crawl.process.kill()
        for node in crawl.nodes():
            kill_process(node)
    finally:
        crawl.end()
    migrate(tmp_path, out, url)
    figures = finish(web, tmp_path, out, url, resumes=False)
    print(figures)
    assert figures["asked again"] <= 2 * HOSTS  # type: ignore[operator]
