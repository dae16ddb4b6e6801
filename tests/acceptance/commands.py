"""Running the `drumlin` command as a user does, and webs for it to crawl."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import duckdb

from drumlin.testing import FakeWeb

TIMEOUT_S = 120.0
WAIT_S = 60.0
POLL_S = 0.01
FAST = ("--allow-private", "--delay", "0", "--nodes", "1")
"""A crawl of loopback without delay, by one node."""
NO_PATIENCE = ("--retries-max", "0", "--backoff-base", "0.1", "--host-patience", "0s")

Done = subprocess.CompletedProcess[str]


def environment(folder: Path, more: Mapping[str, str] = {}) -> dict[str, str]:
    """The environment of the tests without variables that would change a command's settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DRUMLIN_", "NO_COLOR"))}
    return clean | {"TMPDIR": str(folder), **more}


def drumlin(folder: Path, *arguments: str | Path, **more: Any) -> Done:
    """Run one command to its end. `more` goes to subprocess.run."""
    command = [sys.executable, "-m", "drumlin", *map(str, arguments)]
    options: dict[str, Any] = {"capture_output": True, "timeout": TIMEOUT_S, "env": environment(folder)} | more
    return subprocess.run(command, cwd=folder, check=False, text=True, **options)


def crawl(folder: Path, *arguments: str | Path, **more: Any) -> Done:
    return drumlin(folder, "crawl", *FAST, *arguments, **more)


def report(folder: Path, out: str = "crawl") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / out / "report.json").read_bytes())
    return found


def stored_urls(out: Path) -> list[str]:
    """The URLs in a crawl's table of pages."""
    rows = duckdb.read_parquet(str(out / "tables" / "pages" / "*.parquet")).project("url").fetchall()
    return sorted(url for (url,) in rows)


@contextmanager
def running(folder: Path, *arguments: str | Path, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A running command. Whatever the test does, it is gone afterwards."""
    command = [sys.executable, "-m", "drumlin", *map(str, arguments)]
    pipes: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "env": environment(folder),
    }
    # A session of its own, as on a terminal: signals to it reach every process of a crawl.
    with subprocess.Popen(command, cwd=folder, start_new_session=True, **(pipes | more)) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def end(process: subprocess.Popen[str], number: signal.Signals | None = None) -> Done:
    """Wait for the end of a command, after sending it a signal if one is given."""
    if number is not None:
        os.killpg(process.pid, number)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def wait_until(happened: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {WAIT_S} s for {what}")
        time.sleep(POLL_S)


def sentence(done: Done) -> str:
    """The one sentence that a failed command prints. Also checks that it prints nothing else."""
    assert done.stderr.startswith("drumlin: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip()


def pages_of(web: FakeWeb, host: str) -> list[str]:
    """The paths that a host was asked for, in order, without robots.txt."""
    return [request.path for request in web.requests if request.host == host and request.path != "/robots.txt"]


def chain(web: FakeWeb, host: str, count: int) -> str:
    """Add a host whose home page links to `count` - 1 other pages. Returns the URL of the home page."""
    links = "".join(f'<a href="/{number}.html">{number}</a>' for number in range(1, count))
    for number in range(1, count):
        web.page(host, f"/{number}.html", f"<title>{host} {number}</title><p>page {number} of {host}")
    return web.page(host, "/", f"<title>{host}</title>{links}")


class NamedHosts:
    """Sites with names: every name below `localhost` is this machine, and one server answers for all by Host header."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                name = self.headers["Host"].partition(":")[0] + self.path
                if not self.path.startswith("/robots.txt"):
                    asked.append(name)
                body = pages.get(name, "").replace("PORT", self.headers["Host"].partition(":")[2]).encode()
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_request(self, *code_and_size: object) -> None:
                """Log nothing: the test looks at `asked`."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self) -> NamedHosts:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *ending: object) -> None:
        self._server.shutdown()
        self._server.server_close()
