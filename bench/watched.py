"""What it costs a crawl to be watched: pages a second with somebody who looks at every screen, and without.

    python -m bench.watched                   14 pairs, about eight minutes on two cores
    python -m bench.watched --pairs 2 --seconds 5 --pages 100     to try it

Watched means: one listener to the stream of events, the calls of every screen every five seconds, and Prometheus'
scrape each second. They come from this process, whose own CPU time is told: it is what the browser's machine would
spend to read the answers, and here it is taken from the crawl.

One crawl is watched and left alone in turn, for some seconds each. Neighbouring times make a pair, and pairs begin with
either kind in turn. A shared machine is faster in one minute than in the next by more than what is measured, so two
whole crawls cannot be compared: pairs of them differed by 15 %. The goal is 3 %: a ratio of at least 0.97.

The pages are the small ones of `bench.small`: what is written during eight minutes at full speed must fit into memory.
"""

from __future__ import annotations

import argparse
import http.client
import random
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import psutil

from bench.run import TMPFS, Site, drumlin_program, serving
from bench.small import SHAPE
from drumlin.protocol import paths

GOAL = 0.97
SURE = 0.9
DRAWS = 2_000
WARM_S = 15.0
END_S_MAX = 60.0
SCREENS_EVERY_S = 5.0
SCRAPE_EVERY_S = 1.0
CONNECT_EVERY_S = 0.05
SOCKET_S_MAX = 10.0
PIECE_BYTES = 65_536
LISTED: tuple[tuple[str, Mapping[str, object]], ...] = (
    (paths.WHY_IDLE, {}),
    (paths.CRAWL, {}),
    (paths.HISTORY, {"span": "hour"}),
    *((paths.HOSTS, {"state": state, "limit": 50}) for state in ("leased", "ready", "waiting")),
    *((paths.HOSTS, {"state": state, "limit": 200}) for state in ("leased", "backoff", "blocked")),
    (paths.HOSTS, {"state": "all", "limit": 100}),
    *((paths.NODES, {"status": status, "limit": 200}) for status in ("failed", "active")),
    (paths.DEAD_LETTER_GROUPS, {}),
    (paths.DEAD_LETTER_GROUPS, {"by": "host", "limit": 10}),
    (paths.DEAD_LETTERS, {"limit": 100}),
    (paths.SETTINGS, {}),
    (paths.AUDIT, {"limit": 100}),
)
SCREENS = tuple(f"{path}?{urlencode(query)}" if query else path for path, query in LISTED)
"""What all screens ask for, except of one host and one URL: `Watcher` adds these."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP by the crawl's own socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SOCKET_S_MAX)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Watcher:
    """Looks at a crawl in three ways for a while."""

    def __init__(self, out: Path, url: str) -> None:
        self._address = out / "run" / "address"
        self._ended = threading.Event()
        host = url.split("/")[2]
        self._calls = (*SCREENS, f"{paths.HOSTS}/{host}", f"{paths.URLS}?{urlencode({'url': url})}")
        self.rounds = 0
        self.scrapes = 0
        self.heard_bytes = 0
        self.slowest_s = 0.0
        self.cpu_s = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        began = time.process_time()
        work = (self._listen, self._look, self._scrape)
        threads = [threading.Thread(target=self._until_the_end, args=(one,), daemon=True) for one in work]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join(SOCKET_S_MAX)
            self.cpu_s = time.process_time() - began

    @property
    def told(self) -> str:
        said = f"every screen {self.rounds} times, {self.scrapes} scrapes, {self.heard_bytes:,} bytes heard"
        return f"{said}, slowest call {1000 * self.slowest_s:.0f} ms, watcher {self.cpu_s:.2f} s of CPU"

    def _until_the_end(self, work: Callable[[http.client.HTTPConnection], None]) -> None:
        """Connect, and again if the connection fails: the crawl begins later and ends earlier than we do."""
        while not self._ended.wait(CONNECT_EVERY_S):
            try:
                connection = UnixConnection(self._address.read_text())
                work(connection)
            except (OSError, http.client.HTTPException):
                continue

    def _listen(self, connection: http.client.HTTPConnection) -> None:
        connection.request("GET", paths.EVENTS, headers={"Accept": "text/event-stream"})
        stream = connection.getresponse()
        while not self._ended.is_set() and (piece := stream.read1(PIECE_BYTES)):
            self.heard_bytes += len(piece)
        connection.close()

    def _look(self, connection: http.client.HTTPConnection) -> None:
        while True:
            for call in self._calls:
                self._ask(connection, call)
            self.rounds += 1
            if self._ended.wait(SCREENS_EVERY_S):
                return

    def _scrape(self, connection: http.client.HTTPConnection) -> None:
        while not self._ended.wait(SCRAPE_EVERY_S):
            self._ask(connection, paths.METRICS)
            self.scrapes += 1

    def _ask(self, connection: http.client.HTTPConnection, call: str) -> None:
        began = time.monotonic()
        connection.request("GET", call)
        connection.getresponse().read()
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)


@dataclass(frozen=True)
class Slice:
    """A part of a crawl: how many pages the web served in it, and what the crawl's processes spent."""

    pages: float
    seconds: float
    cpu_s: float

    @property
    def pages_per_s(self) -> float:
        return self.pages / self.seconds

    @property
    def cpu_ms_per_page(self) -> float:
        return 1000 * self.cpu_s / self.pages


