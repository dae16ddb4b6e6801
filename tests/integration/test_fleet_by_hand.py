"""Coordinators and nodes started by hand end with the files of `drumlin crawl` and `drumlin fleet up`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drumlin.testing import FakeWeb
from tests.harness.crawls import wait_until
from tests.harness.cutting import CuttingProxy
from tests.harness.fleet import drumlin, needs_redis
from tests.harness.outputs import check_index_matches_tables, check_no_leftovers
from tests.harness.redis import redis_server, url_of
from tests.harness.standing import Standing, standing

STEP_S_MAX = 120.0
SHORT = ("--delay", "0", "--lease", "5s")
PAGES = 30
SILENT_S = 10.0
"""A node that is silent for so long counts as failed."""


def shop(web: FakeWeb) -> str:
    links = "".join(f'<a href="/{number}.html">{number}</a> ' for number in range(PAGES - 1))
    for number in range(PAGES - 1):
        web.page("shop", f"/{number}.html", f"<!DOCTYPE html><title>{number}</title>")
    return web.page("shop", "/", f"<!DOCTYPE html><title>Shop</title>{links}")


def ended(crawl: Standing) -> bool:
    return bool(crawl.remote.get("/api/v1/crawl")["state"] == "finished")


def complete(crawl: Standing) -> bool:
    return bool(crawl.remote.get("/api/v1/crawl")["complete"])


def seen(crawl: Standing) -> float:
    """When the only node was last seen."""
    [node] = crawl.remote.get("/api/v1/nodes")["nodes"]
    return float(node["last_seen"])


def wait_until_complete(crawl: Standing) -> dict[str, Any]:
    """Wait until the store has its index and its report. Returns the report."""
    wait_until(lambda: complete(crawl), STEP_S_MAX, "the store to be complete")
    report: dict[str, Any] = json.loads((crawl.store / "report.json").read_text())
    return report


def check_complete(crawl: Standing, pages: int) -> None:
    report = wait_until_complete(crawl)
    assert (report["pages"], report["state"]) == (pages, "finished")
    index = (crawl.store / "warc" / "index.cdxj").read_text().splitlines()
    assert len([line for line in index if "/robots.txt" not in line]) == pages
    check_index_matches_tables(crawl.store)
    check_no_leftovers(crawl.store)


def test_the_leader_merges_the_index_and_writes_the_report_when_the_nodes_have_left(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web, standing(tmp_path, shop(web), *SHORT) as crawl:
        assert not crawl.remote.get("/api/v1/crawl")["complete"]
        nodes = [crawl.node("n0"), crawl.node("n1", "--spool", str(tmp_path / "spool"), store=False)]
        crawl.wait_for_nodes(STEP_S_MAX)
        assert len(nodes) == 2
        check_complete(crawl, PAGES)
        # More work comes after the end: the store is complete again when that is done.
        more = web.page("more", "/", "<!DOCTYPE html><title>More</title>")
        crawl.remote.post("/api/v1/urls", {"urls": [more]})
        crawl.remote.post("/api/v1/crawl/resume", {})
        wait_until(lambda: not crawl.remote.get("/api/v1/crawl")["complete"], STEP_S_MAX, "the crawl to go on")
        crawl.node("n0")
        crawl.wait_for_nodes(STEP_S_MAX)
        check_complete(crawl, PAGES + 1)


def test_the_store_is_not_complete_while_a_node_sends_its_last_bundle(tmp_path: Path) -> None:
    with (
        FakeWeb(hosts=0) as web,
        standing(tmp_path, shop(web), *SHORT) as crawl,
        CuttingProxy(crawl.port) as line,
    ):
        line.hold(b"PUT ")
        far = ("--spool", str(tmp_path / "spool"))
        crawl.node("far", *far, endpoints=(f"http://127.0.0.1:{line.port}",), store=False)
        wait_until(lambda: line.holds > 0, STEP_S_MAX, "the bundle")
        wait_until(lambda: ended(crawl), STEP_S_MAX, "the end of the crawl")
        begun = seen(crawl)
        wait_until(lambda: seen(crawl) > begun + SILENT_S or complete(crawl), STEP_S_MAX, "heartbeats, or a wrong word")
        assert not complete(crawl)
        line.let_go()
        crawl.wait_for_nodes(STEP_S_MAX)
        check_complete(crawl, PAGES)


@needs_redis
@pytest.mark.parametrize("doomed", [0, 1])
def test_whichever_coordinator_is_killed_another_with_the_store_finishes_it(tmp_path: Path, doomed: int) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    store = tmp_path / "store"
    with FakeWeb(hosts=0) as web, redis_server(tmp_path / "redis") as redis:
        shared = ("--engine", url_of(redis, namespace="hand"), "--store", str(store), *SHORT)
        with (
            standing(tmp_path / "a", shop(web), *shared) as first,
            standing(tmp_path / "b", shop(web), *shared) as second,
        ):
            coordinators = [first, second]
            endpoints = (first.endpoint, second.endpoint)
            node = ("--store", str(store))
            first.node("n0", *node, endpoints=endpoints, store=False)
            first.wait_for_nodes(STEP_S_MAX)
            coordinators[doomed].kill()
            left = coordinators[1 - doomed]
            left.store = store
            check_complete(left, PAGES)


@needs_redis
def test_the_crawl_ends_also_when_the_one_that_was_told_to_finish_it_is_gone(tmp_path: Path) -> None:
    """The others are started without any options, and one of them leads."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with FakeWeb(hosts=0) as web, redis_server(tmp_path / "redis") as redis:
        shared = ("--engine", url_of(redis, namespace="hand"), "--store", str(tmp_path / "store"))
        with (
            standing(tmp_path / "a", shop(web), *shared, *SHORT) as first,
            standing(tmp_path / "b", *shared, founds=False) as second,
        ):
            first.kill()
            second.store = tmp_path / "store"
            second.node("n0")
            second.wait_for_nodes(STEP_S_MAX)
            check_complete(second, PAGES)


def test_a_store_whose_coordinators_are_gone_is_finished_by_a_command(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web, standing(tmp_path, shop(web), *SHORT) as crawl:
        crawl.node("n0")
        crawl.wait_for_nodes(STEP_S_MAX)
        wait_until_complete(crawl)
        crawl.kill()
        expected = (crawl.store / "warc" / "index.cdxj").read_bytes()
        for name in ("warc/index.cdxj", "report.json"):
            (crawl.store / name).unlink()
        command = ("store", "finish", str(crawl.store))
        without = drumlin(tmp_path, *command)
        assert (without.returncode, "Give the crawl's --engine" in without.stderr) == (2, True), without.stderr
        done = drumlin(tmp_path, *command, "--engine", f"rocksdb:{tmp_path / 'frontier'}")
        assert done.returncode == 0, done.stderr
        assert (crawl.store / "warc" / "index.cdxj").read_bytes() == expected
        report = json.loads((crawl.store / "report.json").read_text())
        assert (report["pages"], report["state"]) == (PAGES, "finished")
        assert drumlin(tmp_path, *command).returncode == 0
        (crawl.store / "nodes" / "n0" / "n0-1-00001.journal").touch()
        waits = drumlin(tmp_path, *command)
        assert waits.returncode != 0
        assert "Nodes that died left results" in waits.stderr
        assert waits.stderr.count("\n") == 1
