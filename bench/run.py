"""Drumlin beside Scrapy and wget2 on the same web in the same minutes: `python -m bench.run [SCENARIO]`.

Runs alternate (every tool runs once in a round, and each round starts with another one), write to tmpfs, and start only
when the connections of the last run are gone. The numbers of pages are counted by the server, not by the tools.
"""

from __future__ import annotations

import argparse
import compileall
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.measure import drain_time_wait, run_measured
from bench.size import fill

ROOT = Path(__file__).resolve().parent.parent
TMPFS = Path("/dev/shm")
RUN_S_MAX = 900.0
TIME_WAIT_LOW = 1000
TIME_WAIT_S_MAX = 70.0
CONTROL_S_MAX = 30.0
WGET2_THREADS = 20
SCRAPY_PER_HOST = 16
POLITE_S = 60
POLITE_MARGIN_S = 10
POLITE_DELAY_S = 1.0

Command = Callable[[Path, Path, argparse.Namespace], list[str]]


@dataclass(frozen=True)
class Site:
    """A running benchmark web: where it listens, what to start from, and its accounts."""

    port: int
    seeds: Path
    hosts: int

    def ask(self, path: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CONTROL_S_MAX)
        try:
            connection.request("GET", path)
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()


@dataclass(frozen=True)
class Run:
    """One tool's run, as the server and the process table saw it."""

    scenario: str
    tool: str
    pages_per_s: float
    cpu_ms_per_page: float
    peak_mb: float
    wall_s: float
    exit_code: int
    missed: int
    doubles: int
    denied: int
    unknown: int
    extra: dict[str, Any] = field(default_factory=dict)


def drumlin_program() -> str:
    return str(Path(sys.executable).parent / "drumlin")


def drumlin_command(seeds: Path, out: Path, options: argparse.Namespace) -> list[str]:
    flags = ["--allow-private", "--quiet", "--json", "--scope", "host", *options.drumlin_flags.split()]
    return [drumlin_program(), "crawl", "-i", str(seeds), "--out", str(out / "crawl"), "--delay", "0", *flags]


def scrapy_command(seeds: Path, out: Path, options: argparse.Namespace) -> list[str]:
    python = str(ROOT / ".venv-bench" / "bin" / "python")
    tuning = ["--processes", str(options.scrapy_processes), "--per-host", str(SCRAPY_PER_HOST)]
    return [python, str(ROOT / "bench" / "scrapy_spider.py"), str(seeds), str(out), *tuning]


def wget2_command(seeds: Path, out: Path, options: argparse.Namespace) -> list[str]:
    recursion = ["-r", "-l", "inf", "--robots=on", "--max-threads", str(options.wget2_threads)]
    return ["wget2", "--no-config", "-q", *recursion, "-P", str(out), "-i", str(seeds)]


def scrapy_same_command(seeds: Path, out: Path, options: argparse.Namespace) -> list[str]:
    """Scrapy with text and WARC: what it costs to write with Scrapy what drumlin writes."""
    return [*scrapy_command(seeds, out, options), "--same-job"]


def scrapy_docs_command(seeds: Path, out: Path, options: argparse.Namespace) -> list[str]:
    """Scrapy as its manual says, in one process."""
    python = str(ROOT / ".venv-bench" / "bin" / "python")
    return [python, str(ROOT / "bench" / "scrapy_docs_spider.py"), str(seeds), str(out)]


TOOLS: dict[str, Command] = {
    "drumlin": drumlin_command,
    "scrapy": scrapy_command,
    "scrapy-same": scrapy_same_command,
    "scrapy-docs": scrapy_docs_command,
    "wget2": wget2_command,
}


@contextmanager
def serving(hosts: int, pages: int, *flags: str) -> Iterator[Site]:
    """A benchmark web in a process of its own, stopped at the end."""
    with tempfile.TemporaryDirectory(dir=TMPFS, prefix="drumlin-bench-web-") as directory:
        seeds = Path(directory) / "seeds.txt"
        shape = ["--hosts", str(hosts), "--pages", str(pages), "--seeds-file", str(seeds)]
        command = [sys.executable, "-m", "bench.web", *shape, *flags]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            ready = server.stdout.readline()
            if not ready:
                raise SystemExit("The web ended before it served. Perhaps its pages do not fit into memory.")
            try:
                yield Site(json.loads(ready)["port"], seeds, hosts)
            finally:
                server.terminate()