class CrawlEndedError(Exception):
    """The crawl had nothing left to fetch before a part of it was measured."""


class Crawl:
    """One long crawl, which is measured while it runs."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site = site
        self.out = folder / "crawl"
        flags = ["--allow-private", "--quiet", "--json", "--scope", "host", "--delay", "0"]
        self._command = [drumlin_program(), "crawl", "-i", str(site.seeds), "--out", str(self.out), *flags]
        self._url = site.seeds.read_text().split()[0]

    @contextmanager
    def running(self) -> Iterator[None]:
        with subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            self._process = psutil.Process(process.pid)
            try:
                yield
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=END_S_MAX)

    def measure(self, seconds: float, *, watched: bool) -> Slice:
        """What the next `seconds` bring."""
        if not watched:
            return self._measure(seconds)
        watcher = Watcher(self.out, self._url)
        with watcher.watching():
            made = self._measure(seconds)
        print(f"  {watcher.told}", flush=True)
        return made

    def _measure(self, seconds: float) -> Slice:
        began, pages, cpu_s = self._look()
        time.sleep(seconds)
        ended, pages_then, cpu_s_then = self._look()
        if self._process.status() == psutil.STATUS_ZOMBIE:
            raise CrawlEndedError
        return Slice(pages_then - pages, ended - began, cpu_s_then - cpu_s)

    def _look(self) -> tuple[float, float, float]:
        family = [self._process, *self._process.children()]
        cpu_s = sum(sum(one.cpu_times()[:2]) for one in family)
        return time.monotonic(), self._site.ask("/_stats?short")["pages_served"], cpu_s


def surely(ratios: Sequence[float]) -> tuple[float, float]:
    """Between which bounds the median is, as 90 of 100 draws from these ratios say."""
    chance = random.Random(1)
    drawn = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    left_out = int(DRAWS * (1 - SURE) / 2)
    return drawn[left_out], drawn[-1 - left_out]


def verdict(low: float, high: float) -> str:
    if low >= GOAL:
        return "kept"
    return "missed" if high < GOAL else "nobody can tell: give more --pairs, or a machine that does nothing else"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each half of a pair: a multiple of 5")
    parser.add_argument("--hosts", type=int, default=2_000)
    parser.add_argument("--pages", type=int, default=1_000, help="of each host")
    chosen = parser.parse_args()
    ratios, cpu = [], []
    folder = Path(tempfile.mkdtemp(dir=TMPFS, prefix="drumlin-watched-"))
    try:
        with serving(chosen.hosts, chosen.pages, *SHAPE) as site:
            crawl = Crawl(site, folder)
            with crawl.running(), suppress(CrawlEndedError):
                time.sleep(WARM_S)
                for number in range(chosen.pairs):
                    order = (False, True) if number % 2 == 0 else (True, False)
                    made = {watched: crawl.measure(chosen.seconds, watched=watched) for watched in order}
                    ratios.append(made[True].pages_per_s / made[False].pages_per_s)
                    cpu.append(made[True].cpu_ms_per_page / made[False].cpu_ms_per_page)
                    told = f"{made[False].pages_per_s:,.0f} pages/s alone, {made[True].pages_per_s:,.0f} watched"
                    print(f"pair {number + 1}: {told}, {ratios[-1]:.3f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if len(ratios) < chosen.pairs:
        print(f"The crawl ended after {len(ratios)} of {chosen.pairs} pairs: give it more --pages.")
    if not ratios:
        raise SystemExit(1)
    low, high = surely(ratios)
    speed, more = statistics.median(ratios), statistics.median(cpu)
    print(f"watched / alone: {speed:.3f} of the pages/s, {more:.3f} of the CPU a page")
    bounds = f"{low:.3f} to {high:.3f} ({SURE:.0%} sure)"
    print(f"single pairs {min(ratios):.3f} to {max(ratios):.3f}; the median is {bounds}")
    print(f"the goal is {GOAL} or more: {verdict(low, high)}")


if __name__ == "__main__":
    main()
