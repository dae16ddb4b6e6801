"""The final report as a table for people."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from drumlin.api.explaining.causes import cause
from drumlin.api.explaining.report import REPORT_NAME, Report
from drumlin.cli.console import line
from drumlin.cli.figures import histogram, pace
from drumlin.config import SETTINGS
from drumlin.config.quantities import show_duration, show_size
from drumlin.coordinator.patience import PATIENCE
from drumlin.frontier.backoff import RETRY_RULES
from drumlin.lines import counted, one_line
from drumlin.protocol import CrawlState
from drumlin.store.opening import store_address

SEEDS_SHOWN = 10
HOSTS_SHOWN = 5
RETRYABLE = frozenset(kind for kind, rule in RETRY_RULES.items() if rule.retries)
_ADVICE = {
    "dns": "Check the spelling, and that this machine is online.",
    "forbidden_address": "If you mean it, run the same command with --allow-private.",
    "denied": "`drumlin fetch {url}` shows the rule.",
    "status": "Check the address.",
    "redirected": "`drumlin fetch {url}` shows where it leads.",
    "tls": "`drumlin fetch {url}` shows what is wrong.",
}
_GO_ON = "`drumlin resume` goes on."
_RUN_AGAIN = "The same `drumlin crawl` command goes on."
_RETRY = "`drumlin dead-letters retry --out {out}` and the same command try it again."
_DROPPED = "It was dropped from the dead letters, so it is not tried again."
_WAITS = "The same command tries it again, at once unless the site asked us to wait."
OUTPUTS = (
    ("WARC files and their index", "warc"),
    ("tables (Parquet): pages, links, fetches", "tables"),
    ("this report", "report.json"),
)


def print_report(console: Console, report: Report, out: Path) -> None:
    """Say how the crawl ended, what it fetched, and where everything is."""
    line(console, ending(report), style="bold green" if _is_done(report) else "bold yellow")
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in _rows(report):
        if value:
            table.add_row(name, one_line(value))
    console.print(table)
    _print_columns(console, "Where it is", _places(out))
    _print_columns(console, "What next", _next_commands(report, out))


def _places(out: Path) -> list[tuple[str, str]]:
    """Where everything is, and what it is. In a bucket, paths lead to objects only through the manifest."""
    address = store_address(out)
    if not address:
        return [(str(out / name), what) for what, name in OUTPUTS]
    return [(address, "WARC files, their index and tables"), (str(out / REPORT_NAME), OUTPUTS[-1][0])]


def _print_columns(console: Console, title: str, rows: list[tuple[str, str]]) -> None:
    """Things and what they are, side by side; the things are not broken, so they can be copied."""
    line(console, "")
    line(console, title, style="bold")
    width = max(len(thing) for thing, _ in rows)
    for thing, meaning in rows:
        line(console, f"  {thing:<{width}}  {meaning}", indent=width + 4)


def _next_commands(report: Report, out: Path) -> list[tuple[str, str]]:
    """What people mostly want after a crawl. Only a crawl on one machine has a directory that all verbs know."""
    asked = [(f"drumlin query --out {out}", "ask what it has stored, in SQL")]
    if not _on_one_machine(report):
        return asked
    given_up = sum(report.dead_letters.values())
    letters = (f"drumlin dead-letters --out {out}", f"why {counted(given_up, 'URL')} {_was(given_up)} given up")
    looks = [(f"drumlin open {out}", "look at it in a browser"), *asked]
    return [*looks, *([letters] if given_up else []), (f"drumlin why URL --out {out}", "what happened to a page")]


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def _on_one_machine(report: Report) -> bool:
    """Only crawls on one machine have runs."""
    return report.crawl is not None and bool(report.crawl.runs)


def _is_done(report: Report) -> bool:
    return report.state == CrawlState.FINISHED and not report.urls_pending and report.pages > 0


def ending(report: Report) -> str:
    """How the crawl ended, or that it has not."""
    left = f"{counted(report.urls_pending, 'URL')} {'is' if report.urls_pending == 1 else 'are'} left"
    if report.interrupted:
        return f"Stopped: {left}. The same command goes on from here."
    if report.stop_reason == PATIENCE:
        listed = "; ".join(report.out_of_reach)
        return one_line(
            f"Stopped after --patience: {left}, all of hosts that are out of reach ({listed}). "
            "The same command goes on from here, and tries them at once, except those that asked us to wait."
        )
    if report.stop_reason in SETTINGS:
        return f"Stopped by {SETTINGS[report.stop_reason].flag}: {left}. Raise it and run the command again to go on."
    if report.stop_reason:
        return one_line(f"{report.stop_reason[:1].upper()}{report.stop_reason[1:]}: {left}. {_next(report)}")
    if report.state != CrawlState.FINISHED:
        return f"The crawl is {report.state}, not finished: {left}. {_next(report)}"
    if report.urls_pending:
        return f"Finished, but {left}: added since then, or beyond the budget of a host."
    return "Finished: nothing is left to fetch." if report.pages else "Finished without a page."


def _next(report: Report) -> str:
    """How to go on: a fleet is resumed by another command."""
    return _RUN_AGAIN if _on_one_machine(report) else _GO_ON


def tell_fruitless_seeds(console: Console, report: Report, out: Path) -> None:
    """Name the seeds that gave no page, and say what to do about each."""
    for seed in report.fruitless_seeds[:SEEDS_SHOWN]:
        again = _WAITS if seed.waits else _RETRY if seed.kind in RETRYABLE else ""
        advice = _DROPPED if seed.dropped else _ADVICE.get(seed.kind, again).format(out=out, url=seed.url)
        line(console, f"No page from {seed.url}: {seed.reason}. {advice}".strip(), style="yellow")
    if (more := len(report.fruitless_seeds) - SEEDS_SHOWN) > 0:
        line(console, f"{more:,} further seeds gave no page; {out / REPORT_NAME} names them.")


def _rows(report: Report) -> list[tuple[str, str]]:
    """The figures by name. What did not happen is left out."""
    duplicates, exact, near = report.duplicates, report.duplicates["exact"], report.duplicates["near"]
    speed = f" · {pace(report.pages_per_s)} pages/s" if report.pages_per_s else ""
    hosts = [f"{host.host} {host.pages:,}" for host in report.top_hosts[:HOSTS_SHOWN] if host.pages]
    given_up = ", ".join(f"{count:,} {cause(kind)}" for kind, count in report.dead_letters.items())
    return [
        ("pages", f"{report.pages:,} of {counted(report.urls, 'URL')} known · {show_size(report.bytes)}"),
        ("time", f"{show_duration(report.duration_s)}{speed}"),
        ("status codes", histogram(report.statuses)),
        ("outcomes", histogram(report.outcomes)),
        ("duplicates", f"{exact:,} exact, {near:,} near" if any(duplicates.values()) else ""),
        ("denied by robots.txt", f"{report.robots_denied:,}" if report.robots_denied else ""),
        ("tried again", histogram(report.retries)),
        ("given up", given_up),
        ("links not followed", histogram(report.refused)),
        ("top hosts", ", ".join(hosts)),
    ]
