"""What it costs a crawl to be watched: pages a second with somebody who looks at every screen, and without.

    python -m bench.watched                   five pairs, about ten minutes on two cores
    python -m bench.watched --pairs 1 --hosts 100 --pages 50      to try it

Watched means: one listener to the stream of events, the calls of every screen every five seconds, and Prometheus'
scrape each second. They come from this process, whose own CPU time is told: it is what the browser's machine would
spend to read the answers, and here it is taken from the crawl. Crawls go in pairs, one of each kind, and pairs begin
with either kind in turn, because a machine's speed differs more between minutes than by what is measured. The goal is
3 %: a ratio of at least 0.97.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from bench.measure import drain_time_wait, run_measured
from bench.run import RUN_S_MAX, TIME_WAIT_LOW, TIME_WAIT_S_MAX, TMPFS, Site, drumlin_program, serving
from drumlin.protocol import paths

GOAL = 0.97
SPREAD_MAX = 0.1
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
    """Looks at one crawl in three ways until it ends."""

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
class Crawl:
    """One crawl. Its speed is that between the first and the last page that the web served."""

    pages_per_s: float
    cpu_ms_per_page: float
    pages: int

    @property
    def seconds(self) -> float:
        return self.pages / self.pages_per_s


def crawl(site: Site, watched: bool) -> Crawl:
    drain_time_wait(TIME_WAIT_LOW, TIME_WAIT_S_MAX)
    folder = Path(tempfile.mkdtemp(dir=TMPFS, prefix="drumlin-watched-"))
    out, seeds = folder / "crawl", site.seeds
    flags = ["--allow-private", "--quiet", "--json", "--scope", "host", "--delay", "0"]
    command = [drumlin_program(), "crawl", "-i", str(seeds), "--out", str(out), *flags]
    watcher = Watcher(out, seeds.read_text().split()[0])
    site.ask("/_reset")
    try:
        if watched:
            with watcher.watching():
                usage = run_measured(command, RUN_S_MAX)
        else:
            usage = run_measured(command, RUN_S_MAX)
        stats = site.ask("/_stats")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if usage.exit_code or stats["missed"]:
        raise SystemExit(f"the crawl ended with {usage.exit_code} and missed {stats['missed']} pages:\n{usage.output}")
    made = Crawl(
        stats["pages_distinct"] / stats["duration_s"],
        usage.cpu_s * 1000 / stats["pages_distinct"],
        stats["pages_distinct"],
    )
    told = f"{made.pages_per_s:>8,.0f} pages/s {made.cpu_ms_per_page:>6.3f} CPU-ms a page"
    if watched:
        told += (
            f"; every screen {watcher.rounds} times, {watcher.scrapes} scrapes, {watcher.heard_bytes:,} bytes heard, "
        )
        told += f"slowest call {1000 * watcher.slowest_s:.0f} ms, watcher {watcher.cpu_s:.2f} s of CPU"
    print(f"{'watched' if watched else 'alone':<8}{told}", flush=True)
    return made


def _took(watched: Crawl, alone: Crawl) -> str:
    """What the crawl spent on answering: steadier than the speed, on a machine that is shared."""
    more_ms = (watched.cpu_ms_per_page - alone.cpu_ms_per_page) * watched.pages / watched.seconds
    return f"{more_ms:.0f} ms more CPU a second, {more_ms / 10 / (os.cpu_count() or 1):.1f} % of all cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--hosts", type=int, default=400)
    parser.add_argument("--pages", type=int, default=150, help="of each host")
    chosen = parser.parse_args()
    ratios, cpu = [], []
    with serving(chosen.hosts, chosen.pages) as site:
        # The first crawl warms the caches of the machine, and counts for nobody.
        crawl(site, watched=False)
        for number in range(chosen.pairs):
            order = (False, True) if number % 2 == 0 else (True, False)
            made = {watched: crawl(site, watched) for watched in order}
            ratios.append(made[True].pages_per_s / made[False].pages_per_s)
            cpu.append(made[True].cpu_ms_per_page / made[False].cpu_ms_per_page)
            print(f"pair {number + 1}: {ratios[-1]:.3f} of the speed, {_took(made[True], made[False])}", flush=True)
    middle, spread = statistics.median(ratios), f"{min(ratios):.3f} to {max(ratios):.3f}"
    print(f"watched / alone: {middle:.3f} of the pages/s ({spread}), {statistics.median(cpu):.3f} of the CPU a page")
    verdict = "kept" if middle >= GOAL else "missed"
    if max(ratios) - min(ratios) > SPREAD_MAX:
        verdict = "nobody can tell, because the pairs differ too much: run it on a machine that does nothing else"
    print(f"the goal is {GOAL} or more: {verdict}")


if __name__ == "__main__":
    main()
