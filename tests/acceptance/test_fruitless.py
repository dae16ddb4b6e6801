"""A crawl that gets nothing does not look like one that is done: each seed is named, with the cause and what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.errors import EXIT_NOTHING, EXIT_OK
from drumlin.testing import FakeWeb, Response
from tests.acceptance.commands import NO_PATIENCE, crawl, drumlin

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
    assert f"{NOWHERE}: no page, since its address is private. If you mean it, " in done.stderr
    assert "`drumlin dead-letters retry --out crawl` and add --allow-private." in done.stderr


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (NOWHERE, "no connection could be made. `drumlin dead-letters retry --out crawl` and the same command try it"),
        ("http://exmaple.invalid/", "there is no such host. Check the spelling."),
    ],
)
def test_a_host_that_is_down_or_mistyped_is_named(tmp_path: Path, url: str, says: str) -> None:
    for _ in range(2):
        done = crawl(tmp_path, url, *NO_PATIENCE, "--out", "crawl")
        assert done.returncode == EXIT_NOTHING
        assert f"{url}: no page, since {says}" in done.stderr
        assert "nothing is left" not in done.stdout + done.stderr


def test_a_seed_that_robots_denies_or_that_leads_nowhere_is_named(tmp_path: Path, web: FakeWeb) -> None:
    seeds = web.url("shy"), web.url("moved")
    done = crawl(tmp_path, *seeds, *NO_PATIENCE, "--out", "crawl")
    assert done.returncode == EXIT_NOTHING
    assert (
        f"{seeds[0]}: no page, since its robots.txt does not allow it. `drumlin fetch` shows the rule." in done.stderr
    )
    assert f"{seeds[1]}: no page, since it leads to another address, which gave no page." in done.stderr


def test_beside_seeds_that_gave_pages_the_others_are_named_and_the_crawl_is_done(tmp_path: Path, web: FakeWeb) -> None:
    seeds = web.url("open"), web.url("shy"), web.url("gone")
    done = crawl(tmp_path, *seeds, *NO_PATIENCE, "--out", "crawl", "--json")
    assert done.returncode == EXIT_OK
    named = {seed["url"]: seed["kind"] for seed in json.loads(done.stdout)["fruitless_seeds"]}
    assert named == {seeds[1]: "denied", seeds[2]: "status"}
    assert "the site answered 410" in done.stderr
    assert seeds[0] not in done.stderr
