"""Real crawls for tests: the benchmark web and `drumlin crawl` as child processes, each ended with its test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
DRUMLIN = str(Path(sys.executable).parent / "drumlin")
FLAGS = ("--delay", "0", "--allow-private", "--quiet", "--json")
POLL_S = 0.02
ASK_S_MAX = 10.0
LIST_S_MAX = 60.0


class Web:
    """The benchmark web (`bench.web`) and its counts of requests."""

    def __init__(self, port: int, pages: int, seeds: Path) -> None:
        self.port = port
        self.pages = pages
        self.seeds = seeds

    def accounts(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/_stats", timeout=ASK_S_MAX) as answer:
            accounts: dict[str, Any] = json.load(answer)
        return accounts


@contextmanager
def benchmark_web(folder: Path, hosts: int, pages: int, *flags: str) -> Iterator[Web]:
    """Hosts of so many pages each, in a process of their own."""
    seeds = folder / "seeds.txt"
    shape = ["--hosts", str(hosts), "--pages", str(pages), "--seeds-file", str(seeds)]
    command = [sys.executable, "-m", "bench.web", *shape, *flags]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield Web(json.loads(server.stdout.readline())["port"], hosts * pages, seeds)
        finally:
            server.terminate()


class Crawl:
    """`drumlin crawl` with fixed arguments, which can be started again after a kill, as a person would."""

    def __init__(self, out: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.out = out
        self._command = [DRUMLIN, "crawl", "--out", str(out), *FLAGS, *arguments]
        # A killed coordinator cannot remove the folder of its socket, so it gets one that `end` removes.
        self._sockets = tempfile.mkdtemp(prefix="drumlin-test-")
        self._environment = {**os.environ, "TMPDIR": self._sockets, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._seen: dict[int, psutil.Process] = {}

    def start(self) -> None:
        # Output goes to files: nobody reads a pipe while the test waits for something else.
        with open(f"{self.out}.stdout", "w") as stdout, open(f"{self.out}.stderr", "a") as stderr:
            self._process = subprocess.Popen(
                self._command, stdout=stdout, stderr=stderr, text=True, env=self._environment, cwd=self.out.parent
            )

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the crawl was not started"
        return self._process

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def errors(self) -> str:
        return Path(f"{self.out}.stderr").read_text()

    def nodes(self) -> list[psutil.Process]:
        try:
            children: list[psutil.Process] = psutil.Process(self.process.pid).children()
        except psutil.NoSuchProcess:
            return []
        self._seen |= {child.pid: child for child in children}
        return children

    def wait(self, seconds_max: float) -> int:
        return self.process.wait(seconds_max)

    def report(self) -> dict[str, Any]:
        """The report of a crawl that has ended, as it printed it."""
        report: dict[str, Any] = json.loads(Path(f"{self.out}.stdout").read_text())
        return report

    def run(self, seconds_max: float) -> dict[str, Any]:
        """Crawl to the end and return the report."""
        self.start()
        try:
            code = self.wait(seconds_max)
        finally:
            self.end()
        assert code == 0, f"exit code {code}: {self.errors}"
        return self.report()

    def end(self) -> None:
        """Leave no process and no socket behind, whatever happened."""
        if self._process is not None:
            self._end_processes()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _end_processes(self) -> None:
        self.nodes()
        if self.running:
            self.process.kill()
        self.process.wait()
        for node in self._seen.values():
            kill_process(node)


def kill_process(process: psutil.Process) -> bool:
    """Kill -9 one process. psutil compares start times, so another process with the same number is left alone."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def wait_until(condition: Callable[[], bool], seconds_max: float, what: str, poll_s: float = POLL_S) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds_max} s"
        time.sleep(poll_s)


def dead_letters(out: Path) -> list[dict[str, Any]]:
    """The dead letters of a crawl, as `drumlin dead-letters list --json` prints them."""
    command = [DRUMLIN, "dead-letters", "list", "--json", "--out", str(out)]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=LIST_S_MAX, check=True)
    letters: list[dict[str, Any]] = json.loads(listed.stdout)
    return letters
