"""Orders for the nodes of a crawl on one machine: they hold for one run, and never keep it from ending."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.errors import EXIT_INTERRUPTED, EXIT_OK
from drumlin.testing import FakeWeb
from tests.acceptance.commands import chain, drumlin, end, pages_of, running, sentence, stored_urls, wait_until

PAGES = 8
FAST = ("--allow-private", "--delay", "0", "--nodes", "1", "--out", "crawl")
SLOW = (*FAST, "--delay", "2")
"""Slow enough that commands arrive before the crawl ends, also on a busy machine."""
OUT = ("--out", "crawl")


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        yield made


def status_of_node(folder: Path) -> str:
    (node,) = json.loads(drumlin(folder, "nodes", "list", "--json", *OUT).stdout)
    return str(node["status"])


def test_a_node_in_quarantine_keeps_its_crawl_neither_from_ending_nor_from_going_on(
    tmp_path: Path, web: FakeWeb
) -> None:
    home = chain(web, "site", PAGES)
    with running(tmp_path, "crawl", home, *SLOW) as process:
        wait_until(lambda: len(pages_of(web, "site")) >= 2, "pages")
        assert drumlin(tmp_path, "nodes", "quarantine", "n0", *OUT).returncode == EXIT_OK
        wait_until(lambda: status_of_node(tmp_path) == "quarantined", "the order")
        assert process.stderr is not None
        said = (line for line in process.stderr if "node n0 is in quarantine" in line)
        assert "`drumlin nodes release n0` lets it work again" in next(said)
        done = end(process, signal.SIGTERM)
    assert done.returncode == EXIT_INTERRUPTED, done.stderr
    again = drumlin(tmp_path, "crawl", home, *FAST)
    assert again.returncode == EXIT_OK, again.stderr
    assert len(stored_urls(tmp_path / "crawl")) == PAGES


def test_a_drained_node_stays_away_until_it_is_released(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "site", PAGES)
    with running(tmp_path, "crawl", home, *SLOW) as process:
        wait_until(lambda: len(pages_of(web, "site")) >= 2, "pages")
        assert drumlin(tmp_path, "nodes", "drain", "n0", *OUT).returncode == EXIT_OK
        wait_until(lambda: status_of_node(tmp_path) == "inactive", "the node to leave")
        assert drumlin(tmp_path, "nodes", "release", "n0", *OUT).returncode == EXIT_OK
        assert drumlin(tmp_path, "set", "delay", "0", *OUT).returncode == EXIT_OK
        done = end(process)
    assert done.returncode == EXIT_OK, done.stderr
    assert len(stored_urls(tmp_path / "crawl")) == PAGES


@pytest.mark.parametrize("order", ["drain", "quarantine"])
def test_a_node_of_a_crawl_that_is_not_running_cannot_be_sent_away(tmp_path: Path, web: FakeWeb, order: str) -> None:
    home = chain(web, "site", PAGES)
    assert drumlin(tmp_path, "crawl", home, *FAST, "--pages-max", "1").returncode == EXIT_OK
    refused = drumlin(tmp_path, "nodes", order, "n0", *OUT)
    assert "No crawl is running in" in sentence(refused)
    assert drumlin(tmp_path, "crawl", home, *FAST).returncode == EXIT_OK
    assert len(stored_urls(tmp_path / "crawl")) == PAGES


def test_who_stops_a_crawl_on_one_machine_is_told_how_it_goes_on(tmp_path: Path, web: FakeWeb) -> None:
    with running(tmp_path, "crawl", chain(web, "site", PAGES), *SLOW) as process:
        wait_until(lambda: len(pages_of(web, "site")) >= 2, "pages")
        stopped = drumlin(tmp_path, "stop", *OUT)
        end(process)
    assert "The same `drumlin crawl` command goes on with the rest." in stopped.stdout + stopped.stderr
