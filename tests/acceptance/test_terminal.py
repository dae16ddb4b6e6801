"""What a terminal shows of a crawl."""

from __future__ import annotations

import contextlib
import os
import pty
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.errors import EXIT_OK, EXIT_OUT_OF_REACH, EXIT_USAGE
from drumlin.testing import FakeWeb
from tests.acceptance.commands import FAST, chain, crawl, drumlin, environment, running

ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    """One empty web; each test makes hosts of its own in it."""
    with FakeWeb(hosts=0) as made:
        yield made


@pytest.fixture(scope="module")
def on_a_terminal(web: FakeWeb, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a terminal shows of a short crawl, with colour and with NO_COLOR."""
    seen: dict[str, str] = {}
    for name, color in (("plain", {}), ("no colour", {"NO_COLOR": "1"})):
        folder = tmp_path_factory.mktemp("terminal")
        home = chain(web, f"terminal {name}", 8)
        seen[name] = terminal_output(folder, ["crawl", *FAST, "--delay", "0.2", home], color)
    return seen


def terminal_output(folder: Path, arguments: list[str], more: dict[str, str], code: int = EXIT_OK) -> str:
    leader, follower = pty.openpty()
    variables = environment(folder, {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"} | more)
    streams = {"stdin": follower, "stdout": follower, "stderr": follower}
    with running(folder, *arguments, env=variables, text=None, **streams) as process:
        os.close(follower)
        output = b""
        # The terminal reports an error once the last process that had it open is gone.
        with contextlib.suppress(OSError):
            while piece := os.read(leader, 65_536):
                output += piece
        os.close(leader)
        assert process.wait() == code
    return output.decode()


def test_on_a_terminal_progress_is_redrawn_in_place_and_put_away(on_a_terminal: dict[str, str]) -> None:
    output = on_a_terminal["plain"]
    assert output.count("URLs known") >= 3
    assert f"{ESCAPE}[1A" in output, "the panel is drawn over the one before"
    assert output.rindex(f"{ESCAPE}[?25h") > output.rindex(f"{ESCAPE}[?25l"), "the cursor is shown again"
    ending = output[output.rindex(f"{ESCAPE}[?25h") :]
    assert "Finished: nothing is left to fetch." in ending
    assert "to go" not in ending


def test_no_color_takes_colours_away_on_a_terminal(on_a_terminal: dict[str, str]) -> None:
    assert not re.search(ESCAPE + r"\[[0-9;]*3[0-9][0-9;]*m", on_a_terminal["no colour"])
    assert "URLs known" in on_a_terminal["no colour"]


def test_colours_say_what_went_well_and_what_did_not(on_a_terminal: dict[str, str]) -> None:
    output = on_a_terminal["plain"]
    assert f"{ESCAPE}[32m2xx" in output
    assert f"{ESCAPE}[1;32mFinished" in output


@pytest.mark.parametrize("width", [80, 120])
def test_a_seeds_trouble_is_named_on_one_line_while_it_lasts(web: FakeWeb, tmp_path: Path, width: int) -> None:
    seeds = ["http://exmaple.invalid/", chain(web, f"wide {width}", 3)]
    output = terminal_output(
        tmp_path,
        ["crawl", *FAST, "--patience", "3s", *seeds],
        {"COLUMNS": str(width), "NO_COLOR": "1"},
        EXIT_OUT_OF_REACH,
    )
    # Moving up and clearing a line begins a new frame; other control sequences take no columns.
    drawn = re.sub(ESCAPE + r"\[[0-9]*[AK]|\r", "\n", output)
    lines = re.sub(ESCAPE + r"\[[0-9;?]*[a-zA-Z]", "", drawn).split("\n")
    named = re.compile(r"trouble +exmaple\.invalid: no such host, next try in \d+ s *")
    assert any(named.fullmatch(line) for line in lines)
    assert [line for line in lines if len(line) > width and not line.startswith(("No page from", "Stopped"))] == []


def test_a_pipe_gets_the_same_words_and_no_blanks_at_the_end_of_lines(web: FakeWeb, tmp_path: Path) -> None:
    done = crawl(tmp_path, "http://exmaple.invalid/", chain(web, "piped", 3), "--patience", "6s")
    assert "; exmaple.invalid: no such host, next try in" in done.stderr
    said = done.stdout + done.stderr + drumlin(tmp_path, "status", "--out", "crawl").stdout
    assert [line for line in said.splitlines() if line != line.rstrip()] == []
    assert ESCAPE not in said


@pytest.mark.parametrize(
    ("more", "begins"), [({}, f"{ESCAPE}[1;31mdrumlin:{ESCAPE}[0m "), ({"NO_COLOR": "1"}, "drumlin: ")]
)
def test_an_error_is_marked_in_red_unless_nobody_wants_colours(
    tmp_path: Path, more: dict[str, str], begins: str
) -> None:
    output = terminal_output(tmp_path, ["crawl"], more, EXIT_USAGE)
    assert output.startswith(f"{begins}There is nothing to crawl.")


NARROW = {"COLUMNS": "80"}


def test_sentences_are_broken_between_words(web: FakeWeb, tmp_path: Path) -> None:
    home = chain(web, "narrow", 2)
    crawl(tmp_path, home, "--out", "crawl")
    told = terminal_output(tmp_path, ["why", home, "--out", "crawl", "--no-color"], NARROW)
    error = terminal_output(tmp_path, ["crawl", home, "--scope", "everything there is"], NARROW, EXIT_USAGE)
    explained = terminal_output(tmp_path, ["fetch", home, "--allow-private", "--no-color"], NARROW)
    for output, words in ((told, "tables/pages/"), (error, "must be"), (explained, "robots.txt")):
        plain = re.sub(ESCAPE + r"\[[0-9;]*m", "", output)
        lines = plain.splitlines()
        assert words in plain
        assert len(lines) > 1
        assert all(len(line) <= 80 or " " not in line.strip() for line in lines), lines


def test_lists_fit_80_columns_and_keep_the_reason_beside_each_host(web: FakeWeb, tmp_path: Path) -> None:
    seeds = ("http://exmaple.invalid/", "http://127.0.0.1:9/", chain(web, "listed", 3))
    crawl(tmp_path, *seeds, "--out", "crawl", "--patience", "0s")
    hosts = terminal_output(tmp_path, ["hosts", "--out", "crawl", "--no-color"], NARROW)
    nodes = terminal_output(tmp_path, ["nodes", "--out", "crawl", "--no-color"], NARROW)
    lines = [re.sub(ESCAPE + r"\[[0-9;]*m", "", line) for line in (hosts + nodes).splitlines()]
    assert max(map(len, lines)) <= 80
    assert any(re.match(r"exmaple\.invalid +1 +0  .*: no such host", line) for line in lines)
    assert any(re.match(r"127\.0\.0\.1:9 +1 +0  .*: no connection could be", line) for line in lines)
    assert any(re.match(r"node +status +pages/s", line) for line in lines)


def test_colour_that_is_asked_for_is_given_by_every_verb_that_shows_something(web: FakeWeb, tmp_path: Path) -> None:
    home = chain(web, "colours", 2)
    done = crawl(
        tmp_path, home, "http://127.0.0.1:9/", "--out", "crawl", "--color", "--patience", "0s", "--host-patience", "0s"
    )
    assert ESCAPE in done.stdout
    drumlin(tmp_path, "enqueue", home, "--out", "crawl")
    looks = (["status"], ["report"], ["why"], ["why", home], ["audit"], ["dead-letters", "list"])
    for arguments in looks:
        shown = drumlin(tmp_path, *arguments, "--out", "crawl", "--color")
        assert ESCAPE in shown.stdout, arguments
    for arguments in (["fetch", home, "--allow-private"], ["config", "show"]):
        assert ESCAPE in drumlin(tmp_path, *arguments, "--color").stdout, arguments
        assert ESCAPE not in drumlin(tmp_path, *arguments).stdout, arguments
