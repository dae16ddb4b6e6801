"""One node's disk never comes back, in a fleet of real processes on a Redis: what was settled and never arrived is
found, fetched again, and in the tables once."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.crawls import Web, benchmark_web, wait_until
from tests.harness.outputs import check_index_matches_tables, check_rows_lead_to_records, check_warcs, query
from tests.harness.redis import RedisServer, redis_server
from tests.harness.s3 import BUCKET, downloaded, s3_server
from tests.harness.standing import Standing, standing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HOSTS, PAGES_EACH = 10, 40
LOST_AFTER = "60s"
STALL_S_MAX = 240.0


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis") as running:
        yield running


def flags(web: Web, redis: RedisServer) -> tuple[str, ...]:
    engine = f"redis://127.0.0.1:{redis.port}/lost"
    return ("-i", str(web.seeds), "--engine", engine, "--delay", "500ms", "--lease", "5s", "--lost-after", LOST_AFTER)


NO_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_ENDPOINT_URL": ""}


def lose_a_disk(crawl: Standing, web: Web, spool: Path) -> int:
    """Kill a node that has settled pages of which no bundle has arrived, and remove its disk. Returns how many pages
    are settled."""
    node = crawl.node("lost", "--spool", str(spool), store=False, environment=NO_CREDENTIALS)
    wait_until(lambda: crawl.remote.get("/api/v1/stats")["pages"] >= web.pages // 4, STALL_S_MAX, "a quarter settled")
    assert list(spool.glob("nodes/lost/*.journal"))
    assert not list(spool.glob("nodes/lost/*.tar")), "a bundle was made too early for this test"
    node.kill()
    node.wait()
    shutil.rmtree(spool)
    settled: int = crawl.remote.get("/api/v1/stats")["pages"]
    return settled


def run(crawl: Standing, web: Web, folder: Path, tables: Callable[[], Path]) -> None:
    settled = lose_a_disk(crawl, web, folder / "lost")
    crawl.node("other", "--spool", str(folder / "other"), store=False, environment=NO_CREDENTIALS)
    # It has fetched the rest, and does not leave: somebody has to fetch what is lost.
    wait_until(lambda: web.accounts()["pages_distinct"] == web.pages, STALL_S_MAX, "the rest")
    wait_until(
        lambda: re.search(r"bundles? of nodes that are gone \(lost\)", _why(crawl)) is not None,
        STALL_S_MAX,
        "why names it",
        0.5,
    )
    crawl.wait_for_nodes(STALL_S_MAX)
    wait_until(lambda: crawl.remote.get("/api/v1/crawl")["complete"], STALL_S_MAX, "the store to be complete")
    assert "never arrived" in crawl.log("coordinator")
    store = tables()
    assert query(store, "SELECT count(*), count(DISTINCT url) FROM {pages}") == [(web.pages, web.pages)]
    assert query(store, "SELECT DISTINCT node FROM {pages}") == [("other",)]
    assert check_rows_lead_to_records(store) == web.pages
    check_index_matches_tables(store)
    check_warcs(store)
    assert web.accounts()["doubles"] >= settled
    print("settled and lost:", settled, "asked for again:", web.accounts()["doubles"])


def _why(crawl: Standing) -> str:
    return " ".join(one["message"] for one in crawl.remote.get("/api/v1/why-idle")["reasons"])


def test_a_lost_disk_of_a_node_without_credentials_loses_no_page_of_a_bucket(
    redis: RedisServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(s3_server(tmp_path / "s3"))
        web = stack.enter_context(benchmark_web(tmp_path, HOSTS, PAGES_EACH))
        where = ("--store", f"s3://{BUCKET}/lost", "--spool", str(tmp_path / "coordinator"))
        crawl = stack.enter_context(standing(tmp_path, *flags(web, redis), *where, environment=server.environment))
        run(crawl, web, tmp_path, lambda: downloaded(server.store("lost"), tmp_path / "copy"))
        assert list(server.bucket("lost").listed("incoming")) == []


def test_a_lost_disk_of_a_node_behind_a_coordinator_loses_no_page_of_a_directory(
    redis: RedisServer, tmp_path: Path
) -> None:
    with benchmark_web(tmp_path, HOSTS, PAGES_EACH) as web, standing(tmp_path, *flags(web, redis)) as crawl:
        run(crawl, web, tmp_path, lambda: crawl.store)
