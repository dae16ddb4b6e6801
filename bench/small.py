"""A long crawl of small pages: whether settling keeps up with fetching, to the end: `python -m bench.small`.

2,000 hosts of 400 pages of about 8 KB, no delay. Short benchmarks end before a backlog shows, so this one takes minutes
and looks at the crawl all the time: how many pages the server has sent, how many count as done, how long the second
number lags behind the first, and how much memory the processes take. With `--freeze-s` the coordinators are stopped
(SIGSTOP) for that long in the middle; with `--fleet` it is a fleet of two coordinators on a Redis Cluster.

A shared machine may be half as fast in one minute as in another, which would look like a crawl that slows down. So with
every look a small fixed calculation is timed, and the ratio to the best minute is told twice: by the clock, and by a
clock that runs as fast as the machine did.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from bench.measure import drain_time_wait, processes_of_session, resident_bytes
from bench.run import TIME_WAIT_LOW, TIME_WAIT_S_MAX, TMPFS, Site, drumlin_program, serving
from drumlin.client.remote import Remote
from drumlin.errors import DrumlinError
from drumlin.fleet.layout import FleetPaths, ProcessRole
from drumlin.fleet.up import remote_of
from drumlin.protocol import ENDED

SAMPLE_S = 0.25
ASK_S_MAX = 2.0
FLEET_S_MAX = 300.0
RUN_S_MAX = 1_800.0
MINUTE_S = 60.0
WINDOW_S = 5.0
FULL_SPEED_SHARE = 0.9
CALCULATION_STEPS = 10_000
SHAPE = ("--size-median", "4400", "--links", "20", "--distinct-hosts", "25")
MEGABYTE = 1e6


@dataclass(frozen=True)
class Sample:
    """The crawl at one moment: pages that the server has sent, pages that are done (as many as before if it has not
    `answered`), memory of all processes. And how much CPU time a fixed calculation took then."""

    at: float
    served: int
    done: int
    answered: bool
    resident_bytes: int
    calculation_s: float


class LocalSubject:
    """`drumlin crawl`, in a session of its own. Its first process is the coordinator."""

    def __init__(self, site: Site, root: Path, options: argparse.Namespace) -> None:
        out = root / "crawl"
        nodes = ["--nodes", str(options.nodes)] if options.nodes else []
        flags = ["--allow-private", "--quiet", "--json", "--scope", "host", "--delay", "0", *nodes]
        command = [drumlin_program(), "crawl", "-i", str(site.seeds), "--out", str(out), *flags]
        with (root / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [*command, *options.drumlin_flags.split()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._endpoint = f"unix:{out / 'run' / 'socket'}"

    def remote(self) -> Remote:
        return Remote([self._endpoint], timeout_s=ASK_S_MAX)

    def ended(self) -> bool:
        return self._process.poll() is not None

    def processes(self) -> set[int]:
        return processes_of_session(self._process.pid)

    def coordinators(self) -> list[int]:
        return [self._process.pid]

    def close(self) -> int:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()


class FleetSubject:
    """`drumlin fleet up`: two coordinators, nodes, a Redis Cluster."""

    def __init__(self, site: Site, root: Path, options: argparse.Namespace) -> None:
        self._paths = FleetPaths(root / "fleet")
        shape = ["--nodes", str(options.nodes or 2), "--coordinators", "2", "--delay", "0", "--scope", "host"]
        flags = ["--allow-private", "--quiet", "-i", str(site.seeds), *shape, *options.drumlin_flags.split()]
        up = [drumlin_program(), "fleet", "up", "--out", str(self._paths.root), *flags]
        subprocess.run(up, check=True, timeout=FLEET_S_MAX)

    def remote(self) -> Remote:
        return remote_of(self._paths)

    def ended(self) -> bool:
        return self._paths.read().finished

    def processes(self) -> set[int]:
        return {one.mark.pid for one in self._paths.read().processes if one.mark is not None and one.alive}

    def coordinators(self) -> list[int]:
        return [
            one.mark.pid for one in self._paths.read().of(ProcessRole.COORDINATOR) if one.mark is not None and one.alive
        ]

    def close(self) -> int:
        down = [drumlin_program(), "fleet", "down", "--kill", "--quiet", "--out", str(self._paths.root)]
        return subprocess.run(down, check=False, timeout=FLEET_S_MAX).returncode


Subject = LocalSubject | FleetSubject


def watch(subject: Subject, site: Site, deadline: float) -> list[Sample]:
    """Look at a crawl from outside until it ends."""
    samples: list[Sample] = []
    done = 0
    while not subject.ended() and time.monotonic() < deadline:
        begun = time.monotonic()
        told = done_pages(subject)
        done = done if told is None else told
        served = site.ask("/_stats?short")["pages_served"]
        resident = resident_bytes(subject.processes())
        samples.append(Sample(begun, served, done, told is not None, resident, calculation_s()))
        time.sleep(max(0.0, SAMPLE_S - (time.monotonic() - begun)))
    return samples


def calculation_s() -> float:
    """How much CPU time a fixed calculation takes now: a millisecond or two, more while the machine is slow."""
    begun = time.thread_time()
    sum(n * n for n in range(CALCULATION_STEPS))
    return time.thread_time() - begun


def at_machine_speed(samples: list[Sample]) -> list[Sample]:
    """The same samples by a clock that runs slower while the machine is slower than usual."""
    usual_s = statistics.median(sample.calculation_s for sample in samples)
    moved, at = samples[:1], samples[0].at
    for before, sample in pairwise(samples):
        at += (sample.at - before.at) * usual_s / sample.calculation_s
        moved.append(replace(sample, at=at))
    return moved


def done_pages(subject: Subject) -> int | None:
    """How many pages the crawl counts as done; None while it does not answer, and when it has ended: everything is
    settled then, and its figures are not read again while it merges its index."""
    try:
        crawl = subject.remote().get("/api/v1/crawl")
        return None if crawl["state"] in ENDED else int(crawl["budgets"]["pages"])
    except DrumlinError:
        return None


def lags_s(samples: list[Sample]) -> list[tuple[float, float]]:
    """For each sample, how long ago the server had sent as many pages as are done now. Samples after the crawl's last
    answer do not count: it has settled everything and merges its index."""
    last = max((place for place, sample in enumerate(samples) if sample.answered), default=0)
    samples = samples[: last + 1]
    served = [sample.served for sample in samples]
    lags = []
    for place, sample in enumerate(samples):
        reached = bisect_left(served, min(sample.done, sample.served), hi=place)
        lags.append((sample.at, sample.at - samples[min(reached, place)].at))
    return lags


def rates(samples: list[Sample], window_s: float) -> list[tuple[float, float]]:
    """Done pages a second over every window that ends at a sample."""
    found, start = [], 0
    for sample in samples:
        while sample.at - samples[start].at > window_s:
            start += 1
        span = sample.at - samples[start].at
        if span > 0.8 * window_s:
            found.append((sample.at, (sample.done - samples[start].done) / span))
    return found


def recovery_s(samples: list[Sample], frozen: tuple[float, float]) -> float:
    """How long after the freeze the crawl was as fast as before it; infinity if it never was."""
    speeds = rates(samples, WINDOW_S)
    before = statistics.median([speed for at, speed in speeds if at < frozen[0] and speed] or [0.0])
    after = (at - frozen[1] for at, speed in speeds if at > frozen[1] and speed >= FULL_SPEED_SHARE * before)
    return next(after, float("inf"))


def freeze(subject: Subject, every_s: float, for_s: list[float], frozen: list[tuple[float, float]]) -> None:
    """Stop all coordinators again and again, each time for the next of these lengths."""
    for length_s in for_s:
        time.sleep(every_s)
        if not subject.ended():
            frozen.append(_freeze_once(subject, length_s))


def _freeze_once(subject: Subject, for_s: float) -> tuple[float, float]:
    begun = time.monotonic()
    stopped = subject.coordinators()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(for_s)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    return begun, time.monotonic()


def run(options: argparse.Namespace) -> int:
    if options.disk:
        options.disk.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(dir=options.disk or TMPFS, prefix="drumlin-small-"))
    drain_time_wait(TIME_WAIT_LOW, TIME_WAIT_S_MAX)
    frozen: list[tuple[float, float]] = []
    try:
        with serving(options.hosts, options.pages, *SHAPE) as site:
            begun = time.monotonic()
            subject = (FleetSubject if options.fleet else LocalSubject)(site, root, options)
            try:
                if options.freeze_s:
                    when = (subject, options.freeze_every_s, options.freeze_s, frozen)
                    threading.Thread(target=freeze, args=when, daemon=True).start()
                samples = watch(subject, site, begun + RUN_S_MAX)
                wall_s = time.monotonic() - begun
            finally:
                exit_code = subject.close()
            stats = site.ask("/_stats")
        print_result(samples, stats, wall_s, frozen, exit_code)
        if options.json:
            options.json.write_text(json.dumps([vars(sample) for sample in samples]))
        return int(exit_code != 0)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def resident_mb(samples: list[Sample], pages: int, quarter: int) -> float:
    """The median of the memory while the crawl was in this quarter of its pages. It is the median, because processes
    that check or merge files take much for a moment."""
    least, most = (quarter - 1) * pages / 4, quarter * pages / 4
    inside = [sample.resident_bytes for sample in samples if least <= sample.done < most]
    return statistics.median(inside or [samples[-1].resident_bytes]) / MEGABYTE


def print_result(
    samples: list[Sample], stats: dict[str, int], wall_s: float, frozen: list[tuple[float, float]], exit_code: int
) -> None:
    pages, last = stats["pages_distinct"], max(sample.done for sample in samples)
    lags = lags_s(samples)
    worst_at, worst = max(lags, key=lambda lag: lag[1])
    minutes = [speed for _, speed in rates(samples, MINUTE_S)] or [last / wall_s]
    begun = samples[0].at
    print(f"pages {pages:,}, missed {stats['missed']:,}, fetched twice {stats['doubles']:,}, exit code {exit_code}")
    print(f"{pages / wall_s:,.0f} pages/s over {wall_s:.0f} s; best minute {max(minutes):,.0f}")
    print(f"whole / best minute: {pages / wall_s / max(minutes):.2f}")
    print_by_machine(samples)
    print(f"lag of done behind fetched: {worst:.2f} s at most, after {worst_at - begun:.0f} s")
    second, fourth = resident_mb(samples, last, 2), resident_mb(samples, last, 4)
    print(f"memory: {second:,.0f} MB in the second quarter of the pages, {fourth:,.0f} MB in the last (medians)")
    for span in frozen:
        print(
            f"frozen for {span[1] - span[0]:.0f} s after {span[0] - begun:.0f} s; full speed again "
            f"{recovery_s(samples, span):.1f} s after"
        )


def print_by_machine(samples: list[Sample]) -> None:
    moved = at_machine_speed(samples)
    whole = (moved[-1].done - moved[0].done) / max(SAMPLE_S, moved[-1].at - moved[0].at)
    minutes = [speed for _, speed in rates(moved, MINUTE_S)] or [whole]
    speeds = statistics.quantiles((sample.calculation_s for sample in samples), n=20) if len(samples) > 1 else [0.0]
    print(
        f"whole / best minute by the machine's own speed: {whole / max(minutes):.2f} "
        f"(a fixed calculation took {1000 * speeds[0]:.1f} to {1000 * speeds[-1]:.1f} ms)"
    )


def _seconds(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.small", description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--hosts", type=int, default=2_000)
    parser.add_argument("--pages", type=int, default=400, help="pages of each host")
    parser.add_argument("--disk", type=Path, help="a folder on a disk to crawl into; else memory (tmpfs)")
    parser.add_argument("--nodes", type=int, help="node processes; else one for each core")
    parser.add_argument("--fleet", action="store_true", help="a fleet on a Redis Cluster, in place of one machine")
    parser.add_argument("--freeze-s", type=_seconds, default=[], help="stop the coordinators for so long: 10,40")
    parser.add_argument("--freeze-every-s", type=float, default=60.0, help="how long to wait before each time")
    parser.add_argument("--drumlin-flags", default="", help="more flags for drumlin crawl, in one string")
    parser.add_argument("--json", type=Path, help="write every sample to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(run(parse_arguments()))
