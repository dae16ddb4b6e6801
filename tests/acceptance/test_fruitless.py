"""A crawl that gets nothing does not look like one that is done: each seed is named, with the cause and what to do."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin import __version__
from drumlin.errors import EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_OK
from drumlin.testing import FakeWeb, Request, Response
from tests.acceptance.commands import FAST, NO_PATIENCE, crawl, drumlin, end, running

NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        made.page("shy", "/", "never read")
        made.respond("shy", "/robots.txt", Response(body="User-agent: *\nDisallow: /\n"))
        made.respond("moved", "/", Response(status=301, headers={"Location": NOWHERE}))
        made.page("open", "/", "a page")
        made.respond("gone", "/", Response(status=410, body="gone"))
        yield made


def test_a_private_address_is_named_with_the_flag_that_admits_it(tmp_path: Path) -> None:
    done = drumlin(tmp_path, "crawl", NOWHERE, "--nodes", "1", "--out", "crawl")
    assert done.returncode == EXIT_NOTHING
    assert done.stdout.startswith("Finished without a page.")
    assert f"No page from {NOWHERE}: its address is private. If you mean it, " in done.stderr
    assert "run the same command with --allow-private." in done.stderr


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (NOWHERE, "no connection could be made. `drumlin dead-letters retry --out crawl` and the same command try it"),
        ("http://exmaple.invalid/", "no such host. Check the spelling, and that"),
    ],
)
def test_a_host_that_is_down_or_mistyped_is_named(tmp_path: Path, url: str, says: str) -> None:
    for _ in range(2):
        done = crawl(tmp_path, url, *NO_PATIENCE, "--out", "crawl")
        assert done.returncode == EXIT_NOTHING
        assert f"No page from {url}: {says}" in done.stderr
        assert "nothing is left" not in done.stdout + done.stderr


def test_a_seed_that_robots_denies_or_that_leads_nowhere_is_named(tmp_path: Path, web: FakeWeb) -> None:
    seeds = web.url("shy"), web.url("moved")
    done = crawl(tmp_path, *seeds, *NO_PATIENCE, "--out", "crawl")
    assert done.returncode == EXIT_NOTHING
    assert f"No page from {seeds[0]}: its robots.txt does not allow it. `drumlin fetch {seeds[0]}` shows" in done.stderr
    assert f"No page from {seeds[1]}: it leads to another address, which gave no page." in done.stderr


def test_the_next_command_that_is_named_shows_the_rule(tmp_path: Path, web: FakeWeb) -> None:
    done = drumlin(tmp_path, "fetch", web.url("shy"), "--allow-private", "--delay", "0")
    assert "denies drumlin this URL by line 2: Disallow: /" in done.stdout


def test_a_seed_that_fails_for_a_while_is_named_while_it_does(tmp_path: Path, web: FakeWeb) -> None:
    web.respond("ill", "/", Response(status=503, body="later"))
    with running(tmp_path, "crawl", *FAST, "--delay", "0.2", "--out", "crawl", web.url("ill")) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "next try in" in line)
        done = end(process, signal.SIGINT)
    assert f"; {web.url('ill')}: failed, next try in" in said
    assert done.returncode == EXIT_INTERRUPTED


def test_a_new_crawl_of_strangers_asks_once_for_a_contact(tmp_path: Path) -> None:
    command = ("crawl", NOWHERE, "--nodes", "1", "--out", "crawl")
    assert "Give --contact you@example.org" in drumlin(tmp_path, *command).stderr
    assert "--contact" not in drumlin(tmp_path, *command).stderr, "it was said"
    named = drumlin(tmp_path, "crawl", NOWHERE, "--nodes", "1", "--out", "other", "--contact", "me@example.org")
    assert "Give --contact" not in named.stderr


def test_the_contact_is_sent_to_sites(tmp_path: Path, web: FakeWeb) -> None:
    sent: list[str] = []

    def heard(request: Request) -> Response:
        sent.append(request.headers["user-agent"])
        return Response(body="a page")

    crawl(tmp_path, web.respond("hearing", "/", heard), "--out", "crawl", "--contact", "me@example.org")
    assert sent == [f"drumlin/{__version__} (+me@example.org)"]


def test_beside_seeds_that_gave_pages_the_others_are_named_and_the_crawl_is_done(tmp_path: Path, web: FakeWeb) -> None:
    seeds = web.url("open"), web.url("shy"), web.url("gone")
    done = crawl(tmp_path, *seeds, *NO_PATIENCE, "--out", "crawl", "--json")
    assert done.returncode == EXIT_OK
    named = {seed["url"]: seed["kind"] for seed in json.loads(done.stdout)["fruitless_seeds"]}
    assert named == {seeds[1]: "denied", seeds[2]: "status"}
    assert "the site answered 410" in done.stderr
    assert seeds[0] not in done.stderr
