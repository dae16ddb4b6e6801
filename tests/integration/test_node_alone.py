"""A node by itself: without a store, and with pages that kill it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drumlin.errors import EXIT_ENGINE
from drumlin.node.keeping.archive import BUNDLE_LIMITS
from drumlin.node.main import ABORT_HOOK
from drumlin.testing import FakeWeb
from tests.harness.coordinators import RemoteNode, RunningCoordinator
from tests.harness.crawls import benchmark_web, wait_until
from tests.harness.fleet import check_every_page_stored_once
from tests.harness.outputs import check_no_leftovers, stored_urls
from tests.harness.standing import standing

HOSTS = 20
PAGES = 120
CRAWL_S_MAX = 240.0
STEP_S_MAX = 120.0
KILLS_MAX = 3
SHORT = ("--delay", "0", "--lease", "5s")


def left_in(spool: Path) -> list[str]:
    """Files of captures, rows and bundles, which should all have gone to the store."""
    kept = {"lock", "instance", "parsing"}
    return [str(path.relative_to(spool)) for path in spool.rglob("*") if path.is_file() and path.name not in kept]


@pytest.mark.parametrize("kills", [0, 3])
def test_a_node_without_a_store_sends_its_captures_through_a_coordinator(tmp_path: Path, kills: int) -> None:
    spool = tmp_path / "spool"
    with (
        benchmark_web(tmp_path, HOSTS, PAGES, "--latency-ms", "40") as web,
        standing(tmp_path, "-i", str(web.seeds), *SHORT) as crawl,
    ):
        for kill in range(kills):
            node = crawl.node("far", "--spool", str(spool), "--concurrency", "64", store=False)
            share = (kill + 1) * web.pages // (kills + 1)
            wait_until(lambda share=share: web.accounts()["pages_distinct"] >= share, STEP_S_MAX, f"{share} pages")  # type: ignore[misc]
            node.kill()
            node.wait()
        crawl.node("far", "--spool", str(spool), "--concurrency", "64", store=False)
        crawl.wait_for_nodes(CRAWL_S_MAX)
        check_every_page_stored_once(web, crawl.store)
        assert len(list((crawl.store / "tables" / "pages").iterdir())) >= web.pages / BUNDLE_LIMITS.pages
        assert left_in(spool) == []


def test_a_page_that_kills_a_node_again_and_again_is_a_dead_letter_and_costs_nothing_else(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web:
        good = {web.page("shop", f"/{number}.html", f"<!DOCTYPE html><title>{number}</title>") for number in range(40)}
        links = "".join(f'<a href="/{number}.html">{number}</a> ' for number in range(40))
        good.add(web.page("shop", "/", f'<!DOCTYPE html><title>Shop</title>{links}<a href="/poison.html">poison</a>'))
        poison = web.page("shop", "/poison.html", "<!DOCTYPE html><title>Poison</title>")
        with standing(tmp_path, web.url("shop", "/"), *SHORT, "--backoff-base", "0.1s") as crawl:
            starts = 0
            code = -1
            while code != 0 and starts < 10:
                code = crawl.node("n0", environment={ABORT_HOOK: "/poison.html"}).wait(CRAWL_S_MAX)
                starts += 1
            assert (code, starts) == (0, KILLS_MAX + 1), crawl.log("n0")
            letters = crawl.remote.get("/api/v1/dead-letters")
        assert sum(request.path == "/poison.html" for request in web.requests) == KILLS_MAX
    assert poison in str(letters)
    assert "crash" in str(letters)
    assert set(stored_urls(crawl.store)) == good
    assert len(stored_urls(crawl.store)) == len(good)
    check_no_leftovers(crawl.store)


HASTY_NODE = """
import sys
from drumlin.cli.main import run
from drumlin.node import main
main.START_WAIT_S = 1.5
sys.exit(run(sys.argv[1:]))
"""


def test_a_node_whose_name_is_taken_says_so_and_ends_no_lease_of_who_has_it(tmp_path: Path) -> None:
    with RunningCoordinator() as coordinator:
        holder = RemoteNode(coordinator, "taken")
        coordinator.enqueue("http://held.example/")
        assert len(holder.take()) == 1
        node = ["node", "--coordinator", coordinator.url, "--name", "taken", "--store", str(tmp_path)]
        ended = subprocess.run(
            [sys.executable, "-c", HASTY_NODE, *node], capture_output=True, text=True, timeout=STEP_S_MAX, check=False
        )
        assert ended.returncode == EXIT_ENGINE
        assert "Another node called taken is at work." in ended.stderr.splitlines()[-1]
        assert coordinator.get("/api/v1/crawl").json["totals"]["leased"] == 1