def run_tool(scenario: str, tool: str, site: Site, command: Command, options: argparse.Namespace) -> Run:
    """One tool over the whole web, into a fresh directory in tmpfs that is removed afterwards."""
    drain_time_wait(TIME_WAIT_LOW, TIME_WAIT_S_MAX)
    out = Path(tempfile.mkdtemp(dir=TMPFS, prefix="drumlin-bench-out-"))
    try:
        site.ask("/_reset")
        usage = run_measured(command(site.seeds, out, options), RUN_S_MAX)
        stats = site.ask("/_stats")
        written = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    finally:
        shutil.rmtree(out, ignore_errors=True)
    if usage.exit_code or usage.stopped:
        print(f"{tool} ended with exit code {usage.exit_code}:\n{usage.output[-2000:]}", file=sys.stderr)
    pages = max(1, stats["pages_distinct"])
    extra = {
        "served_per_s": round(stats["requests"] / max(stats["duration_s"], 1e-9), 1),
        "written_mb": round(written / 1e6, 1),
        "least_gap_s": stats["least_gap_s"],
        "gaps_under": stats["gaps_under"],
        "requests": stats["requests"],
        "series": stats["series"],
        "report": _report_of(usage.output),
    }
    return Run(
        scenario,
        tool,
        stats["pages_distinct"] / usage.wall_s,
        usage.cpu_s * 1000 / pages,
        usage.peak_bytes / 1e6,
        usage.wall_s,
        usage.exit_code,
        stats["missed"],
        stats["doubles"],
        stats["denied_requests"],
        stats["unknown_requests"],
        extra,
    )


def _report_of(output: str) -> Any:
    """The tool's own report, where it prints one as JSON."""
    try:
        return json.loads(output[output.index("{") :])
    except ValueError:
        return None


def run_rounds(scenario: str, site: Site, tools: list[str], options: argparse.Namespace) -> list[Run]:
    runs = []
    for number in range(options.rounds):
        shift = number % len(tools)
        for tool in tools[shift:] + tools[:shift]:
            runs.append(run_tool(scenario, tool, site, TOOLS[tool], options))
            print_run(runs[-1])
    return runs


def speed(options: argparse.Namespace) -> list[Run]:
    """200 hosts x 100 pages, no delay, no latency: what a page costs."""
    with serving(options.hosts or 200, options.pages or 100) as site:
        runs = run_rounds("speed", site, options.tools, options)
    print_summary(runs)
    for other in list(TOOLS)[1:]:
        print_ratio(runs, ("speed", "drumlin"), ("speed", other))
    return runs


def latency(options: argparse.Namespace) -> list[Run]:
    """1,000 hosts x 20 pages with a latency of 100 ms, alternating with none: whether waiting costs throughput."""
    hosts, pages = options.hosts or 1000, options.pages or 20
    runs = []
    with serving(hosts, pages) as prompt, serving(hosts, pages, "--latency-ms", "100") as late:
        for _ in range(options.rounds):
            for tool in options.tools:
                for scenario, site in (("latency 0", prompt), ("latency 100", late)):
                    runs.append(run_tool(scenario, tool, site, TOOLS[tool], options))
                    print_run(runs[-1])
    print_summary(runs)
    for tool in options.tools:
        print_ratio(runs, ("latency 100", tool), ("latency 0", tool))
    return runs


def polite(options: argparse.Namespace) -> list[Run]:
    """300 hosts, one contact a second each, for 60 s: how much of what the delays allow is used, and never more."""
    hosts = options.hosts or 300

    def command(seeds: Path, out: Path, settings: argparse.Namespace) -> list[str]:
        # The last of a repeated flag counts. The margin keeps starting and draining out of the time that is measured.
        limits = ["--delay", str(POLITE_DELAY_S), "--time-max", f"{POLITE_S + POLITE_MARGIN_S}s"]
        return [*drumlin_command(seeds, out, settings), *limits]

    with serving(hosts, options.pages or 100, "--gap-s", str(POLITE_DELAY_S)) as site:
        runs = [run_tool("polite", "drumlin", site, command, options)]
    extra = runs[0].extra
    allowed = hosts * POLITE_S / POLITE_DELAY_S
    served = sum(extra["series"][: POLITE_S * 10])
    print_run(runs[0])
    print(f"contacts within {POLITE_S} s of the first: {served:,} of {allowed:,.0f} allowed = {served / allowed:.1%}")
    print(f"least gap between two contacts of a host: {extra['least_gap_s']} s; gaps under 1 s: {extra['gaps_under']}")
    return runs


