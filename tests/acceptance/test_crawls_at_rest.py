"""What the verbs say about crawls that were killed, stopped or ended by a budget is true."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.client.remote import EXIT_COORDINATOR
from drumlin.errors import EXIT_OK
from drumlin.testing import FakeWeb
from tests.acceptance.commands import NO_PATIENCE, crawl, drumlin, end, running, wait_until
from tests.harness import crawls
from tests.harness.crawls import benchmark_web
from tests.harness.fleet import drumlin as drumlin_fleet
from tests.harness.fleet import fleet, needs_redis

PAGES = 60
STEP_S_MAX = 60.0


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        made.page("site", "/", "".join(f'<a href="/{number}">{number}</a>' for number in range(PAGES)))
        for number in range(PAGES):
            made.page("site", f"/{number}", f"page {number}")
        yield made


def say(folder: Path, *arguments: str, code: int = EXIT_OK) -> str:
    done = drumlin(folder, *arguments)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_a_killed_crawl_has_no_active_nodes_and_holds_no_host(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    arguments = ("--delay", "1", *NO_PATIENCE, "--out", "crawl", "--allow-private", "--nodes", "1")
    with running(tmp_path, "crawl", home, *arguments) as process:
        wait_until(lambda: web.url("site", "/1") in web.requested, "the third page")
        end(process, signal.SIGKILL)
    assert "0 of them active" in say(tmp_path, "nodes")
    (node,) = json.loads(drumlin(tmp_path, "nodes", "--json").stdout)
    assert (node["status"], node["current_load"], node["leases"]) == ("failed", 0.0, 0)
    status = say(tmp_path, "status")
    assert "not running" in status
    assert "1 failed" in status
    assert "0 with nodes" in status
    assert "may contact it" not in say(tmp_path, "hosts")
    assert "has it to fetch" not in "".join(say(tmp_path, "why", web.url("site", f"/{one}")) for one in range(2, 12))
    assert crawl(tmp_path, home, *NO_PATIENCE, "--out", "crawl").returncode == EXIT_OK
    assert len(set(web.requested)) == PAGES + 2


def test_a_crawl_that_has_spent_its_budget_says_so_and_not_that_the_same_command_goes_on(
    tmp_path: Path, web: FakeWeb
) -> None:
    crawl(tmp_path, web.url("site"), *NO_PATIENCE, "--pages-max", "5", "--out", "crawl")
    said = "It has spent its --pages-max: with a larger one the same `drumlin crawl` command goes on."
    assert said in say(tmp_path, "why")
    assert "--pages-max" in say(tmp_path, "status")
    assert said in say(tmp_path, "resume", code=EXIT_COORDINATOR)


@needs_redis
def test_a_fleet_that_was_stopped_says_how_it_goes_on_and_where_its_report_is(tmp_path: Path) -> None:
    with benchmark_web(tmp_path, 12, 6) as web:
        shape = ("--nodes", "1", "--coordinators", "1", "--masters", "1", "--delay", "1")
        with fleet(tmp_path, *shape, "-i", str(web.seeds)) as one:
            where = ("--out", str(one.root))

            def told(*arguments: str, code: int = EXIT_OK) -> str:
                done = drumlin_fleet(tmp_path, *arguments, *where)
                assert done.returncode == code, (arguments, done.stdout, done.stderr)
                return done.stdout + done.stderr

            crawls.wait_until(lambda: one.stats()["pages"] >= 3, STEP_S_MAX, "some pages", poll_s=0.2)
            assert "So much is spent already: the crawl stops." in told("set", "pages_max", "1")
            opened = drumlin_fleet(tmp_path, "open", str(one.root))
            assert opened.returncode == EXIT_OK
            assert opened.stdout.startswith("https://127.0.0.1:")
            assert "operator.token" in opened.stderr
            crawls.wait_until(lambda: "stopped" in told("status"), STEP_S_MAX, "the node to leave", poll_s=0.5)
            assert "--pages-max is spent" in told("status")
            assert "has spent its pages_max" in told("resume", code=EXIT_COORDINATOR)
            told("set", "pages_max", "none")
            # So slow that the crawl cannot end before somebody has looked, however busy the machine is.
            told("set", "delay", "10")
            told("resume")
            crawls.wait_until(lambda: "1 active" in told("status"), STEP_S_MAX, "the node to be back", poll_s=0.5)
            told("stop")
            assert "goes on after `drumlin resume`" in told("fleet", "down")
            down = told("status", code=EXIT_COORDINATOR)
            assert "is down. `drumlin fleet up" in down
            assert f"`drumlin query outcomes --out {one.root}`" in " ".join(down.split())
            assert "fetched" in told("query", "outcomes")
            assert f"`drumlin resume --out {one.root}` goes on" in told("fleet", "up")
            told("set", "delay", "0")
            told("resume")
            one.wait_until_finished(STEP_S_MAX)
            assert "nothing is left" in told("report")
            assert "nothing is left" in drumlin_fleet(one.root.parent, "report").stdout
