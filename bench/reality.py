"""The simulator beside a real fleet: the same web, the same lease, the same faults: `python -m bench.reality`.

Four nodes and two coordinators crawl a web of equal hosts. A node is killed (SIGKILL) for good. Then another is frozen
(SIGSTOP) for longer than its leases last, and goes on. At last the coordinator that leads is killed for good. The
real fleet is `drumlin fleet up` on a Redis Cluster (`reality_fleet`); the other one is simulated (`reality_sim`).

Both are seen by the web alone, which keeps a list of all requests: how long the hosts of a node that is gone were left
alone, which pages were asked for again after each fault, and how many pages a second there were. A fault hits leases
of any age, so there are several runs, with other moments in each, and means are compared.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from bench.reality_fleet import run_fleet
from bench.reality_plan import FREEZE, KILL, Plan, Record
from bench.reality_sim import run_simulation

RATE_S = 5.0
WITHIN = 1.25
AGAIN = "pages asked for again"
FEW = 1.0
"""Counts below this on both sides are equal: their ratio would say nothing."""
SIMULATED_RUNS_FOR_EACH = 2
"""A simulated run takes some seconds, so there are more of them: their mean is known better."""

Figures = dict[str, float]


def plan_of(number: int, options: argparse.Namespace) -> Plan:
    """The plan of a run. Its faults come at moments of their own."""
    chance = random.Random(f"reality {number}")
    lease_s = options.lease
    kill_at = options.warm_up + chance.uniform(0.0, lease_s / 2)
    freeze_at = kill_at + 2.0 * lease_s + chance.uniform(0.0, lease_s / 2)
    frozen_s = 2.0 * lease_s
    coordinator_at = freeze_at + frozen_s + lease_s + chance.uniform(0.0, lease_s / 2)
    return Plan(
        number=number,
        hosts=options.hosts,
        pages=options.pages,
        delay_s=options.delay,
        latency_s=options.latency_ms / 1000,
        lease_s=lease_s,
        concurrency=options.concurrency,
        kill_at=kill_at,
        freeze_at=freeze_at,
        frozen_s=frozen_s,
        coordinator_at=coordinator_at,
        ends_at=coordinator_at + 2.0 * lease_s,
    )


def waits_s(record: Record, fault: str, until: float) -> list[float]:
    """For each host that the struck node held, how long after the fault it was contacted again."""
    at, hosts = record.struck[fault]
    first: dict[int, float] = dict.fromkeys(hosts, until)
    for when, host, _ in reversed(record.contacts):
        if host in first and at < when < until:
            first[host] = when
    return [when - at for when in first.values()]


def doubles(record: Record, begin: float, end: float) -> int:
    """How many requests of this time were for pages that had been asked for before."""
    seen: set[int] = set()
    count = 0
    for when, _, page in record.contacts:
        if page >= 0:
            count += page in seen and begin <= when < end
            seen.add(page)
    return count


def pauses_s(record: Record, begin: float, end: float) -> list[float]:
    """For each host the longest time between two contacts, of which the second came within this time."""
    times: dict[int, list[float]] = {}
    for when, host, _ in record.contacts:
        times.setdefault(host, []).append(when)
    found = [[later - when for when, later in pairwise(whens) if begin <= later < end] for whens in times.values()]
    return [max(gaps) for gaps in found if gaps]


def rate(record: Record, end: float) -> float:
    """Pages a second in the last seconds before `end`."""
    return sum(page >= 0 and end - RATE_S <= when < end for when, _, page in record.contacts) / RATE_S


def figures_of(record: Record) -> Figures:
    plan = record.plan
    killed = waits_s(record, KILL, plan.freeze_at)
    frozen = waits_s(record, FREEZE, plan.freeze_at + plan.frozen_s)
    paused = pauses_s(record, plan.coordinator_at, plan.ends_at)
    return {
        "hosts of the killed node": len(killed),
        "kill: s until they were contacted again, median": statistics.median(killed),
        "kill: s until the last of them was": max(killed),
        f"kill: {AGAIN}": doubles(record, plan.kill_at, plan.freeze_at),
        "hosts of the frozen node": len(frozen),
        "freeze: s until they were contacted again, median": statistics.median(frozen),
        "freeze: s until the last of them was": max(frozen),
        f"freeze: {AGAIN}": doubles(record, plan.freeze_at, plan.coordinator_at),
        "coordinator's death: longest pause of a host in s, median": statistics.median(paused),
        "coordinator's death: longest pause of all in s": max(paused),
        f"coordinator's death: {AGAIN}": doubles(record, plan.coordinator_at, plan.ends_at),
        "pages/s before the kill": rate(record, plan.kill_at),
        "pages/s before the freeze": rate(record, plan.freeze_at),
        "pages/s before the frozen node goes on": rate(record, plan.freeze_at + plan.frozen_s),
        "pages/s before the coordinator's death": rate(record, plan.coordinator_at),
        "pages/s at the end": rate(record, plan.ends_at),
    }


def print_table(real: list[Figures], simulated: list[Figures]) -> bool:
    """Print both sides; returns whether all figures agree."""
    print(f"\n{len(real)} real runs, {len(simulated)} simulated runs; the mean, and the least and most of all runs")
    print("| figure | real | simulated | simulated / real | |\n|---|---|---|---|---|")
    agree = True
    for name in real[0]:
        ours, theirs = ([figures[name] for figures in side] for side in (real, simulated))
        mean, other = statistics.fmean(ours), statistics.fmean(theirs)
        few = name.endswith(AGAIN) and max(mean, other) < FEW
        ratio = other / mean if mean else float("inf")
        fits = few or 1 / WITHIN <= ratio <= WITHIN
        agree = agree and fits
        shown = "both few" if few else f"{ratio:.2f}"
        print(f"| {name} | {_spread(ours)} | {_spread(theirs)} | {shown} | {'' if fits else 'apart'} |")
    return agree


def _spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def collect(side: str, run: Callable[[Plan], Record], plans: Iterable[Plan]) -> list[Record]:
    records = []
    for plan in plans:
        records.append(run(plan))
        print(f"{side} run {plan.number}: {len(records[-1].contacts):,} requests", file=sys.stderr, flush=True)
    return records


def read_records(file: Path) -> list[Record]:
    return [
        Record(Plan(**one["plan"]), [(at, host, page) for at, host, page in one["contacts"]], one["struck"])
        for one in json.loads(file.read_text())
    ]


def run(options: argparse.Namespace) -> int:
    known = read_records(options.records) if options.records and options.records.exists() else []
    begin = len(known)
    more = collect("real", run_fleet, (plan_of(number, options) for number in range(begin, begin + options.runs)))
    real = known + more
    if options.records:
        options.records.write_text(json.dumps([asdict(one) for one in real]))
    count = options.simulated or SIMULATED_RUNS_FOR_EACH * max(1, len(real))
    simulated = collect("simulated", run_simulation, (plan_of(number, options) for number in range(count)))
    theirs = [figures_of(one) for one in simulated]
    if not real:
        print_table(theirs, theirs)
        return 0
    return 0 if print_table([figures_of(one) for one in real], theirs) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.reality", description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=5, help="real runs, of about 75 s each")
    parser.add_argument("--simulated", type=int, default=0, help="simulated runs; 0: two for each real one")
    parser.add_argument("--records", type=Path, help="keep real runs in this file, and count those that are in it")
    parser.add_argument("--lease", type=float, default=6.0, help="seconds")
    parser.add_argument("--hosts", type=int, default=120)
    parser.add_argument("--pages", type=int, default=150, help="pages of each host: more than can be fetched")
    parser.add_argument("--delay", type=float, default=0.5, help="seconds between two contacts of a host")
    parser.add_argument("--latency-ms", type=float, default=200.0)
    parser.add_argument("--concurrency", type=int, default=64, help="requests of a node at a time")
    parser.add_argument("--warm-up", type=float, default=8.0, help="seconds before the first fault")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(run(parse_arguments()))
