"""`drumlin set` on a real fleet: coordinators and nodes follow without a restart, and so does one that is restarted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drumlin.client.remote import CoordinatorError, Remote
from drumlin.fleet.layout import ProcessRole, read_secret
from drumlin.tls import CertificateFiles
from tests.harness.crawls import Web, benchmark_web, wait_until
from tests.harness.fleet import Fleet, drumlin, fleet, kill, needs_redis

HOSTS = 12
PAGES = 400
FAST_S = 0.1
SLOW_S = 2.0
WINDOW_S = 6.0
FOLLOWED_S_MAX = 30.0
"""A second at the coordinators and a heartbeat of two at the nodes, on a machine with other things to do."""
STEP_S_MAX = 120.0
WORK_WITHIN_S = 10.0
EXIT_CONFIG = 2

pytestmark = needs_redis


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings")


@pytest.fixture(scope="module")
def web(folder: Path) -> Iterator[Web]:
    with benchmark_web(folder, HOSTS, PAGES) as one:
        yield one


@pytest.fixture(scope="module")
def running(folder: Path, web: Web) -> Iterator[Fleet]:
    shape = ("--nodes", "2", "--coordinators", "2", "--delay", f"{FAST_S}s", "--no-finish")
    with fleet(folder, *shape, "-i", str(web.seeds)) as one:
        wait_until(lambda: web.accounts()["requests"] > 2 * HOSTS, STEP_S_MAX, "the crawl to be under way")
        yield one


def set_to(one: Fleet, *arguments: str) -> Any:
    done = drumlin(one.root.parent, "set", *arguments, "--fleet", str(one.root), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def wait_until_followed(one: Fleet, version: int) -> None:
    """Wait until every node says that it follows these settings."""

    def followed() -> bool:
        nodes = one.remote().get("/api/v1/nodes")["nodes"]
        return {node["config_version"] for node in nodes} == {version}

    wait_until(followed, FOLLOWED_S_MAX, f"version {version} at all nodes", poll_s=0.1)


def delay_at(one: Fleet, endpoint: str) -> float:
    authority = CertificateFiles.in_folder(one.paths.certs).authority
    remote = Remote([endpoint], token=read_secret(one.paths.operator_token), ca=authority)
    try:
        delay_s: float = remote.get("/api/v1/crawl")["config"]["delay_s"]
    except CoordinatorError:
        return -1.0
    return delay_s


def test_a_longer_delay_is_kept_by_every_node_from_its_next_heartbeat(running: Fleet, web: Web) -> None:
    answer = set_to(running, "delay", f"{SLOW_S:g}s")
    assert answer["changed"] == {"delay_s": {"before": FAST_S, "after": SLOW_S}}
    wait_until_followed(running, answer["version"])
    before, since = web.accounts()["requests"], time.monotonic()
    wait_until(lambda: time.monotonic() - since >= WINDOW_S, STEP_S_MAX, "a while")
    asked = web.accounts()["requests"] - before
    took_s = time.monotonic() - since
    assert asked <= HOSTS * (took_s / SLOW_S + 1), "hosts were contacted more often than the delay allows"
    assert asked > 0


def test_a_coordinator_that_is_started_again_with_its_old_flags_follows_what_was_changed(running: Fleet) -> None:
    killed = running.of(ProcessRole.COORDINATOR)[0]
    kill(killed)

    def back() -> bool:
        process = running.named(killed.name)
        return process.alive and process.mark != killed.mark and delay_at(running, process.address) == SLOW_S

    wait_until(back, STEP_S_MAX, "the coordinator to be back with the changed delay", poll_s=0.2)
    assert delay_at(running, running.named(killed.name).address) == SLOW_S


def test_both_nodes_work_within_ten_seconds_after_a_pause(running: Fleet, web: Web) -> None:
    def pages() -> dict[str, int]:
        return {node["node_id"]: node["total_crawled"] for node in running.remote().get("/api/v1/nodes")["nodes"]}

    running.remote().post("/api/v1/crawl/pause")
    wait_until(lambda: not running.stats()["totals"]["leased"], STEP_S_MAX, "all hosts to be given back", poll_s=0.2)
    running.remote().post("/api/v1/crawl/resume")
    before = pages()

    def both_work() -> bool:
        now = pages()
        return len(now) == 2 and all(count > before[node] for node, count in now.items())

    wait_until(both_work, WORK_WITHIN_S, "both to work", poll_s=0.1)
    assert both_work()


def test_a_setting_that_cannot_change_or_cannot_be_is_refused_with_a_sentence(running: Fleet) -> None:
    for arguments, says in (
        (("lease", "5s"), "lease cannot change while a crawl runs."),
        (("concurrency", "5"), "concurrency is a setting of one process"),
        (("delay", "soon"), "delay must be a duration"),
        (("delay", "1", "2"), "delay takes one value."),
        (("include", "("), "include must be regular expressions"),
        (("delay=5s",), "The value is missing. Write it after the name"),
        (("seeds", "none"), "Seeds can be added, but not removed."),
    ):
        done = drumlin(running.root.parent, "set", *arguments, "--fleet", str(running.root))
        assert done.returncode == EXIT_CONFIG
        assert done.stderr.startswith(f"drumlin: {says}"), done.stderr


def test_a_shorter_delay_and_a_page_budget_are_followed_and_the_budget_holds(running: Fleet, web: Web) -> None:
    totals = running.stats()["totals"]
    # So far ahead that a busy machine does not get there, at a page in two seconds, before it hears of the budget.
    pages_max = running.stats()["pages"] + totals["leased"] + 20 * HOSTS
    set_to(running, "pages_max", str(pages_max))
    shown = drumlin(running.root.parent, "set", "delay", "50ms", "--fleet", str(running.root)).stdout
    assert shown == "delay was 2s and is 0.05s now.\n"

    def ended() -> bool:
        crawl = running.remote().get("/api/v1/crawl")
        return (crawl["state"] == "running", crawl["stop_reason"]) == (False, "pages_max")

    wait_until(ended, STEP_S_MAX, "the end of the budget", poll_s=0.2)
    wait_until(lambda: not running.stats()["totals"]["leased"], STEP_S_MAX, "what is in flight to be done", poll_s=0.2)
    assert running.stats()["pages"] == pages_max
