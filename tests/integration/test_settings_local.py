"""`drumlin set` on a crawl on one machine: it takes effect at once, and stays when the same command resumes the
crawl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from drumlin.client.remote import CoordinatorError, Remote
from tests.harness.crawls import DRUMLIN, Crawl, benchmark_web, wait_until

HOSTS = 4
PAGES = 40
SLOW_S = 15.0
FAST_S = 0.01
STEP_S_MAX = 60.0
CRAWL_S_MAX = 120.0


def settings_of(endpoint: str) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = Remote([endpoint]).get("/api/v1/crawl")["config"]
    except CoordinatorError:
        return {}
    return settings


def wait_until_it_answers(endpoint: str) -> None:
    wait_until(lambda: bool(settings_of(endpoint)), STEP_S_MAX, "the crawl's first answer")


def set_to(endpoint: str, name: str, value: str) -> str:
    command = [DRUMLIN, "set", name, value, "--coordinator", endpoint]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STEP_S_MAX, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_changed_delay_is_followed_and_kept_after_a_kill(tmp_path: Path) -> None:
    with benchmark_web(tmp_path, HOSTS, PAGES) as web:
        crawl = Crawl(tmp_path / "c", "-i", str(web.seeds), "--nodes", "2", "--delay", f"{SLOW_S:g}s")
        # The folder has a short name: if it were too long for a socket, the socket would be in the temporary folder.
        endpoint = f"unix:{tmp_path / 'c' / 'run' / 'socket'}"
        try:
            crawl.start()
            wait_until_it_answers(endpoint)
            assert set_to(endpoint, "delay", f"{FAST_S}s") == f"delay was {SLOW_S:g}s and is {FAST_S}s now.\n"
            # With the old delay a host's second page would come after a quarter of a minute.
            wait_until(lambda: web.accounts()["pages_distinct"] > 2 * HOSTS, STEP_S_MAX, "some pages of each host")
            crawl.process.kill()
            crawl.wait(STEP_S_MAX)
            crawl.start()
            assert crawl.wait(CRAWL_S_MAX) == 0, crawl.errors
        finally:
            crawl.end()
        assert web.accounts()["missed"] == 0
