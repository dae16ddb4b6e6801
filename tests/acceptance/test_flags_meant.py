"""Flags do what they say, or are refused; and a crawl that must wait for another says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.errors import EXIT_BUSY, EXIT_OK, EXIT_USAGE
from drumlin.testing import FakeWeb
from tests.acceptance.commands import FAST, chain, crawl, drumlin, running, wait_until


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        yield made


@pytest.mark.parametrize("flags", [("--json", "--text"), ("--html", "--links"), ("--text", "--html", "--json")])
def test_two_things_that_would_each_be_printed_alone_are_refused(tmp_path: Path, flags: tuple[str, ...]) -> None:
    done = drumlin(tmp_path, "fetch", "http://127.0.0.1:9/", *flags)
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
    assert "cannot be given together" in done.stderr


def test_quiet_means_that_only_what_is_wrong_is_said(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "quiet", 3)
    done = crawl(tmp_path, home, "--quiet", "--pages-max", "2")
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_OK, "", "")
    said = " ".join(drumlin(tmp_path, "crawl", "--help").stdout.split())
    assert "print neither progress nor report nor hints: only what is wrong" in said


def test_a_second_crawl_in_a_directory_says_at_once_that_it_waits(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "twice", 300)
    with running(tmp_path, "crawl", home, *FAST, "--delay", "1", "--out", "crawl"):
        wait_until(lambda: home in web.requested, "the first page")
        done = crawl(tmp_path, home, "--out", "crawl")
    assert done.returncode == EXIT_BUSY
    first, *_, last = done.stderr.splitlines()
    assert "is at work in" in first
    assert "waiting up to 10 s" in first
    assert last.startswith("drumlin: Another process is at work in")


def test_the_record_of_a_run_that_did_not_end_claims_no_pages(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "killed", 300)
    with running(tmp_path, "crawl", home, *FAST, "--delay", "1", "--out", "crawl") as process:
        wait_until(lambda: home in web.requested, "the first page")
        process.kill()
        process.wait()
    (run,) = json.loads((tmp_path / "crawl" / "crawl.json").read_text())["runs"]
    assert (run["ended"], run["pages"]) == (None, None)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--depth", "-1"), "--depth must be at least 0, not '-1'."),
        (("--include", "("), "is not one: missing ), unterminated subpattern at position 0), not '('."),
    ],
)
def test_what_is_wrong_with_a_value_is_said_of_what_was_typed(
    tmp_path: Path, flags: tuple[str, ...], sentence: str
) -> None:
    done = drumlin(tmp_path, "crawl", "http://127.0.0.1:9/", *flags)
    assert (done.returncode, sentence in done.stderr) == (EXIT_USAGE, True), done.stderr


def test_a_section_is_not_called_a_key(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text("[crwl]\ndepth = 1\n")
    done = drumlin(tmp_path, "config", "show")
    assert (done.returncode, "unknown section 'crwl'" in done.stderr) == (EXIT_USAGE, True), done.stderr


def test_words_about_a_crawl_are_right(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "words", 3)
    crawl(tmp_path, home, "--out", "crawl", "--pages-max", "1")
    done = crawl(tmp_path, home, "--out", "crawl", "--pages-max", "2", "--exclude", "/nothing")
    assert "--exclude was none and is /nothing." in done.stderr
    assert home.split("/")[2] in drumlin(tmp_path, "host", home, "--out", "crawl").stdout
    origins = drumlin(tmp_path, "config", "show", "--origin").stdout
    assert all(len(line) <= 80 or "#" not in line for line in origins.splitlines())
