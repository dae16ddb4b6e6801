"""Many seeds of the simulator's swarm, each in a process of its own: `python -m bench.seeds --seeds 200 --processes 2`.

Every seed is 20 virtual minutes of 300 to 1,000 nodes with faults. A line is printed for each; at the end, what all of
them add up to: pages, kinds of faults that struck, CPU time, and each promise that was broken, with its seed. With
`--out FILE` the lines are also kept as JSON, and a later run with the same file goes on with the seeds that it lacks.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drumlin.sim.faults import KINDS
from drumlin.sim.running import run
from drumlin.sim.scenario import of_seed

PAGES_MIN = 50_000
SEEDS_MAX = 1_000_000
PROCESSES_MAX = 256


def _within(least: int, most: int) -> Callable[[str], int]:
    """Reads a whole number from `least` to `most` of the command line."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number from {least:,} to {most:,}")
        return number

    return read


def _one(seed: int) -> dict[str, Any]:
    """Run one seed, in a process that has run nothing else."""
    scenario = of_seed(seed)
    outcome = run(scenario)
    used = resource.getrusage(resource.RUSAGE_SELF)
    broken = outcome.broken
    return {
        "seed": seed,
        "nodes": scenario.nodes,
        "budgeted": scenario.pages_max is not None,
        "faults": sorted({fault.kind for fault in scenario.faults}),
        "pages": outcome.figures["pages"],
        "goodput_share": outcome.figures["goodput_share"],
        "fetched_twice": outcome.figures["fetched_twice"],
        "wait_s_max": outcome.figures["wait_s_max"],
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "memory_mb": used.ru_maxrss // 1024,
        "broken": None if broken is None else f"{broken.checker} at {broken.at}: {broken.said}",
    }


def _line(row: dict[str, Any]) -> str:
    said = row["broken"] or "no promise broken"
    return f"seed {row['seed']:>4}  {row['nodes']:>5} nodes  {row['pages']:>7,} pages  {row['cpu_s']:>6} CPU-s  {said}"


def _summary(rows: list[dict[str, Any]], wall_s: float) -> str:
    struck = {kind for row in rows for kind in row["faults"]}
    few = [row["seed"] for row in rows if row["pages"] < PAGES_MIN and not row["budgeted"]]
    broken = [row["seed"] for row in rows if row["broken"]]
    nodes, pages = [row["nodes"] for row in rows], [row["pages"] for row in rows]
    return "\n".join(
        [
            f"seeds                 {len(rows)}, of {min(nodes)} to {max(nodes)} nodes",
            f"pages                 {sum(pages):,}, at least {min(pages):,}",
            f"fewer than {PAGES_MIN:,}     {few or 'none'}",
            f"kinds of faults       {len(struck)} of {len(KINDS)}; missing: {sorted(set(KINDS) - struck) or 'none'}",
            f"goodput share         {min(row['goodput_share'] for row in rows):.3f} at least",
            f"CPU hours             {sum(row['cpu_s'] for row in rows) / 3600:.2f}",
            f"hours by the clock    {wall_s / 3600:.2f} (of this run)",
            f"promises broken       {broken or 'none'}",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=_within(1, SEEDS_MAX), default=200, metavar="N", help="how many")
    parser.add_argument("--first", type=_within(0, SEEDS_MAX), default=0, metavar="N", help="the first of them")
    parser.add_argument("--processes", type=_within(1, PROCESSES_MAX), default=2, metavar="N", help="so many at a time")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if options.out is not None and options.out.exists():
        rows = [json.loads(line) for line in options.out.read_text().splitlines()]
    there = {row["seed"] for row in rows}
    lacking = [seed for seed in range(options.first, options.first + options.seeds) if seed not in there]
    began = time.monotonic()
    with multiprocessing.Pool(options.processes, maxtasksperchild=1) as pool:
        for row in pool.imap_unordered(_one, lacking):
            rows.append(row)
            print(_line(row), flush=True)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(_summary(rows, time.monotonic() - began))
    return 1 if any(row["broken"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
