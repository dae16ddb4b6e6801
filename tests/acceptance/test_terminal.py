"""What a terminal gets to see of a crawl."""

from __future__ import annotations

import contextlib
import os
import pty
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.errors import EXIT_OK
from drumlin.testing import FakeWeb
from tests.acceptance.commands import FAST, chain, environment, running

ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    """One empty web; each test makes hosts of its own in it."""
    with FakeWeb(hosts=0) as made:
        yield made


@pytest.fixture(scope="module")
def on_a_terminal(web: FakeWeb, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a terminal gets to see of a short crawl, plain and with NO_COLOR."""
    seen: dict[str, str] = {}
    for name, color in (("plain", {}), ("no colour", {"NO_COLOR": "1"})):
        folder = tmp_path_factory.mktemp("terminal")
        home = chain(web, f"terminal {name}", 8)
        seen[name] = terminal_output(folder, ["crawl", *FAST, "--delay", "0.2", home], color)
    return seen


def terminal_output(folder: Path, arguments: list[str], more: dict[str, str]) -> str:
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
        assert process.wait() == EXIT_OK
    return output.decode()


def test_on_a_terminal_progress_is_redrawn_in_place_and_put_away(on_a_terminal: dict[str, str]) -> None:
    output = on_a_terminal["plain"]
    assert output.count("URLs known") >= 3
    assert f"{ESCAPE}[1A" in output, "the panel is drawn over the one before"
    assert output.rindex(f"{ESCAPE}[?25h") > output.rindex(f"{ESCAPE}[?25l"), "the cursor is shown again"
    ending = output[output.rindex(f"{ESCAPE}[?25h") :]
    assert "Finished: nothing is left to fetch." in ending
    assert "URLs known" not in ending


def test_no_color_takes_colours_away_on_a_terminal(on_a_terminal: dict[str, str]) -> None:
    assert not re.search(ESCAPE + r"\[[0-9;]*3[0-9][0-9;]*m", on_a_terminal["no colour"])
    assert "URLs known" in on_a_terminal["no colour"]
