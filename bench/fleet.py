"""What coordination costs: `python -m bench.fleet`.

Two questions, answered with real local fleets (`drumlin fleet up`: TLS, tokens, a 3-master Redis Cluster, one machine):

- Goodput. Nodes are limited by how many requests they may have in flight and by how long the web takes to answer, not
  by CPU. So n nodes could ideally fetch n × concurrency / latency pages a second, however few cores there are. Which
  part of that is reached? The web itself counts, between its 10th and 90th percentile of requests: neither the start
  nor the last few hosts of a short crawl should count.
- CPU. At full speed, which part of all CPU time per page goes to coordinators and Redis, and how many calls does a page
  take? Two crawls of different size are compared, because the time to start programs should not count.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measure import PROC, TICKS_PER_S
from drumlin.fleet.cluster import RedisServer
from drumlin.fleet.layout import FleetPaths, ProcessRole
from drumlin.protocol import paths as routes
from drumlin.tls import CertificateFiles

ROOT = Path(__file__).parents[1]
TMPFS = Path("/dev/shm")
HOSTS = 200
SAMPLE_S = 0.2
RUN_S_MAX = 900.0
MIDDLE = (0.1, 0.9)
PAGES_FEW = 10
REQUESTS = re.compile(r'^drumlin_requests_total\{route="([^"]*)".*\} (\d+)', re.MULTILINE)
NODE_CALLS = {"work/request": "work", "results": "results", "known": "contents", "heartbeat": "heartbeats"}


@dataclass(frozen=True)
class Run:
    """One crawl: what the web counted, the CPU seconds of each role, and calls to coordinators and Redis by kind."""

    pages: int
    pages_per_s: float
    missed: int
    cpu_s: dict[str, float]
    calls: Counter[str]


@contextmanager
def web(folder: Path, hosts: int, pages: int, latency_ms: float) -> Iterator[tuple[int, Path]]:
    seeds = folder / "seeds.txt"
    shape = ["--hosts", str(hosts), "--pages", str(pages), "--latency-ms", str(latency_ms)]
    command = [sys.executable, "-m", "bench.web", *shape, "--seeds-file", str(seeds)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["port"], seeds
        finally:
            server.terminate()


def accounts(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stats", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


class Processes:
    """The CPU time of a fleet's processes, looked at while they live."""

    def __init__(self, paths: FleetPaths) -> None:
        self._paths = paths
        self._cpu_s: dict[tuple[str, int], float] = {}

    def sample(self) -> bool:
        """Look once; whether the crawl is finished."""
        record = self._paths.read()
        for process in record.processes:
            if process.mark is not None and process.alive:
                self._cpu_s[(process.role, process.mark.pid)] = _cpu_s(process.mark.pid)
        return record.finished

    def by_role(self) -> dict[str, float]:
        total: dict[str, float] = defaultdict(float)
        for (role, _), seconds in self._cpu_s.items():
            total[role] += seconds
        return dict(total)


def _cpu_s(pid: int) -> float:
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def middle_rate(series: list[int], buckets_per_s: int) -> float:
    """Requests a second between the moments when a tenth and nine tenths of them had come."""
    total, passed, first = sum(series), 0, -1
    for place, count in enumerate(series):
        passed += count
        if first < 0 and passed >= MIDDLE[0] * total:
            first, before = place, passed
        if passed >= MIDDLE[1] * total:
            return (passed - before) * buckets_per_s / max(1, place - first)
    return 0.0


def crawl(nodes: int, hosts: int, pages: int, *, latency_ms: float, concurrency: int) -> Run:
    """Crawl a fake web of `hosts` × `pages` pages with a fleet of its own."""
    folder = Path(tempfile.mkdtemp(prefix="drumlin-bench-fleet-", dir=TMPFS if TMPFS.is_dir() else None))
    paths = FleetPaths(folder / "fleet")
    drumlin = [sys.executable, "-m", "drumlin", "fleet"]
    shape = ["--nodes", str(nodes), "--coordinators", "2", "--concurrency", str(concurrency), "--delay", "0"]
    try:
        with web(folder, hosts, pages, latency_ms) as (port, seeds):
            up = [*drumlin, "up", "--out", str(paths.root), "--allow-private", "--quiet", "-i", str(seeds), *shape]
            subprocess.run(up, check=True, timeout=RUN_S_MAX)
            processes = Processes(paths)
            deadline = time.monotonic() + RUN_S_MAX
            while not processes.sample():
                if time.monotonic() > deadline:
                    raise TimeoutError("the crawl did not end")
                time.sleep(SAMPLE_S)
            counted, calls = accounts(port), calls_of(paths)
        rate = middle_rate(counted["series"], counted["buckets_per_s"])
        return Run(counted["pages_distinct"], rate, counted["missed"], processes.by_role(), calls)
    finally:
        if paths.exists():
            subprocess.run([*drumlin, "down", "--kill", "--quiet", "--out", str(paths.root)], check=True, timeout=300)
        shutil.rmtree(folder, ignore_errors=True)


