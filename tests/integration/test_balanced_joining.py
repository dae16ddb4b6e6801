"""Nodes behind a load balancer whose record or token is gone: they join again, or end and say why."""

from __future__ import annotations

from pathlib import Path

from tests.harness.balanced import balanced, wait_for_progress
from tests.harness.crawls import benchmark_web, wait_until
from tests.harness.logs import entries
from tests.integration.test_balanced import (
    CRAWL_S_MAX,
    DELAY_S,
    HOSTS,
    NODES,
    POLITE,
)


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
            last = entries(crawl.log(name))[-1]
            assert (last["event"], last["node"]) == ("failed", name)
            assert last["message"] == (
                "The coordinator does not let this node join: The token was revoked. "
                "Ask for another: `drumlin tokens create --role join` makes one."
            )
