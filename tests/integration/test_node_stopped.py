"""Nodes that are told to end, are frozen, or work for a crawl that is paused: every page is stored once, and no host is
contacted by a node that may not."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.harness.crawls import benchmark_web, wait_until
from tests.harness.fleet import check_every_page_stored_once, check_politeness
from tests.harness.outputs import stored_urls
from tests.harness.standing import Standing, standing
from tests.integration.test_node_outages import (
    CRAWL_S_MAX,
    HOSTS,
    LATENCY,
    PAGES,
    SHORT,
    STEP_S_MAX,
    asked,
    wait_for_pages,
    wait_for_silence,
    wait_until_idle,
)

LEASE_S = 3.0
DELAY_S = 0.2
FROZEN_AT = 40
TAKEN_OVER = 80


def leased_hosts(crawl: Standing) -> int:
    hosts: int = crawl.remote.get("/api/v1/crawl")["totals"]["hosts_leased"]
    return hosts


def test_a_node_drains_on_sigterm_and_leaves_nothing_to_do_again(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, PAGES, *LATENCY) as web,
        standing(tmp_path, "-i", str(web.seeds), *SHORT) as crawl,
    ):
        leaving = crawl.node("leaving", "--concurrency", "16")
        wait_for_pages(web, HOSTS * PAGES // 5)
        leaving.terminate()
        assert leaving.wait(STEP_S_MAX) == 0, crawl.log("leaving")
        pages = asked(web)
        assert (leased_hosts(crawl), len(stored_urls(crawl.store))) == (0, pages)
        assert not list((crawl.store / "nodes").glob("*/*.journal"))
        crawl.node("staying")
        crawl.wait_for_nodes(CRAWL_S_MAX)
        check_every_page_stored_once(web, crawl.store)
        assert web.accounts()["doubles"] == 0


def test_a_second_sigterm_ends_a_node_at_once_and_loses_nothing(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, PAGES, "--latency-ms", "3000") as web,
        standing(tmp_path, "-i", str(web.seeds), "--delay", "0", "--pages-max", str(HOSTS)) as crawl,
    ):
        node = crawl.node("n0")
        wait_until(lambda: web.accounts()["requests"] > 0, STEP_S_MAX, "a request")
        node.terminate()
        wait_until(lambda: "second signal" in crawl.log("n0"), STEP_S_MAX, "the node's word that it drains")
        node.terminate()
        assert node.wait(STEP_S_MAX) == 128 + signal.SIGTERM


def test_a_frozen_node_that_wakes_after_its_leases_contacts_nobody_for_them(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, 8, 30, "--latency-ms", "20", "--gap-s", str(DELAY_S)) as web,
        standing(tmp_path, "-i", str(web.seeds), "--delay", f"{DELAY_S}s", "--lease", f"{LEASE_S}s") as crawl,
    ):
        frozen = crawl.node("frozen")
        wait_for_pages(web, FROZEN_AT)
        for turn in range(2):
            frozen.send_signal(signal.SIGSTOP)
            if turn == 0:
                crawl.node("other")
            # By then every lease of the frozen node has ended, and the other node has its hosts.
            wait_for_pages(web, FROZEN_AT + (turn + 1) * TAKEN_OVER)
            frozen.send_signal(signal.SIGCONT)
            wait_for_pages(web, FROZEN_AT + (turn + 1) * TAKEN_OVER + 8)
        crawl.wait_for_nodes(CRAWL_S_MAX)
        check_every_page_stored_once(web, crawl.store)
        check_politeness(web, crawl.store, DELAY_S)


def test_what_a_frozen_node_had_in_flight_is_surplus_when_others_have_fetched_it(tmp_path: Path) -> None:
    """Its requests were answered while it was frozen, so it has responses that no longer count."""
    with (
        benchmark_web(tmp_path, HOSTS, PAGES, "--latency-ms", "400") as web,
        standing(tmp_path, "-i", str(web.seeds), *SHORT) as crawl,
    ):
        frozen = crawl.node("frozen")
        wait_for_pages(web, FROZEN_AT)
        frozen.send_signal(signal.SIGSTOP)
        helper = crawl.node("helper")
        wait_until(lambda: helper.poll() is not None, CRAWL_S_MAX, "the other node to do the rest")
        frozen.send_signal(signal.SIGCONT)
        crawl.wait_for_nodes(CRAWL_S_MAX)
        figures = check_every_page_stored_once(web, crawl.store)
        assert 0 < figures["stored again"] <= figures["asked again"]


def test_a_paused_crawl_contacts_nobody_holds_no_lease_and_goes_on_when_resumed(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, PAGES, *LATENCY) as web,
        standing(tmp_path, "-i", str(web.seeds), *SHORT) as crawl,
    ):
        node = crawl.node("n0", "--concurrency", "16")
        wait_for_pages(web, HOSTS * PAGES // 5)
        crawl.remote.post("/api/v1/crawl/pause")
        wait_for_silence(web, 2.0)
        paused_at = asked(web)
        assert leased_hosts(crawl) == 0
        wait_until_idle(node)
        assert (node.poll(), asked(web)) == (None, paused_at)
        assert paused_at < HOSTS * PAGES
        crawl.remote.post("/api/v1/crawl/resume")
        crawl.wait_for_nodes(CRAWL_S_MAX)
        check_every_page_stored_once(web, crawl.store)
        assert web.accounts()["doubles"] == 0