def size(options: argparse.Namespace) -> list[Run]:
    """5 million URLs in the frontier, alternating with 50,000: whether a page costs more."""
    hosts, pages = options.hosts or 200, options.pages or 100
    runs = []
    with serving(hosts, pages) as site:
        for _ in range(options.rounds):
            for name, urls in (("size 50k", 50_000), ("size 5M", 5_000_000)):
                runs.append(run_tool(name, "drumlin", site, _with_frontier(urls, hosts * pages), options))
                print_run(runs[-1])
    print_summary(runs)
    costs = {name: statistics.median(r.cpu_ms_per_page for r in runs if r.scenario == name) for name in SIZES}
    print(f"cost of a page with 5 million URLs against 50,000: {costs['size 5M'] / costs['size 50k']:.2f} x")
    return runs


SIZES = ("size 50k", "size 5M")


def _with_frontier(urls: int, pages: int) -> Command:
    """drumlin on a frontier that holds `urls` URLs already, until it has fetched all real pages."""

    def command(seeds: Path, out: Path, options: argparse.Namespace) -> list[str]:
        fill(out / "crawl" / "frontier", seeds.read_text().split(), urls)
        return [*drumlin_command(seeds, out, options), "--pages-max", str(pages)]

    return command


SCENARIOS: dict[str, Callable[[argparse.Namespace], list[Run]]] = {
    "speed": speed,
    "latency": latency,
    "polite": polite,
    "size": size,
}


def print_run(run: Run) -> None:
    faults = f"missed {run.missed} doubled {run.doubles} denied {run.denied} unknown {run.unknown}"
    print(
        f"{run.scenario:12} {run.tool:11} {run.pages_per_s:8,.0f} pages/s {run.cpu_ms_per_page:7.3f} CPU-ms/page "
        f"{run.peak_mb:6,.0f} MB peak {run.wall_s:7.1f} s  {faults}",
        flush=True,
    )


def print_summary(runs: list[Run]) -> None:
    head = f"{'scenario':12} {'tool':11} {'pages/s: median (range)':>28} {'CPU-ms/page':>24} {'peak MB':>18}"
    print(f"\n{head}  missed doubled denied")
    for scenario, tool in dict.fromkeys((run.scenario, run.tool) for run in runs):
        mine = [run for run in runs if (run.scenario, run.tool) == (scenario, tool)]
        speeds = _spread([run.pages_per_s for run in mine], ",.0f")
        costs = _spread([run.cpu_ms_per_page for run in mine], ".3f")
        peaks = _spread([run.peak_mb for run in mine], ",.0f")
        faults = f"{sum(r.missed for r in mine):6} {sum(r.doubles for r in mine):7} {sum(r.denied for r in mine):6}"
        print(f"{scenario:12} {tool:11} {speeds:>28} {costs:>24} {peaks:>18}  {faults}")


def _spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def print_ratio(runs: list[Run], mine: tuple[str, str], other: tuple[str, str]) -> None:
    """The ratio of pages/s round by round, since rounds differ more than the runs within one."""
    first = [run.pages_per_s for run in runs if (run.scenario, run.tool) == mine]
    second = [run.pages_per_s for run in runs if (run.scenario, run.tool) == other]
    if first and second:
        ratios = [a / b for a, b in zip(first, second, strict=False)]
        print(f"{' '.join(mine)} / {' '.join(other)}: {_spread(ratios, '.2f')}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.run", description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("scenario", nargs="?", default="speed", choices=[*SCENARIOS, "all"])
    parser.add_argument("--tools", type=lambda text: text.split(","), help=f"of {','.join(TOOLS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hosts", type=int, help="another number of hosts than the scenario's")
    parser.add_argument("--pages", type=int, help="another number of pages per host than the scenario's")
    parser.add_argument("--scrapy-processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--wget2-threads", type=int, default=WGET2_THREADS)
    parser.add_argument("--drumlin-flags", default="", help="more flags for drumlin crawl, in one string")
    parser.add_argument("--json", type=Path, help="write every run to this file")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    # An installed package has bytecode. One that is used in place may have none, if Python may not write files there.
    compileall.compile_dir(ROOT / "drumlin", quiet=1)
    runs = []
    chosen_tools = options.tools
    for name in SCENARIOS if options.scenario == "all" else [options.scenario]:
        options.tools = chosen_tools or (list(TOOLS) if name == "speed" else ["drumlin"])
        print(f"== {name}: {SCENARIOS[name].__doc__}", flush=True)
        runs += SCENARIOS[name](options)
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in runs], indent=1))
    return 1 if any(run.exit_code for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
