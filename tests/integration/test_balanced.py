"""Coordinators that die behind a load balancer, and lost replies: no node exits, and every page is stored once.

`tests/slow/test_balanced_slow.py` does the same for longer.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.harness.balanced import Balanced, balanced, joined, kill_each, lose_replies, wait_for_progress
from tests.harness.crawls import Web, benchmark_web, wait_until
from tests.harness.fleet import check_every_page_stored_once, check_politeness

HOSTS = 20
DELAY_S = 0.2
POLITE = ("--delay", str(DELAY_S))
CRAWL_S_MAX = 240.0
NODES = 2


def check_nothing_lost_nor_doubled(crawl: Balanced, web: Web, in_flight: int) -> None:
    """`in_flight` is how many requests may have been under way when something was hurt, and were made again."""
    crawl.wait_for_nodes(CRAWL_S_MAX)
    figures = check_every_page_stored_once(web, crawl.store)
    assert figures["asked again"] <= in_flight, figures
    check_politeness(web, crawl.store, DELAY_S)


def test_each_coordinator_is_killed_in_turn_and_no_node_with_it(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, 150, "--gap-s", str(DELAY_S)) as web,
        balanced(tmp_path, "-i", str(web.seeds), *POLITE) as crawl,
    ):
        for number in range(NODES):
            crawl.node(f"node-{number}")
        wait_for_progress(crawl, web, HOSTS)
        assert kill_each(crawl, web, rounds=2) > len(crawl.ports), "some that were started again"
        assert [joined(crawl, f"node-{number}") for number in range(NODES)] == [1] * NODES
        check_nothing_lost_nor_doubled(crawl, web, in_flight=0)


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
    """A failover may lose the last second; nodes that registered in it are unknown to coordinators started later."""
    with (
        benchmark_web(tmp_path, HOSTS, 200, "--gap-s", str(DELAY_S)) as web,
        balanced(tmp_path, "-i", str(web.seeds), *POLITE, coordinators=2) as crawl,
    ):
        for number in range(NODES):
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


def test_a_revoked_node_joins_again_and_one_revoked_with_its_join_token_ends_and_says_why(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, 400, "--gap-s", str(DELAY_S)) as web,
        balanced(tmp_path, "-i", str(web.seeds), *POLITE, coordinators=2) as crawl,
    ):
        for number in range(NODES):
            crawl.node(f"node-{number}")
        wait_for_progress(crawl, web, HOSTS)
        revoked = crawl.drumlin("tokens", "revoke", "--node", "node-0")
        assert revoked.returncode == 0, revoked.stderr
        wait_for_progress(crawl, web, 20 * HOSTS)
        join = crawl.token("join").read_text().split("_")[2]
        revoked = crawl.drumlin("tokens", "revoke", join, "--with-nodes")
        assert revoked.returncode == 0, revoked.stderr
        nodes = crawl.nodes.values()
        wait_until(lambda: all(node.poll() is not None for node in nodes), CRAWL_S_MAX, "the end of the nodes")
        for name in crawl.nodes:
            assert crawl.log(name).splitlines()[-1] == (
                "drumlin: The coordinator does not let this node join: The token was revoked. "
                "Ask for another: `drumlin tokens create --role join` makes one."
            )
