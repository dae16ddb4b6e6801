"""Nodes that are scraped: what each counts for itself adds up to what the crawl counts, and to what is stored."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from drumlin.errors import EXIT_BUSY
from tests.harness.crawls import benchmark_web, wait_until
from tests.harness.outputs import query
from tests.harness.prometheus import check_page, samples, total
from tests.harness.standing import Standing, free_port, standing

CRAWL_S_MAX = 180.0
STEP_S_MAX = 60.0
HOSTS = 6
PAGES = 25


def page_at(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=STEP_S_MAX) as answer:
        page: bytes = answer.read()
    return page.decode()


def test_what_nodes_count_adds_up_to_what_the_crawl_counts_and_stores(tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    with (
        benchmark_web(tmp_path, HOSTS, PAGES, "--latency-ms", "20") as web,
        standing(tmp_path, "-i", str(web.seeds), "--delay", "0", "--no-finish") as crawl,
    ):
        nodes = [crawl.node(f"n{place}", "--metrics", str(port)) for place, port in enumerate(ports)]
        wait_until(lambda: crawl.remote.get("/api/v1/crawl")["totals"]["done"] >= web.pages, CRAWL_S_MAX, "all pages")
        wait_until(lambda: not crawl.remote.get("/api/v1/crawl")["totals"]["pending"], STEP_S_MAX, "nothing left")
        # All results are answered, so both nodes stand still; a look at themselves is a second old at most.
        wait_until(
            lambda: all(samples(page_at(port))["drumlin_node_leases"] == 0 for port in ports), STEP_S_MAX, "no leases"
        )
        pages = [page_at(port) for port in ports]
        leader = page_at(crawl.port)
        for node in nodes:
            node.terminate()
        crawl.wait_for_nodes(STEP_S_MAX)
    check_sums(pages, leader, crawl.store)
    for page in pages:
        check_page(page)


def check_sums(pages: list[str], leader: str, store: Path) -> None:
    crawl = samples(leader)
    for outcome in ("fetched", "denied", "failed", "redirected"):
        mine = sum(samples(page)[f'drumlin_node_urls_total{{outcome="{outcome}"}}'] for page in pages)
        assert mine == crawl[f'drumlin_outcomes_total{{outcome="{outcome}"}}'], outcome
    fetches, robots, seconds, size = query(
        store,
        "SELECT count(*) FILTER (outcome <> 'robots' AND attempt IS NOT NULL), count(*) FILTER (outcome = 'robots'),"
        " sum(duration_s), sum(wire_bytes) FILTER (outcome <> 'robots') FROM {fetches}",
    )[0]
    asked = [samples(page) for page in pages]
    assert sum(one['drumlin_node_fetch_seconds_count{of="page"}'] for one in asked) == fetches
    assert sum(one['drumlin_node_fetch_seconds_count{of="robots"}'] for one in asked) == robots
    assert abs(sum(total(page, "drumlin_node_fetch_seconds_sum") for page in pages) - seconds) < 1.0
    assert sum(one['drumlin_node_body_bytes_total{of="page"}'] for one in asked) == size
    assert crawl["drumlin_pages_total"] == HOSTS * PAGES


def test_a_node_whose_metrics_address_is_taken_says_so_and_does_not_join(tmp_path: Path) -> None:
    with standing(tmp_path, "http://127.0.0.1:9/") as crawl:
        node = crawl.node("n0", "--metrics", str(crawl.port))
        assert node.wait(STEP_S_MAX) == EXIT_BUSY
        assert f"Another program listens on 127.0.0.1:{crawl.port}." in crawl.log("n0")
        assert crawl.remote.get("/api/v1/nodes")["nodes"] == []


def test_a_node_that_has_not_joined_tells_that_it_is_cut_off_and_then_who_let_it_in(tmp_path: Path) -> None:
    """Its first coordinator is not there; the second one comes later."""
    port, gone = free_port(), f"http://127.0.0.1:{free_port()}"
    crawl = Standing(tmp_path, "http://127.0.0.1:9/")
    try:
        crawl.node("n0", "--metrics", str(port), endpoints=(gone, crawl.endpoint))
        wait_until(lambda: cut_off_s(port) > 0, STEP_S_MAX, "a node that is cut off")
        crawl.start()
        wait_until(lambda: cut_off_s(port) == 0, STEP_S_MAX, "a node that has joined")
        wait_until(lambda: '"event":"joined"' in crawl.log("n0"), STEP_S_MAX, "a word of it")
        assert f"joined {crawl.endpoint}, stores in" in crawl.log("n0")
    finally:
        crawl.end()


def cut_off_s(port: int) -> float:
    try:
        return samples(page_at(port))["drumlin_node_cut_off_seconds"]
    except OSError:
        return -1.0
