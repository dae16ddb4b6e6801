"""Two real nodes with a delay: both work, also right after a pause, and no host is hurried when it changes hands."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.harness.crawls import benchmark_web, wait_until
from tests.harness.fleet import check_politeness
from tests.harness.standing import Standing, standing
from tests.integration.test_node_outages import wait_for_silence

HOSTS = 18
PAGES = 400
DELAY_S = 0.2
FIRST = "n0"
NODES = (FIRST, "n1")
HALF_A_SHARE = HOSTS / len(NODES) / 2
ROUNDS = 2
STARTS_S_MAX = 60.0
WORK_WITHIN_S = 10.0


def figures_of(crawl: Standing, figure: str) -> dict[str, int]:
    return {node["node_id"]: node[figure] for node in crawl.remote.get("/api/v1/nodes")["nodes"]}


def pages_of(crawl: Standing) -> dict[str, int]:
    return figures_of(crawl, "total_crawled")


def hosts_of(crawl: Standing) -> dict[str, int]:
    return figures_of(crawl, "leases")


def wait_until_both_work(crawl: Standing, seconds_max: float) -> None:
    before = pages_of(crawl)

    def both() -> bool:
        now = pages_of(crawl)
        return all(now.get(node, 0) > before.get(node, 0) for node in NODES)

    wait_until(both, seconds_max, f"work of both nodes after {before}", poll_s=0.1)


def test_both_nodes_work_right_after_a_pause_and_no_host_is_hurried(tmp_path: Path) -> None:
    flags = ("--delay", f"{DELAY_S}s")
    with (
        benchmark_web(tmp_path, HOSTS, PAGES, "--gap-s", str(DELAY_S)) as web,
        standing(tmp_path, "-i", str(web.seeds), *flags) as crawl,
    ):
        _, late = [crawl.node(node) for node in NODES]
        wait_until_both_work(crawl, STARTS_S_MAX)
        for _ in range(ROUNDS):
            crawl.remote.post("/api/v1/crawl/pause")
            wait_for_silence(web, 3.0)
            # One node learns of the end of the pause only after the other had time to take all that it can get.
            late.send_signal(signal.SIGSTOP)
            crawl.remote.post("/api/v1/crawl/resume")
            wait_until(lambda: hosts_of(crawl)[FIRST] >= HOSTS // 2, STARTS_S_MAX, "the first to have its share")
            late.send_signal(signal.SIGCONT)
            wait_until_both_work(crawl, WORK_WITHIN_S)
            wait_until(lambda: min(hosts_of(crawl).values()) >= HALF_A_SHARE, WORK_WITHIN_S, "half a share for each")
        check_politeness(web, crawl.store, DELAY_S)
