"""How fast a crawl is when it stores in a bucket, compared with a directory: `python -m bench.stores`.

The same web is crawled into a directory and into a bucket, in turn and several times, because a shared machine is not
equally fast in every minute. The S3 server (versitygw) runs on the same machine and takes CPU from the crawl, which a
real service does not: its share is told beside the goodput. A run ends when everything is stored and the index merged.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.measure import drain_time_wait
from bench.run import TIME_WAIT_LOW, TIME_WAIT_S_MAX, TMPFS, Site, drumlin_program, serving
from tests.harness.s3 import BUCKET, S3Server, s3_server

RUN_S_MAX = 1_800.0


class Measured(NamedTuple):
    """One crawl: pages a second, and how many seconds of CPU it and the S3 server took for each 1,000 pages. On a busy
    machine the CPU tells more than the clock."""

    pages_per_s: float
    cpu_s: float
    server_cpu_s: float


def crawl(site: Site, out: Path, nodes: int, more: Sequence[str], server: S3Server) -> Measured:
    """Crawl the whole web once."""
    drain_time_wait(TIME_WAIT_LOW, TIME_WAIT_S_MAX)
    command = [drumlin_program(), "crawl", "-i", str(site.seeds), "--out", str(out), "--nodes", str(nodes), *more]
    command += ["--delay", "0", "--allow-private", "--quiet", "--json", "--scope", "host"]
    cpu, own, began = cpu_s(server), children_cpu_s(), time.perf_counter()
    done = subprocess.run(
        command, env=os.environ | server.environment, capture_output=True, text=True, check=True, timeout=RUN_S_MAX
    )
    took, pages = time.perf_counter() - began, json.loads(done.stdout)["pages"]
    return Measured(pages / took, (children_cpu_s() - own) / pages * 1_000, (cpu_s(server) - cpu) / pages * 1_000)


def children_cpu_s() -> float:
    """The CPU time of processes that have ended: crawls, and not the servers beside them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_s(server: S3Server) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--pages", type=int, default=100, help="of each host")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[Measured]] = {"directory": [], "bucket": []}
    folder = Path(tempfile.mkdtemp(dir=TMPFS, prefix="drumlin-bench-stores-"))
    try:
        with s3_server(folder / "s3") as server, serving(options.hosts, options.pages) as site:
            for run in range(options.runs):
                for kind, measured in found.items():
                    more = ["--store", f"s3://{BUCKET}/run{run}"] if kind == "bucket" else []
                    out = folder / f"{kind}{run}"
                    measured.append(crawl(site, out, options.nodes, more, server))
                    one = measured[-1]
                    print(
                        f"{kind}: {one.pages_per_s:.0f} pages/s, {one.cpu_s:.2f} s of CPU for 1,000 pages", flush=True
                    )
                    shutil.rmtree(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    tell(found)


def tell(found: dict[str, list[Measured]]) -> None:
    medians = {kind: statistics.median(one.pages_per_s for one in runs) for kind, runs in found.items()}
    cpu = statistics.median(one.server_cpu_s for one in found["bucket"])
    print(f"directory {medians['directory']:.0f} pages/s, bucket {medians['bucket']:.0f} pages/s (medians)")
    # Of those that ran one after the other, since the next minute may be a slower one.
    pairs = zip(found["bucket"], found["directory"], strict=True)
    ratios = sorted(bucket.pages_per_s / directory.pages_per_s for bucket, directory in pairs)
    shown = ", ".join(f"{one:.2f}" for one in ratios)
    print(f"bucket : directory = {statistics.median(ratios):.2f} (median of the pairs {shown})")
    used = {kind: statistics.median(one.cpu_s for one in runs) for kind, runs in found.items()}
    print(f"CPU for 1,000 pages: directory {used['directory']:.2f} s, bucket {used['bucket']:.2f} s")
    print(f"the S3 server took {cpu:.2f} s of CPU for 1,000 pages")


if __name__ == "__main__":
    main()
