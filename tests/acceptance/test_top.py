"""`drumlin top` on a real terminal, watching a real crawl and a coordinator that goes away."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumlin.client.remote import EXIT_COORDINATOR
from drumlin.errors import EXIT_OK, EXIT_USAGE
from drumlin.testing import FakeWeb
from tests.acceptance.commands import (
    NO_PATIENCE,
    chain,
    crawl,
    drumlin,
    end,
    environment,
    running,
    sentence,
    wait_until,
)

NORMAL = "\x1b[?1049l"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
HOME = "\x1b[H"


class Terminal:
    """A terminal with a program on it: what it has shown, and keys."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self.shown = ""
        self.process = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._leader, 65_536):
                self.shown += piece.decode("utf-8", "replace")
        except OSError:
            return

    def press(self, keys: str) -> None:
        os.write(self._leader, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def picture(self) -> list[str]:
        """The lines of the latest whole picture."""
        whole = [piece for piece in self.shown.split(HOME)[1:-1] if "\n" in piece]
        return [CONTROL.sub("", line).rstrip() for line in whole[-1].replace("\r", "").split("\n")] if whole else []

    def wait_for(self, words: str) -> None:
        wait_until(lambda: words in "\n".join(self.picture) or words in self.afterwards, words)

    @property
    def afterwards(self) -> str:
        """What was written after the whole screen was left."""
        return self.shown.partition(NORMAL)[2]


@contextmanager
def on_terminal(folder: Path, *arguments: str, columns: int = 80, lines: int = 24, **more: str) -> Iterator[Terminal]:
    leader, follower = pty.openpty()
    variables = environment(folder, {"TERM": "xterm-256color"} | more)
    variables = {name: value for name, value in variables.items() if name not in ("COLUMNS", "LINES")}
    terminal = Terminal(leader)
    terminal.resize(columns, lines)
    streams = {"stdin": follower, "stdout": follower, "stderr": follower}
    with running(folder, *arguments, env=variables, text=None, **streams) as process:
        terminal.process = process.pid
        yield terminal
        assert process.wait(30) == EXIT_OK
        assert termios.tcgetattr(follower)[3] & termios.ECHO, "the terminal is as it was"
    os.close(follower)
    wait_until(lambda: NORMAL in terminal.shown, "the end of the screen")
    os.close(leader)


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        yield made


def test_it_watches_a_crawl_to_its_end_and_says_where_to_look_next(web: FakeWeb, tmp_path: Path) -> None:
    home = chain(web, "watched", 300)
    arguments = ("--delay", "1", *NO_PATIENCE, "--out", "crawl", "--allow-private", "--nodes", "1")
    with running(tmp_path, "crawl", home, *arguments) as process:
        wait_until(lambda: web.url("watched", "/2.html") in web.requested, "the third page")
        with on_terminal(tmp_path, "top", "--out", "crawl") as terminal:
            terminal.wait_for("with n0")
            assert [line for line in terminal.picture if len(line) > 80] == []
            assert "Politeness: The one host that has URLs left" in "\n".join(terminal.picture)
            terminal.press("2")
            terminal.wait_for("in flight  hosts")
            terminal.press("\t")
            terminal.wait_for("No URL was given up.")
            terminal.press("?")
            terminal.wait_for("leave; the crawl goes on")
            terminal.press("1")
            terminal.press("p")
            terminal.wait_for("Held at")
            terminal.resize(132, 40)
            terminal.wait_for("─" * 90)
            terminal.press("p")
            assert drumlin(tmp_path, "pause", "--out", "crawl").returncode == EXIT_OK
            terminal.wait_for("The crawl is paused")
            assert drumlin(tmp_path, "stop", "--out", "crawl").returncode == EXIT_OK
            terminal.wait_for("`drumlin open crawl` shows it in a browser")
        assert end(process).returncode == EXIT_OK
    assert COLOUR.search(terminal.shown)
    assert "Stopped by an operator" in terminal.afterwards


def test_q_and_signals_leave_the_terminal_as_it_was_and_the_crawl_alone(web: FakeWeb, tmp_path: Path) -> None:
    home = chain(web, "left alone", 300)
    arguments = ("--delay", "1", *NO_PATIENCE, "--out", "crawl", "--allow-private", "--nodes", "1")
    with running(tmp_path, "crawl", home, *arguments) as process:
        wait_until(lambda: web.url("left alone", "/2.html") in web.requested, "the third page")
        for number in (None, signal.SIGINT, signal.SIGTERM):
            with on_terminal(tmp_path, "top", "--out", "crawl", NO_COLOR="1") as terminal:
                terminal.wait_for("with n0")
                if number is None:
                    terminal.press("q")
                else:
                    os.kill(terminal.process, number)
            assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l"), "the cursor is shown again"
            assert terminal.afterwards.strip() in ("", "\x1b[?25h")
            assert not COLOUR.search(terminal.shown)
        assert process.poll() is None
        assert json.loads(drumlin(tmp_path, "top", "--json").stdout)["stats"]["state"] == "running"
        assert "Politeness" in drumlin(tmp_path, "top", "--once").stdout
        end(process, signal.SIGINT)


def test_a_coordinator_that_goes_away_is_waited_for(tmp_path: Path) -> None:
    arguments = (
        "--listen",
        f"unix:{tmp_path}/socket",
        "--engine",
        f"rocksdb:{tmp_path}/queue",
        "--no-finish",
        "--no-auth",
    )
    address = f"unix:{tmp_path}/socket"

    def is_up() -> bool:
        return drumlin(tmp_path, "status", "--coordinator", address).returncode == EXIT_OK

    with running(tmp_path, "coordinator", *arguments) as first:
        wait_until(is_up, "the coordinator")
        with on_terminal(tmp_path, "top", "--coordinator", address) as terminal:
            terminal.wait_for("No URL is waiting to be fetched")
            end(first, signal.SIGTERM)
            terminal.wait_for("No answer for")
            terminal.wait_for("No coordinator listens at")
            with running(tmp_path, "coordinator", *arguments) as second:
                terminal.wait_for("the coordinator answers again, after")
                terminal.press("q")
                end(second, signal.SIGTERM)


def test_without_a_terminal_it_says_what_to_do_instead(web: FakeWeb, tmp_path: Path) -> None:
    assert crawl(tmp_path, chain(web, "finished", 3), "--out", "crawl").returncode == EXIT_OK
    done = drumlin(tmp_path, "top", "--out", "crawl")
    assert done.returncode == EXIT_USAGE
    assert "Give --once for one picture or --json for one sample" in sentence(done)
    once = drumlin(tmp_path, "top", "--once", "--out", "crawl").stdout
    assert "The crawl is finished." in once
    assert "`drumlin open crawl` shows it in a browser" in once
    assert "\x1b" not in once
    failures = drumlin(tmp_path, "top", "--once", "--show", "failures", "--out", "crawl").stdout
    assert "No URL was given up." in failures
    seen = json.loads(drumlin(tmp_path, "top", "--json", "--out", "crawl").stdout)
    assert seen["stats"]["pages"] == 3
    assert set(seen) == {"stats", "why", "crawl", "history", "hosts", "nodes", "causes", "dead_letters"}


def test_a_crawl_that_does_not_run_is_shown_once(web: FakeWeb, tmp_path: Path) -> None:
    assert crawl(tmp_path, chain(web, "stands", 3), "--out", "crawl", "--pages-max", "2").returncode == EXIT_OK
    shown = drumlin(tmp_path, "top", "--once", "--out", "crawl").stdout
    assert "not running" in shown
    assert "It does not run." in shown


def test_nobody_there_is_one_sentence(tmp_path: Path) -> None:
    done = drumlin(tmp_path, "top", "--once", "--coordinator", "http://127.0.0.1:9")
    assert done.returncode == EXIT_COORDINATOR
    assert "No coordinator listens" in sentence(done)
