"""A crawl that is started again with other settings says what differs, and does what one expects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.errors import EXIT_NOTHING, EXIT_OK
from drumlin.testing import FakeWeb
from tests.acceptance.commands import NO_PATIENCE, Done, crawl, drumlin, stored_urls


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        other = made.page("other", "/", "<a href='/far'>far</a> elsewhere")
        made.page("other", "/far", "far")
        links = "".join(f"<a href='/part/{number}'>{number}</a>" for number in range(5))
        made.page("site", "/", f"<a href='{other}'>other</a><a href='/top'>top</a>{links}")
        made.page("site", "/top", "top")
        for number in range(5):
            made.page("site", f"/part/{number}", f"<a href='/deep/{number}'>deep</a> part {number}")
            made.page("site", f"/deep/{number}", f"deep {number}")
        yield made


def again(folder: Path, *arguments: str) -> Done:
    return crawl(folder, *arguments, *NO_PATIENCE, "--out", "crawl")


def paths(folder: Path, web: FakeWeb, host: str = "site") -> set[str]:
    home = web.url(host)
    return {url.removeprefix(home) for url in stored_urls(folder / "crawl") if url.startswith(home)}


def test_a_wider_scope_finds_again_what_was_refused(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    first = again(tmp_path, home)
    assert "Not as at the last start" not in first.stderr
    done = again(tmp_path, home, "--scope", "any")
    assert "Not as at the last start: --scope was host and is any." in done.stderr
    assert paths(tmp_path, web, "other") == {"", "far"}


def test_a_greater_depth_goes_on_from_where_it_ended(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--depth", "1")
    assert not [path for path in paths(tmp_path, web) if path.startswith("deep")]
    done = again(tmp_path, home, "--depth", "2")
    assert "--depth was 1 and is 2" in done.stderr
    assert len([path for path in paths(tmp_path, web) if path.startswith("deep")]) == 5


def test_what_is_excluded_now_is_not_fetched_though_it_is_queued(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--pages-max", "1")
    done = again(tmp_path, home, "--exclude", "/part/")
    assert "--exclude was" in done.stderr
    assert paths(tmp_path, web) == {"", "top"}


def test_an_include_that_is_dropped_lets_the_rest_in(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--include", "/top")
    assert paths(tmp_path, web) == {"", "top"}
    again(tmp_path, home)
    assert len(paths(tmp_path, web)) == 12


def test_a_new_seed_joins_and_one_that_is_gone_leaves(tmp_path: Path, web: FakeWeb) -> None:
    home, other = web.url("site"), web.url("other")
    again(tmp_path, home, "--pages-max", "1")
    done = again(tmp_path, other)
    assert f"1 seed is new ({other})" in done.stderr
    assert f"1 seed is gone ({home})" in done.stderr
    assert paths(tmp_path, web, "other") == {"", "far"}
    assert paths(tmp_path, web) <= {""}


def test_private_addresses_are_tried_again_once_they_are_permitted(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    refused = drumlin(tmp_path, "crawl", home, "--nodes", "1", "--delay", "0", "--out", "crawl")
    assert refused.returncode == EXIT_NOTHING
    done = again(tmp_path, home)
    assert "--allow-private was false and is true" in done.stderr
    assert (done.returncode, len(paths(tmp_path, web))) == (EXIT_OK, 12)


def test_a_larger_budget_goes_on_and_other_paces_are_named(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--pages-max", "2")
    done = again(tmp_path, home, "--pages-max", "100", "--user-agent", "otherbot/1.0")
    assert "--pages-max was 2 and is 100" in done.stderr
    assert "--user-agent was" in done.stderr
    assert len(paths(tmp_path, web)) == 12


def test_the_record_tells_of_every_run(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--pages-max", "2")
    again(tmp_path, home)
    record = json.loads((tmp_path / "crawl" / "crawl.json").read_text())
    assert (record["seeds"], record["settings"]["scope"]) == ([home], "host")
    assert [(run["reason"], run["pages"]) for run in record["runs"]] == [("pages_max", 2), ("finished", 12)]
    assert record["runs"][1]["changed"] == ["--pages-max was 2 and is none"]


def test_a_fresh_start_forgets_what_was(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home)
    (tmp_path / "crawl" / "notes.txt").write_text("mine")
    web.forget_requests()
    done = again(tmp_path, home, "--fresh")
    assert "Not as at the last start" not in done.stderr
    assert len(web.requested) >= 12
    assert len(paths(tmp_path, web)) == 12
    assert (tmp_path / "crawl" / "notes.txt").read_text() == "mine"
