"""A site that asked for a slower pace gets it, whichever process is killed: a real server, and kill -9."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.crawls import Crawl, kill_process, wait_until
from tests.harness.kills import Victim
from tests.harness.raw_web import RawWeb

DELAY_S = 0.3
REFUSALS = 2
PACE_S = 2.0
"""The delay after two answers of 429: 1 s, 2 s."""
PACE_S_MIN = PACE_S * 0.98**2 - 0.05
"""Each later answer makes it a fiftieth shorter."""
PAGES = 30
WAIT_S_MAX = 60.0


class BusySite(RawWeb):
    """Answers 429 a few times and then normally; notes when it was asked."""

    def __init__(self) -> None:
        super().__init__({})
        self.arrivals: list[float] = []
        links = "".join(f'<a href="/{number}">x</a>' for number in range(PAGES))
        self._page = f"<!DOCTYPE html><title>x</title>{links}".encode()
        self.answers = dict.fromkeys([f"/{number}" for number in range(PAGES)], self._heed)
        self.answers["/"] = self._ok()

    def _ok(self) -> bytes:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
        return head % len(self._page) + self._page

    def _heed(self, head: bytes) -> bytes:
        self.arrivals.append(time.monotonic())
        if len(self.arrivals) <= REFUSALS:
            return b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"
        return self._ok()


@pytest.fixture
def site() -> Iterator[BusySite]:
    site = BusySite()
    with site:
        yield site


@pytest.mark.parametrize("victim", [Victim.NODE, Victim.ALL])
def test_a_host_that_was_slowed_down_keeps_its_wait_when_its_holder_is_killed(
    tmp_path: Path, site: BusySite, victim: Victim
) -> None:
    crawl = Crawl(tmp_path / "crawl", site.url(), "--nodes", "1", "--delay", str(DELAY_S))
    try:
        crawl.start()
        answered = REFUSALS + 1
        wait_until(lambda: len(site.arrivals) >= answered, WAIT_S_MAX, "an answer at the slower pace")
        nodes = crawl.nodes()
        if victim is Victim.ALL:
            crawl.process.kill()
            crawl.process.wait()
        for node in nodes:
            kill_process(node)
        if victim is Victim.ALL:
            crawl.start()
        wait_until(lambda: len(site.arrivals) > answered + 1, WAIT_S_MAX, f"more contacts {crawl.errors}")
    finally:
        crawl.end()
    gaps = [later - earlier for earlier, later in zip(site.arrivals, site.arrivals[1:], strict=False)]
    assert min(gaps[REFUSALS - 1 :]) >= PACE_S_MIN, gaps
