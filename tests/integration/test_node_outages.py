"""What a node of a fleet does while its coordinators or its network do not work: every page is stored once. Nodes that
are themselves stopped are in test_node_stopped.py."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.harness.crawls import Web, benchmark_web, wait_until
from tests.harness.cutting import CuttingProxy
from tests.harness.fleet import check_every_page_stored_once
from tests.harness.standing import cpu_s, standing

HOSTS = 20
PAGES = 60
LATENCY = ("--latency-ms", "40")
CRAWL_S_MAX = 240.0
STEP_S_MAX = 120.0
SHORT = ("--delay", "0", "--lease", "5s")


def asked(web: Web) -> int:
    pages: int = web.accounts()["pages_distinct"]
    return pages


def wait_for_pages(web: Web, count: int) -> None:
    wait_until(lambda: asked(web) >= count, STEP_S_MAX, f"{count} pages asked for")


def wait_for_silence(web: Web, seconds: float = 1.0) -> None:
    """Wait until the web got no request for so long."""
    last, since = -1, time.monotonic()

    def silent() -> bool:
        nonlocal last, since
        now = web.accounts()["requests"]
        if now != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since >= seconds

    wait_until(silent, STEP_S_MAX, "silence")


def wait_until_idle(*nodes: subprocess.Popen[bytes]) -> None:
    """Wait until the nodes use little CPU; a node that spins never does."""
    used = [float("-inf")] * len(nodes)

    def idle() -> bool:
        nonlocal used
        before, used = used, [cpu_s(node) for node in nodes]
        return all(now - then < 0.2 for now, then in zip(used, before, strict=True))

    wait_until(idle, STEP_S_MAX, "nodes that wait quietly", poll_s=1.5)


def test_a_coordinator_that_is_killed_and_comes_back_costs_no_page(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, PAGES, *LATENCY) as web,
        standing(tmp_path, "-i", str(web.seeds), *SHORT) as crawl,
    ):
        nodes = [crawl.node(f"n{number}", "--concurrency", "32") for number in range(2)]
        for _ in range(2):
            wait_for_pages(web, asked(web) + HOSTS * PAGES // 6)
            crawl.kill()
            wait_for_silence(web)
            journals = list((crawl.store / "nodes").glob("*/*.journal"))
            assert journals, "what was fetched meanwhile waits in the spool"
            wait_until_idle(*nodes)
            crawl.start()
        crawl.wait_for_nodes(CRAWL_S_MAX)
        check_every_page_stored_once(web, crawl.store)


def test_what_a_killed_node_left_unsent_is_stored_by_another_before_the_crawl_ends(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, PAGES, *LATENCY) as web,
        standing(tmp_path, "-i", str(web.seeds), *SHORT) as crawl,
        CuttingProxy(crawl.port) as proxy,
    ):
        cut_off = crawl.node("cut-off", "--concurrency", "32", endpoints=(f"http://127.0.0.1:{proxy.port}",))
        wait_for_pages(web, HOSTS * PAGES // 5)
        proxy.cut()
        wait_for_silence(web)
        cut_off.kill()
        cut_off.wait()
        assert list((crawl.store / "nodes" / "cut-off").glob("*.journal"))
        crawl.node("other")
        crawl.wait_for_nodes(CRAWL_S_MAX)
        check_every_page_stored_once(web, crawl.store)


def test_a_node_goes_to_another_coordinator_when_its_own_is_cut_off(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, PAGES, *LATENCY) as web,
        standing(tmp_path, "-i", str(web.seeds), *SHORT) as crawl,
        CuttingProxy(crawl.port) as proxy,
    ):
        crawl.node("n0", "--concurrency", "32", endpoints=(f"http://127.0.0.1:{proxy.port}", crawl.endpoint))
        wait_for_pages(web, HOSTS * PAGES // 5)
        proxy.cut()
        crawl.wait_for_nodes(CRAWL_S_MAX)
        check_every_page_stored_once(web, crawl.store)
