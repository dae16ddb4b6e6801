"""A fleet under load while its Redis Cluster grows from three masters to six: nothing is lost or hurried."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.crawls import benchmark_web, wait_until
from tests.harness.fleet import check_every_page_stored_once, check_politeness, needs_redis
from tests.harness.redis import RedisCluster, RedisServer, redis_cluster, url_of
from tests.harness.standing import Standing, standing

needs_cli = pytest.mark.skipif(shutil.which("redis-cli") is None, reason="needs redis-cli: apt-get install redis-tools")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), needs_redis, needs_cli]

HOSTS = 60
PAGES = 60
DELAY_S = 1.5
CRAWL_S_MAX = 600.0
RESHARD_S_MAX = 300.0
MASTERS_MORE = 3


def grow(cluster: RedisCluster, folder: Path) -> None:
    """Let further masters join, and share out the slots evenly, as an operator would."""
    for number in range(MASTERS_MORE):
        server = RedisServer(folder / f"more-{number}", "--appendonly", "yes", clustered=True)
        cluster.servers.append(server)
        server.start()
        cluster.meet(server)
    place = f"127.0.0.1:{cluster.servers[0].port}"
    wait_until(lambda: all(_knows(one, len(cluster.servers)) for one in cluster.servers), RESHARD_S_MAX, "meeting")
    wait_until(lambda: _ask("check", place).returncode == 0, RESHARD_S_MAX, "agreement about who has which slots")
    done = _ask("rebalance", place, "--cluster-use-empty-masters", "--cluster-yes")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def _ask(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["redis-cli", "--cluster", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=RESHARD_S_MAX, check=False)


def _knows(server: RedisServer, count: int) -> bool:
    info = server.cluster_info()
    return (info.get("cluster_known_nodes"), info.get("cluster_state")) == (str(count), "ok")


def slots_of(cluster: RedisCluster) -> list[int]:
    """How many slots each master has."""
    lines = cluster.servers[0].command("CLUSTER", "NODES").decode().splitlines()
    return [sum(map(_length, line.split()[8:])) for line in lines if "master" in line.split()[2]]


def _length(part: str) -> int:
    first, _, last = part.partition("-")
    return int(last or first) - int(first) + 1


def pages(crawl: Standing) -> int:
    return int(crawl.remote.get("/api/v1/crawl")["budgets"]["pages"])


def test_a_cluster_that_grows_from_three_masters_to_six_under_load_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    store = tmp_path / "store"
    with (
        benchmark_web(tmp_path, HOSTS, PAGES, "--gap-s", str(DELAY_S)) as web,
        redis_cluster(tmp_path / "redis", "--appendonly", "yes") as cluster,
    ):
        shared = ("--engine", url_of(cluster.servers[0], namespace="grows"), "--store", str(store))
        seeds = ("-i", str(web.seeds), "--delay", f"{DELAY_S}s", "--lease", "10s")
        with standing(tmp_path, *shared, *seeds) as first, standing(tmp_path / "b", *shared, founds=False) as second:
            for name in ("n0", "n1", "n2"):
                first.node(name, endpoints=(first.endpoint, second.endpoint))
            wait_until(lambda: web.accounts()["pages_distinct"] > 0.1 * web.pages, CRAWL_S_MAX, "some of the pages")
            before = pages(first)
            grow(cluster, tmp_path / "redis")
            during = pages(first) - before
            assert web.accounts()["pages_distinct"] < web.pages, "the crawl was over before the slots had moved"
            assert len(slots_of(cluster)) == 6
            assert min(slots_of(cluster)) > 2_700, "all masters have about the same share"
            first.wait_for_nodes(CRAWL_S_MAX)
            wait_until(lambda: bool(second.remote.get("/api/v1/crawl")["complete"]), CRAWL_S_MAX, "the store")
        figures = check_every_page_stored_once(web, store)
        figures["least gap"] = check_politeness(web, store, DELAY_S)
        print(f"{during} pages while slots moved", figures)
