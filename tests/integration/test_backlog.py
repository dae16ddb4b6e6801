"""What cannot be settled is not fetched: nodes wait for a slow coordinator, and it gives out no further work."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

from tests.harness.crawls import benchmark_web, wait_until
from tests.harness.fleet import check_every_page_stored_once
from tests.harness.standing import Standing, standing

HOSTS = 40
PAGES = 60
STEP_S_MAX = 60.0
CRAWL_S_MAX = 240.0
FROZEN_S = 0.8
AWAKE_S = 0.1
TURNS = 20


def hosts_leased(crawl: Standing) -> int:
    hosts: int = crawl.remote.get("/api/v1/crawl")["totals"]["hosts_leased"]
    return hosts


def ask_and_hang_up(crawl: Standing, path: str, message: dict[str, object]) -> None:
    body = json.dumps(message).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", crawl.port)) as connection:
        connection.sendall(head.encode() + body)


def test_no_host_is_leased_to_a_node_that_has_given_up_waiting_for_the_answer(tmp_path: Path) -> None:
    with benchmark_web(tmp_path, 3, 1) as web, standing(tmp_path, "-i", str(web.seeds)) as crawl:
        crawl.remote.post("/api/v1/nodes/register", {"node_id": "impatient", "capacity": 1})
        crawl.freeze()
        ask_and_hang_up(crawl, "/api/v1/nodes/impatient/work/request", {"max_tasks": 10, "max_hosts": 1})
        crawl.thaw()
        work = crawl.remote.post("/api/v1/nodes/impatient/work/request", {"max_tasks": 10, "max_hosts": 1})
        assert (len(work["leases"]), hosts_leased(crawl)) == (1, 1)


def test_a_coordinator_that_hardly_ever_runs_makes_nodes_wait_and_no_page_is_fetched_twice(tmp_path: Path) -> None:
    flags = ("--delay", "0", "--lease", "3s")
    with benchmark_web(tmp_path, HOSTS, PAGES) as web, standing(tmp_path, "-i", str(web.seeds), *flags) as crawl:
        nodes = [crawl.node(f"n{number}") for number in range(2)]
        wait_until(lambda: web.accounts()["pages_distinct"] > HOSTS, STEP_S_MAX, "the first pages")
        for _ in range(TURNS):
            crawl.freeze()
            time.sleep(FROZEN_S)
            crawl.thaw()
            time.sleep(AWAKE_S)
        crawl.wait_for_nodes(CRAWL_S_MAX)
        assert all(node.returncode == 0 for node in nodes)
        accounts = web.accounts()
        assert (accounts["missed"], accounts["doubles"]) == (0, 0)
        check_every_page_stored_once(web, crawl.store)


def test_people_see_how_far_settling_lags_behind_fetching(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, 10 * PAGES) as web,
        standing(tmp_path, "-i", str(web.seeds), "--delay", "0") as crawl,
    ):
        crawl.node("n0")
        wait_until(lambda: crawl.remote.get("/api/v1/stats")["unanswered"] > 0, STEP_S_MAX, "a page on its way")
        stats = crawl.remote.get("/api/v1/stats")
        (node,) = crawl.remote.get("/api/v1/nodes")["nodes"]
        assert 0 <= stats["lag_s"] < STEP_S_MAX
        assert {"lag_s", "unanswered"} <= node.keys()