def calls_of(paths: FleetPaths) -> Counter[str]:
    """How many calls of each kind nodes have made to coordinators, and coordinators to Redis."""
    calls: Counter[str] = Counter()
    record, password = paths.read(), paths.redis_password.read_text().strip()
    trusted = ssl.create_default_context(cafile=str(CertificateFiles.in_folder(paths.certs).authority))
    token = paths.operator_token.read_text().strip()
    for endpoint in record.coordinators:
        asked = urllib.request.Request(endpoint + routes.METRICS, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=30, context=trusted) as answer:
            for route, count in REQUESTS.findall(answer.read().decode()):
                kind = next((name for ending, name in NODE_CALLS.items() if route.endswith(ending)), "others")
                calls[kind] += int(count)
    for port, _ in record.plan.redis_ports:
        server = RedisServer(port, password)
        stats = server.ask("INFO", "commandstats")
        server.close()
        calls["Redis"] += sum(int(n) for n in re.findall(r"cmdstat_fcall[^:]*:calls=(\d+)", stats))
    return calls


def goodput(latency_ms: float, concurrency: int, seconds: float) -> None:
    print(
        f"\nGoodput: nodes of {concurrency} requests in flight, {HOSTS} hosts for each, {latency_ms:.0f} ms an answer"
    )
    print("| nodes | ideal pages/s | measured pages/s | of the ideal | missed |\n|---|---|---|---|---|")
    for nodes in (1, 2, 4):
        ideal = nodes * concurrency * 1000 / latency_ms
        # Each node has the same number of hosts, however many nodes there are. With too few hosts, nodes would have no
        # work at the end.
        hosts = nodes * HOSTS
        pages = max(2, round(ideal * seconds / hosts))
        run = crawl(nodes, hosts, pages, latency_ms=latency_ms, concurrency=concurrency)
        share = run.pages_per_s / ideal
        print(f"| {nodes} | {ideal:.0f} | {run.pages_per_s:.0f} | {share:.1%} | {run.missed} |", flush=True)


def cpu_share(pages: int, counts: Sequence[int]) -> None:
    print(f"\nCPU per further page at full speed: {HOSTS} hosts × {pages} pages against {PAGES_FEW}, delay 0")
    print("| nodes | pages/s | node µs | coordinator µs | Redis µs | coordination | missed | calls for 1,000 pages |")
    print("|---|---|---|---|---|---|---|---|")
    for nodes in counts:
        few, many = (crawl(nodes, HOSTS, count, latency_ms=0.0, concurrency=512) for count in (PAGES_FEW, pages))
        node, coordinator, redis = (_marginal_us(few, many, role) for role in reversed(ProcessRole))
        share = (coordinator + redis) / (node + coordinator + redis)
        costs = f"{node:.0f} | {coordinator:.0f} | {redis:.0f} | {share:.1%}"
        more = (many.calls - few.calls).most_common()
        calls = ", ".join(f"{kind} {1000 * count / (many.pages - few.pages):,.0f}" for kind, count in more)
        print(f"| {nodes} | {many.pages_per_s:.0f} | {costs} | {few.missed + many.missed} | {calls} |", flush=True)


def _marginal_us(few: Run, many: Run, role: ProcessRole) -> float:
    """What a further page costs. Starting programs takes most of the CPU of a short crawl, and as much in a long one,
    so the difference of the two is what pages cost."""
    return (many.cpu_s.get(role, 0.0) - few.cpu_s.get(role, 0.0)) * 1e6 / (many.pages - few.pages)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.fleet", description="what coordination costs")
    parser.add_argument("--latency-ms", type=float, default=400.0)
    parser.add_argument("--concurrency", type=int, default=20, help="requests in flight per node, for the goodput")
    parser.add_argument("--seconds", type=float, default=25.0, help="how long each goodput crawl should take")
    parser.add_argument("--pages", type=int, default=100, help="pages per host, for the CPU")
    parser.add_argument("--nodes", type=int, nargs="+", default=(1, 2, 4), help="how many nodes, for the CPU")
    parser.add_argument("--only", choices=("goodput", "cpu"), help="one of the two")
    options = parser.parse_args()
    if options.only != "cpu":
        goodput(options.latency_ms, options.concurrency, options.seconds)
    if options.only != "goodput":
        cpu_share(options.pages, options.nodes)


if __name__ == "__main__":
    main()
