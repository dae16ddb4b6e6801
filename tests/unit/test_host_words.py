"""What `drumlin host` says of the next contact is never in the past, by the clock of the coordinator."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from drumlin.api.explaining.host_views import host_view
from drumlin.cli.host import host_path, rows_of
from drumlin.cli.nodes import list_nodes
from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.engines import open_engine
from drumlin.errors import ConfigError
from drumlin.local.standing import StandingCrawl
from drumlin.model import HostState, NewURLs
from drumlin.protocol import BackOff, HostNote


def said(state: HostState, *, standing: bool = False, now: float | None = None) -> dict[str, str]:
    now = time.time() if now is None else now
    crawl: dict[str, Any] = {"delay_default_s": 2.0, "product_token": "drumlin", "blocked": False, "budget": None}
    view = msgspec.to_builtins(host_view(state, 0, now, per_host=1, **crawl))
    return dict(rows_of(view, standing=standing))


def test_the_next_contact_of_a_host_that_a_node_has_is_for_that_node_to_decide() -> None:
    held = HostState("a.test", 5.0, None, 9, 9, 0, 0, "t", "n0", time.time() + 60)
    assert said(held)["next contact"] == "as its node decides, 2 s after the last one or later"


def test_a_next_contact_that_is_due_is_at_once_or_when_the_crawl_goes_on() -> None:
    due, later = HostState("a.test", 5.0, None, 9, 9, 0, 0), HostState("a.test", time.time() + 600, None, 9, 9, 0, 0)
    assert said(due)["next contact"] == "at once"
    assert said(due, standing=True)["next contact"] == "when the crawl goes on"
    assert said(later)["next contact"].endswith(" UTC")
    assert "next contact" not in said(HostState("a.test", 5.0, None, 0, 9, 0, 0)), "nothing is queued"


def test_times_are_compared_with_the_coordinators_clock_and_not_with_ours() -> None:
    behind = time.time() - 3_600
    note = msgspec.msgpack.encode(HostNote(backoff={"http": BackOff("dns", "", 5.0, 3, 5.0, behind + 600, 5.0)}))
    told = said(HostState("a.test", behind + 600, None, 9, 9, 0, 0, note=note), now=behind)
    assert told["next contact"].endswith(" UTC"), "it may be contacted in ten minutes"
    assert "next try" in told["out of reach (http)"]
    ahead = time.time() + 3_600
    assert said(HostState("a.test", ahead - 5, None, 9, 9, 0, 0), now=ahead)["next contact"] == "at once"


@pytest.mark.parametrize("written", ["a.test", "a.test/", "a.test/page?q=1", "https://a.test/page", "http://A.TEST"])
def test_a_host_may_be_named_by_its_address_or_a_part_of_it(written: str) -> None:
    assert host_path(written).lower() == "/api/v1/hosts/a.test"


def test_what_is_neither_a_name_nor_an_address_is_said_so() -> None:
    with pytest.raises(ConfigError, match="is not a web address"):
        host_path("a b/c")


def test_a_host_that_is_an_address_in_brackets_is_found_in_a_crawl_that_does_not_run(tmp_path: Path) -> None:
    async def found_crawl() -> None:
        engine = await open_engine(f"rocksdb:{tmp_path / 'frontier'}", shard_count=1)
        await Dispatcher(engine, CrawlConfig(), [], chance=random.Random(1)).open()
        await engine.add_all({0: [NewURLs("[::1]:8080", ["http://[::1]:8080/"])]}, 1.0)
        await engine.close()

    asyncio.run(found_crawl())
    crawl = StandingCrawl(tmp_path)
    try:
        assert crawl.get(host_path("[::1]:8080"))["host"] == "[::1]:8080"
    finally:
        crawl.close()


class Told:
    """A coordinator whose clock is an hour behind ours, with a node that it has just heard of."""

    standing = False

    def get(self, path: str, **query: object) -> dict[str, Any]:
        now = time.time() - 3_600
        node: dict[str, Any] = {"node_id": "n0", "status": "active", "last_seen": now - 2, "ip_address": "10.0.0.1"}
        return {
            "nodes": [node | dict.fromkeys(("pages_per_s", "current_load", "leases", "total_crawled"), 0)],
            "time": now,
        }

    def close(self) -> None:
        pass


def test_when_a_node_was_seen_is_told_by_the_coordinators_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drumlin.cli.remote.find_remote", lambda *_: Told())
    assert "2 s ago" in CliRunner().invoke(list_nodes, [], catch_exceptions=False).output


def test_a_try_that_has_passed_is_not_called_the_next() -> None:
    def told(until: float) -> str:
        note = msgspec.msgpack.encode(HostNote(backoff={"http": BackOff("dns", "", 5.0, 3, 5.0, until, until)}))
        return said(HostState("a.test", until, None, 0, 9, 0, 0, note=note))["out of reach (http)"]

    assert "next try" not in told(10.0)
    assert "next try" in told(time.time() + 600)
