"""Coordinators behind a load balancer, each killed ten times; replies lost; a Redis that fails over while a node starts
again, or that has lost the record of a node: no node exits, the first start joins, nothing is lost or doubled."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from drumlin.fleet.layout import ProcessRole
from tests.harness.balanced import balanced, joined, kill_each, lose_replies, wait_for_progress
from tests.harness.crawls import benchmark_web, wait_until
from tests.harness.fleet import check_every_page_stored_once, check_politeness, fleet, kill, needs_redis
from tests.harness.logs import events
from tests.integration.test_balanced import check_nothing_lost_nor_doubled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), needs_redis]

HOSTS = 20
DELAY_S = 0.2
POLITE = ("--delay", str(DELAY_S))
CRAWL_S_MAX = 900.0
JOIN_S_MAX = 120.0
NODES = 3


def test_each_of_three_coordinators_is_killed_ten_times_and_replies_are_lost(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, 1_500, "--gap-s", str(DELAY_S)) as web,
        balanced(tmp_path, "-i", str(web.seeds), *POLITE) as crawl,
    ):
        names = [f"node-{number}" for number in range(NODES)]
        for name in names:
            crawl.node(name)
        wait_for_progress(crawl, web, HOSTS)
        assert kill_each(crawl, web, rounds=10) == 10 * len(crawl.ports)
        lose_replies(crawl, windows=4, seconds=4.0)
        assert [joined(crawl, name) for name in names] == [1] * NODES
        crawl.wait_for_nodes(CRAWL_S_MAX)
        figures = check_every_page_stored_once(web, crawl.store)
        least_s = check_politeness(web, crawl.store, DELAY_S)
        print(figures, f"least gap {least_s:.3f} s")
        assert figures["asked again"] <= HOSTS, figures


def test_a_node_that_is_started_again_during_a_failover_joins_at_its_first_start(tmp_path: Path) -> None:
    shape = ("--nodes", "1", "--coordinators", "2", "--masters", "3", "--replicas", "1", *POLITE)
    with (
        benchmark_web(tmp_path, 60, 300, "--gap-s", str(DELAY_S)) as web,
        fleet(tmp_path, *shape, "-i", str(web.seeds)) as one,
    ):
        endpoints = [process.address for process in one.of(ProcessRole.COORDINATOR)]
        for masters_lost in range(1, 4):
            node = one.start_node("extra", *endpoints)
            log = one.paths.log("extra")
            wait_until(lambda: events(log.read_text()).count("joined") == masters_lost, JOIN_S_MAX, "joining")  # noqa: B023
            wait_until(lambda: len(one.redis_masters()) == 3, JOIN_S_MAX, "a whole cluster")
            kill(one.redis_masters()[masters_lost - 1])
            node.kill()
            assert node.wait() < 0
            one.extra.remove(node)
        one.start_node("extra", *endpoints)
        one.wait_until_finished(CRAWL_S_MAX)
        assert [process.returncode for process in one.extra] == [0], one.last_words()
        check_every_page_stored_once(web, one.store)


def test_replies_are_lost_for_four_seconds_and_no_node_exits(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, 150, "--gap-s", str(DELAY_S)) as web,
        balanced(tmp_path, "-i", str(web.seeds), *POLITE, coordinators=2) as crawl,
    ):
        crawl.balancer.lose_replies()
        crawl.node("node-0")
        wait_until(lambda: crawl.balancer.lost_bytes > 0, CRAWL_S_MAX, "the first lost reply")
        crawl.balancer.pass_replies()
        crawl.node("node-1")
        wait_for_progress(crawl, web, HOSTS)
        lose_replies(crawl, windows=2, seconds=4.0)
        check_nothing_lost_nor_doubled(crawl, web, in_flight=HOSTS)


def test_a_node_of_which_redis_lost_the_record_goes_on_and_its_successor_joins_at_its_first_start(
    tmp_path: Path,
) -> None:
    """A failover may lose the last second. Coordinators that are started later do not know nodes that registered in
    it."""
    with (
        benchmark_web(tmp_path, HOSTS, 200, "--gap-s", str(DELAY_S)) as web,
        balanced(tmp_path, "-i", str(web.seeds), *POLITE, coordinators=2) as crawl,
    ):
        for number in range(2):
            crawl.node(f"node-{number}")
        wait_until(lambda: joined(crawl, "node-0") == 1, CRAWL_S_MAX, "the node's first start")
        wait_for_progress(crawl, web, HOSTS)
        killed = crawl.nodes.pop("node-0")
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        for number in range(2):
            crawl.kill(number)
        lost = [key for key in crawl.redis.command("KEYS", "*table:*") if key.endswith((b":nodes", b":beats"))]
        assert crawl.redis.command("DEL", *lost) == len(lost) > 0
        for number in range(2):
            crawl.start(number)
        crawl.node("node-0")
        wait_until(lambda: joined(crawl, "node-0") == 2, CRAWL_S_MAX, "its successor's first start")
        crawl.check_alive()
        check_nothing_lost_nor_doubled(crawl, web, in_flight=2 * HOSTS)
