"""How long each call takes that a screen of the dashboard makes, over a large crawl: 10,000 nodes, 1 million hosts and
10 million URLs, on RocksDB and on Redis.

    python -m bench.screens                          both engines; takes half an hour, most of it to fill them
    python -m bench.screens --small                  100 nodes, 10 thousand hosts, 100 thousand URLs: to try it
    python -m bench.screens --engine redis --masters 3 --keep DIR      kept in DIR, and used again the next time

A real coordinator process answers, over HTTP, one call after the other, each `--rounds` times. In the table, `first` is
the first call, `p50` and `max` are over the others. Free SQL is not measured: it may take as long as it is given.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import urlencode

from bench.load_servers import ADDRESS, Redis, Security, start_coordinator, stopping
from bench.screens_frontier import Size, fill, host_name, url_of
from drumlin.engines import open_engine
from drumlin.fleet.cluster import free_ports
from drumlin.protocol import paths

FULL = Size(10_000, 1_000_000, 10_000_000)
SMALL = Size(100, 10_000, 100_000)
GOAL_MS = 300.0
ANSWER_S_MAX = 120.0
LOAD_S_MAX = 900.0
"""How long Redis may take to read a kept frontier."""
SHOWN = {"hosts": 200, "by_name": 100, "nodes": 200, "letters": 100, "groups": 10, "overview": 50, "audit": 100}
"""How much the screens ask for at a time."""


class Asked(NamedTuple):
    screen: str
    call: str
    path: str


class Measured(NamedTuple):
    asked: Asked
    first_ms: float
    p50_ms: float
    max_ms: float
    kilobytes: float


def _asked(screen: str, path: str, **query: object) -> Asked:
    words = f"{path}?{urlencode(query)}" if query else path
    return Asked(screen, words.removeprefix("/api/v1/"), words)


def calls(size: Size, coordinator: Coordinator) -> list[Asked]:
    """What each screen asks for."""
    middle = host_name(size.hosts // 2)
    letters = coordinator.ask(f"{paths.DEAD_LETTERS}?limit=1")["dead_letters"]
    given_up = letters[0] if letters else {"kind": "dns", "host": middle, "url": url_of(0, 0)}
    halfway = f"{given_up['kind']} {middle} 0"
    states = ("leased", "ready", "waiting", "backoff", "blocked")
    return [
        _asked("all", paths.STATS),
        _asked("all", paths.EVENTS),
        _asked("Overview", paths.WHY_IDLE),
        _asked("Overview", paths.CRAWL),
        *(_asked("Overview", paths.HISTORY, span=span) for span in ("hour", "day", "month")),
        *(_asked("Overview", paths.HOSTS, state=state, limit=SHOWN["overview"]) for state in states[:3]),
        *(_asked("Hosts", paths.HOSTS, state=state, limit=SHOWN["hosts"]) for state in states),
        _asked("Hosts", paths.HOSTS, state="all", limit=SHOWN["by_name"]),
        _asked("Hosts", paths.HOSTS, state="all", prefix="news.site-9", limit=SHOWN["by_name"]),
        _asked("Hosts", paths.HOSTS, state="all", after=middle, limit=SHOWN["by_name"]),
        _asked("Host", paths.HOST.format(host=middle)),
        _asked("URLs", paths.URLS, url=url_of(size.hosts // 2, 1)),
        _asked("URLs", paths.URLS, url=given_up["url"]),
        _asked("Nodes", paths.NODES, status="failed", limit=SHOWN["nodes"]),
        _asked("Nodes", paths.NODES, status="active", limit=SHOWN["nodes"]),
        _asked("Nodes", paths.NODES, status="active", prefix="node-09", limit=SHOWN["nodes"]),
        _asked("Failures", paths.DEAD_LETTER_GROUPS),
        _asked("Failures", paths.DEAD_LETTER_GROUPS, by="host", limit=SHOWN["groups"]),
        _asked(
            "Failures",
            paths.DEAD_LETTER_GROUPS,
            by="host",
            after=f"-1 {given_up['kind']} {middle}",
            limit=SHOWN["groups"],
        ),
        _asked("Failures", paths.DEAD_LETTERS, limit=SHOWN["letters"]),
        _asked("Failures", paths.DEAD_LETTERS, after=halfway, limit=SHOWN["letters"]),
        _asked("Failures", paths.DEAD_LETTERS, kind=given_up["kind"], limit=SHOWN["letters"]),
        _asked("Failures", paths.DEAD_LETTERS, host=given_up["host"], limit=SHOWN["letters"]),
        _asked("Settings", paths.SETTINGS),
        _asked("Audit", paths.AUDIT, limit=SHOWN["audit"]),
        _asked("Prometheus", paths.METRICS),
    ]


class Coordinator:
    """The process under test, and one connection to it."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(ADDRESS, port, timeout=ANSWER_S_MAX)

    def read(self, path: str) -> bytes:
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"GET {path} was answered with {answer.status}: {body[:300]!r}")
        return body

    def ask(self, path: str) -> dict[str, list[dict[str, str]]]:
        answer: dict[str, list[dict[str, str]]] = json.loads(self.read(path))
        return answer


