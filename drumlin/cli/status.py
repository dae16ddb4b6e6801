"""`drumlin status`: how a crawl stands, once or again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.console import results, write_json
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded, config_options
from drumlin.lines import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from drumlin.fleet.remote import Remote

WATCH_S = 1.0
MEGABYTE = 1_000_000
ROUNDED_FROM = 10


@click.command("status")
@click.option("--watch", is_flag=True, help="show it again every second until the crawl has ended")
@remote_options
@config_options("json", "color")
def command(loaded: Loaded, remote: Remote, watch: bool) -> None:
    """Show how a crawl stands: its state, its speed, its frontier, its nodes."""
    if loaded.process.json:
        _print_json(remote, watch=watch)
    elif watch:
        watch_until_ended(results(loaded.process), remote)
    else:
        results(loaded.process).print(_table_of(remote, remote.get("/api/v1/stats")))


def _print_json(remote: Remote, *, watch: bool) -> None:
    while True:
        stats = remote.get("/api/v1/stats")
        write_json(stats)
        if not watch or _has_ended(remote, stats):
            return
        time.sleep(WATCH_S)


def watch_until_ended(console: Console, remote: Remote, *, quiet: bool = False) -> None:
    """Show the crawl until it is finished: a panel that redraws on a terminal, a line now and then elsewhere."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        while True:
            stats = remote.get("/api/v1/stats")
            if quiet:
                pass
            elif console.is_terminal:
                live.update(_table_of(remote, stats), refresh=True)
            else:
                console.print(status_line(stats), soft_wrap=True)
            if _has_ended(remote, stats):
                return
            time.sleep(WATCH_S)


def _has_ended(remote: Remote, stats: dict[str, Any]) -> bool:
    left = stats["state"] == "draining" and not stats["nodes"].get("active")
    return left or stats["state"] == "finished" or remote.standing


def _table_of(remote: Remote, stats: dict[str, Any]) -> Table:
    why = remote.get("/api/v1/why-idle")
    if remote.standing and stats["state"] != "finished":
        # The engine has the state that the last process left: killed, it could not say that it ended.
        stats = {**stats, "state": "not running"}
    return status_table(stats, why)


def status_line(stats: dict[str, Any]) -> str:
    totals = stats["totals"]
    return (
        f"{stats['state']}: {stats['pages']:,} pages done, {totals['pending']:,} to go, "
        f"{stats['pages_per_s']:,.0f} pages/s, {_nodes(stats['nodes'])}"
        + "".join(f"; {one['message']}" for one in stats["troubles"])
    )


def status_table(stats: dict[str, Any], why: dict[str, Any]) -> Table:
    from rich.table import Table

    totals = stats["totals"]
    table = Table.grid(padding=(0, 3))
    hosts = (
        f"{totals['hosts_ready']:,} ready, {totals['hosts_waiting']:,} waiting, {totals['hosts_leased']:,} leased"
        + (f", {totals['hosts_in_backoff']:,} in back-off" if totals["hosts_in_backoff"] else "")
    )
    queue = f"{totals['queued']:,} queued, {totals['scheduled']:,} waiting for a retry, {totals['leased']:,} leased"
    rows = [
        ("trouble", " ".join(f"{one['message']} {one['hint']}".strip() for one in stats["troubles"])),
        ("crawl", stats["state"]),
        ("pages", f"{stats['pages']:,} done · {totals['known']:,} URLs known · {totals['pending']:,} to go"),
        ("speed", f"{stats['pages_per_s']:,.0f} pages/s · {stats['bytes_per_s'] / MEGABYTE:,.1f} MB/s"),
        ("in flight", in_flight(stats["in_flight"])),
        ("frontier", queue),
        ("hosts", hosts),
        ("answers", _histogram(stats["statuses"])),
        ("failures", _histogram(stats["retries"])),
        ("dead letters", _histogram(stats["dead_letters"])),
        ("nodes", _nodes(stats["nodes"])),
        ("idle because", " ".join(reason["message"] for reason in why["reasons"])),
        ("bound by", " ".join(reason["message"] for reason in why["bound_by"])),
    ]
    for name, value in rows:
        if value:
            table.add_row(name, one_line(value))
    return table


def in_flight(mean: float) -> str:
    """Requests under way, on average: at a polite pace less than one."""
    return f"{mean:,.0f}" if mean >= ROUNDED_FROM or not mean else f"{max(mean, 0.1):,.1f}"


def _nodes(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in counts.items() if count) or "none"


def _histogram(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
