"""pywb over a crawl directory, and headless Chromium to look at what it replays."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.crawls import ROOT
from tests.harness.nginx import free_port

WAYBACK = ROOT / ".venv-replay" / "bin" / "wayback"
CHROMIUM = shutil.which("chromium")
START_S_MAX = 60.0
STOP_S_MAX = 10.0
BROWSER_S_MAX = 120.0
WINDOW = "1200,1400"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    f"--window-size={WINDOW}",
    # Scripts of the page run in virtual time, so the picture is always taken after they are done.
    "--virtual-time-budget=20000",
]
CONFIGURATION = """
# Without a frame, the browser loads the page itself.
framed_replay: false
collections:
  crawl:
    index_paths: {out}/warc/index.cdxj
    archive_paths: {out}/warc/
"""


class Replay:
    """A running pywb."""

    def __init__(self, port: int) -> None:
        self._origin = f"http://127.0.0.1:{port}"

    def address(self, url: str) -> str:
        """Where the newest capture of a URL is replayed."""
        return f"{self._origin}/crawl/{url}"

    def status(self, url: str) -> int:
        try:
            with urllib.request.urlopen(self.address(url), timeout=START_S_MAX) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code


@contextmanager
def pywb(folder: Path, out: Path) -> Iterator[Replay]:
    """Replay the crawl directory `out` straight from its WARC files and their merged index."""
    if not WAYBACK.exists():
        pytest.skip("pywb is not installed: make .venv-replay/.ready")
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIGURATION.format(out=out))
    port = free_port()
    command = [str(WAYBACK), "-b", "127.0.0.1", "-p", str(port), "-d", str(folder)]
    # pywb has an environment of its own, and PYTHONPATH of the tests is for another one.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with open(folder / "output.log", "wb") as output:
        server = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=environment)
    try:
        _wait_for(server, folder, f"http://127.0.0.1:{port}/")
        yield Replay(port)
    finally:
        server.terminate()
        server.wait(STOP_S_MAX)


def _wait_for(server: subprocess.Popen[bytes], folder: Path, address: str) -> None:
    deadline = time.monotonic() + START_S_MAX
    while True:
        assert server.poll() is None, (folder / "output.log").read_text()
        assert time.monotonic() < deadline, "pywb does not answer"
        try:
            urllib.request.urlopen(address, timeout=START_S_MAX).close()
            return
        except urllib.error.URLError:
            time.sleep(0.2)


def browse(address: str, *flags: str) -> str:
    """Open a page in a new Chromium. Returns what it printed."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="drumlin-chromium-", ignore_cleanup_errors=True) as profile:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *flags, address]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=BROWSER_S_MAX, check=False)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def screenshot(address: str, path: Path) -> int:
    """Take a picture of a page. Returns its size in bytes: a blank picture is small."""
    browse(address, f"--screenshot={path}")
    return path.stat().st_size
