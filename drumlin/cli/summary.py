"""The final report as a table for people."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from drumlin.config import SETTINGS
from drumlin.config.quantities import format_duration
from drumlin.coordinator.patience import PATIENCE
from drumlin.coordinator.report import REPORT_NAME, Report
from drumlin.frontier.backoff import RETRY_RULES
from drumlin.lines import one_line
from drumlin.protocol import CrawlState

SEEDS_SHOWN = 10
RETRYABLE = frozenset(kind for kind, rule in RETRY_RULES.items() if rule.retries)
_ADVICE = {
    "dns": "Check the spelling.",
    "forbidden_address": "If you mean it, run `drumlin dead-letters retry --out {out}` and add --allow-private.",
    "denied": "`drumlin fetch` shows the rule.",
    "status": "Check the address.",
    "redirected": "`drumlin fetch` shows where it leads.",
    "tls": "`drumlin fetch` shows what is wrong.",
}
_GO_ON = "`drumlin resume` goes on with a fleet, the same command with a crawl on one machine."
_RETRY = "`drumlin dead-letters retry --out {out}` and the same command try it again."
_WAITS = "The same command tries it again at once."
OUTPUTS = (
    ("WARC files and their index", "warc"),
    ("tables (Parquet): pages, links, fetches", "tables"),
    ("this report", "report.json"),
)


def print_report(console: Console, report: Report, out: Path) -> None:
    """Say how the crawl ended, what it fetched, and where everything is."""
    console.print(ending(report))
    table = Table.grid(padding=(0, 3))
    for name, value in _rows(report):
        if value:
            table.add_row(name, value)
    console.print(table)
    console.print("")
    for what, name in OUTPUTS:
        console.print(f"{out / name}  {what}", soft_wrap=True)


def ending(report: Report) -> str:
    """How the crawl ended, or that it has not."""
    left = f"{report.urls_pending:,} URLs are left"
    if report.interrupted:
        return f"Stopped: {left}. The same command goes on from here."
    if report.stop_reason == PATIENCE:
        listed = "; ".join(report.out_of_reach)
        return one_line(
            f"Stopped after --patience: {left}, all of hosts that are out of reach ({listed}). "
            "The same command goes on from here, and tries them at once."
        )
    if report.stop_reason in SETTINGS:
        return f"Stopped by {SETTINGS[report.stop_reason].flag}: {left}. Raise it and run the command again to go on."
    if report.stop_reason:
        return f"{report.stop_reason.capitalize()}: {left}. {_GO_ON}"
    if report.state != CrawlState.FINISHED:
        return f"The crawl is {report.state}, not finished: {left}. {_GO_ON}"
    if report.urls_pending:
        return f"Finished, but {left}: added since then, or beyond the budget of a host."
    return "Finished: nothing is left to fetch." if report.pages else "Finished without a page."


def tell_fruitless_seeds(console: Console, report: Report, out: Path) -> None:
    """Name the seeds that gave no page, and say what to do about each."""
    for seed in report.fruitless_seeds[:SEEDS_SHOWN]:
        again = _WAITS if seed.waits else _RETRY if seed.kind in RETRYABLE else ""
        advice = _ADVICE.get(seed.kind, again).format(out=out)
        said = one_line(f"{seed.url}: no page, since {seed.reason}. {advice}".strip())
        console.print(said, soft_wrap=True, markup=False, highlight=False)
    if (more := len(report.fruitless_seeds) - SEEDS_SHOWN) > 0:
        console.print(f"{more:,} further seeds gave no page; {out / REPORT_NAME} names them.", soft_wrap=True)


def _rows(report: Report) -> list[tuple[str, str]]:
    duplicates = report.duplicates
    return [
        ("pages", f"{report.pages:,}"),
        ("distinct URLs", f"{report.urls:,}"),
        ("bytes", f"{report.bytes:,}"),
        ("duration", format_duration(round(report.duration_s, 1))),
        ("pages/s", f"{report.pages_per_s:,.1f}"),
        ("status codes", _histogram(report.statuses)),
        ("outcomes", _histogram(report.outcomes)),
        ("duplicates", f"{duplicates['exact']:,} exact, {duplicates['near']:,} near"),
        ("denied by robots.txt", f"{report.robots_denied:,}"),
        ("retries", _histogram(report.retries)),
        ("dead letters", _histogram(report.dead_letters)),
        ("links not followed", _histogram(report.refused)),
        ("top hosts", ", ".join(f"{host.host} {host.pages:,}" for host in report.top_hosts)),
    ]


def _histogram(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