def measure(coordinator: Coordinator, asked: Asked, rounds: int, pause_s: float) -> Measured:
    times_ms: list[float] = []
    size = 0
    for _ in range(rounds + 1):
        began = time.monotonic()
        size = len(coordinator.read(asked.path))
        times_ms.append((time.monotonic() - began) * 1000)
        # Figures are kept for a moment: whoever asks again at once would measure that.
        time.sleep(pause_s)
    return Measured(asked, times_ms[0], statistics.median(times_ms[1:]), max(times_ms[1:]), size / 1000)


def show(engine: str, size: Size, rows: list[Measured]) -> None:
    print(f"\n{engine}: {size.nodes:,} nodes, {size.hosts:,} hosts, {size.urls:,} URLs; milliseconds")
    print(f"{'screen':<11}{'first':>8}{'p50':>8}{'max':>8}{'kB':>8}  call")
    for row in rows:
        figures = f"{row.first_ms:>8.1f}{row.p50_ms:>8.1f}{row.max_ms:>8.1f}{row.kilobytes:>8.0f}"
        print(f"{row.asked.screen:<11}{figures}  {row.asked.call}{'  OVER' if row.p50_ms > GOAL_MS else ''}")
    worst = max(rows, key=lambda row: row.max_ms)
    print(f"slowest: {worst.asked.call}, {worst.max_ms:.0f} ms; the goal is {GOAL_MS:.0f} ms", flush=True)


async def build(url: str, size: Size) -> None:
    engine = await open_engine(url)
    try:
        await fill(engine, size)
    finally:
        await engine.close()


def run(engine: str, size: Size, folder: Path, masters: int, rounds: int, pause_s: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    filled = folder / "filled.json"
    if filled.exists() and json.loads(filled.read_text()) != list(size):
        raise SystemExit(f"{folder} has a frontier of another size: choose another folder, or the sizes in {filled}.")
    with ExitStack() as stack:
        if filled.exists() and masters > 1:
            raise SystemExit("A cluster cannot be started again on other ports: leave --keep out, or take --masters 1.")
        redis = Redis(folder, masters, start_s_max=LOAD_S_MAX) if engine == "redis" else None
        if redis is not None:
            stack.callback(redis.stop)
        url = redis.url if redis is not None else f"rocksdb:{folder / 'frontier'}"
        if not filled.exists():
            asyncio.run(build(url, size))
            filled.write_text(json.dumps(size))
        if redis is not None:
            print(f"Redis uses {redis.used_bytes() / 1e6:,.0f} MB", flush=True)
        (port,) = free_ports(1)
        founding = ["--allow-private", "--delay", "1"]
        server = start_coordinator(folder, url, port, Security(["--no-auth"], "", None), founding)
        stack.enter_context(stopping([server]))
        coordinator = Coordinator(port)
        rows = [measure(coordinator, asked, rounds, pause_s) for asked in calls(size, coordinator)]
    show(engine, size, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["rocksdb", "redis", "both"], default="both")
    parser.add_argument("--masters", type=int, default=1, help="of the Redis Cluster; 1 is a single server")
    parser.add_argument("--small", action="store_true", help=f"{SMALL}")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--urls", type=int)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pause-s", type=float, default=1.1, help="between two calls")
    parser.add_argument("--keep", type=Path, help="a folder for the frontiers, to measure them again later")
    chosen = parser.parse_args()
    size = SMALL if chosen.small else FULL
    given = {name: getattr(chosen, name) for name in Size._fields if getattr(chosen, name)}
    size = size._replace(**given)
    with TemporaryDirectory(prefix="drumlin-screens-") as temporary:
        for engine in ("rocksdb", "redis") if chosen.engine == "both" else (chosen.engine,):
            folder = (chosen.keep or Path(temporary)) / engine
            run(engine, size, folder, chosen.masters, chosen.rounds, chosen.pause_s)


if __name__ == "__main__":
    main()
