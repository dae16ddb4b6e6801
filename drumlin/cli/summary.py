"""The final report as a table for people."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from drumlin.config.quantities import format_duration
from drumlin.coordinator.report import Report

OUTPUTS = (
    ("WARC files and their index", "warc"),
    ("tables (Parquet): pages, links, fetches", "tables"),
    ("this report", "report.json"),
)


def print_report(console: Console, report: Report, out: Path) -> None:
    """Say how the crawl ended, what it fetched, and where everything is."""
    console.print(_ending(report))
    table = Table.grid(padding=(0, 3))
    for name, value in _rows(report):
        if value:
            table.add_row(name, value)
    console.print(table)
    console.print("")
    for what, name in OUTPUTS:
        console.print(f"{out / name}  {what}", soft_wrap=True)


def _ending(report: Report) -> str:
    if report.interrupted:
        return f"Stopped: {report.urls_pending:,} URLs are left. The same command goes on from here."
    if report.stop_reason:
        key = report.stop_reason.replace("_", "-")
        return (
            f"Stopped by --{key}: {report.urls_pending:,} URLs are left. Raise it and run the command again to go on."
        )
    return "Finished: nothing is left to fetch."


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
