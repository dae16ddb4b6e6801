"""`drumlin status`: the state of a crawl, shown once or every second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.console import line, results, write_json
from drumlin.cli.figures import histogram, hosts_of, in_flight, nodes_now, pace, pages_now, queue_now
from drumlin.cli.help import Verb
from drumlin.cli.remote import remote_options
from drumlin.cli.why import without_troubles
from drumlin.config import Loaded
from drumlin.config.quantities import show_size
from drumlin.lines import counted, one_line
from drumlin.protocol import paths

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from drumlin.client.remote import Remote

WATCH_S = 1.0
NOT_RUNNING = "not running"
AT_REST = ("finished", NOT_RUNNING)
"""The states of a crawl that has no speed."""
STYLES = {"trouble": "red", "crawl": "bold", "given up": "yellow", "idle because": "yellow"}


@click.command("status", cls=Verb)
@click.option("--watch", is_flag=True, help="show it again every second until the crawl has ended")
@remote_options("json", "color")
def command(loaded: Loaded, remote: Remote, watch: bool) -> None:
    """Show the state of a crawl: its speed, what is left, its hosts and its nodes."""
    if loaded.process.json:
        _print_json(remote, watch=watch)
    elif watch:
        watch_until_ended(results(loaded.process), remote)
    else:
        results(loaded.process).print(_table_of(remote, remote.get(paths.STATS)))


def _print_json(remote: Remote, *, watch: bool) -> None:
    while True:
        stats = remote.get(paths.STATS)
        write_json(stats)
        if not watch or has_ended(remote, stats):
            return
        time.sleep(WATCH_S)


def watch_until_ended(console: Console, remote: Remote, *, quiet: bool = False) -> None:
    """Show the crawl until it has ended: a panel that is redrawn on a terminal, a line every second elsewhere."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        while True:
            stats = remote.get(paths.STATS)
            if quiet:
                pass
            elif console.is_terminal:
                live.update(_table_of(remote, stats), refresh=True)
            else:
                line(console, status_line(stats))
            if has_ended(remote, stats):
                return
            time.sleep(WATCH_S)


def has_ended(remote: Remote, stats: dict[str, Any]) -> bool:
    return state_of(stats) in ("stopped", "finished") or remote.standing


def state_of(stats: dict[str, Any]) -> str:
    """The crawl's state. A crawl that drains is stopped once its nodes have left."""
    return "stopped" if stats["state"] == "draining" and stats["stopped"] else str(stats["state"])


def _table_of(remote: Remote, stats: dict[str, Any]) -> Table:
    return status_table(as_it_stands(remote, stats), remote.get(paths.WHY_IDLE))


def as_it_stands(remote: Remote, stats: dict[str, Any]) -> dict[str, Any]:
    """The figures, with the state of a crawl that does not run. The engine has the last state that a process wrote; if
    that process was killed, it may still say "running"."""
    return {**stats, "state": NOT_RUNNING} if remote.standing and stats["state"] != "finished" else stats


def status_line(stats: dict[str, Any]) -> str:
    totals = stats["totals"]
    return (
        f"{state_of(stats)}: {counted(stats['pages'], 'page')} done, {totals['pending']:,} to go, "
        f"{pace(stats['pages_per_s'])} pages/s, {nodes_now(stats['nodes'])}"
        + "".join(f"; {one['message']}" for one in stats["troubles"])
    )


def _speed(stats: dict[str, Any]) -> list[tuple[str, str]]:
    speed = f"{pace(stats['pages_per_s'])} pages/s · {show_size(stats['bytes_per_s'])}/s"
    return [("speed", speed), ("in flight", in_flight(stats["in_flight"]))]


def status_table(stats: dict[str, Any], why: dict[str, Any]) -> Table:
    from rich.table import Table
    from rich.text import Text

    totals, rest = stats["totals"], without_troubles(why, stats)
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    rows = [
        ("trouble", " ".join(f"{one['message']} {one['hint']}".strip() for one in stats["troubles"])),
        ("crawl", state_of(stats)),
        ("pages", pages_now(stats["pages"], totals["known"], totals["pending"])),
        *(_speed(stats) if state_of(stats) not in AT_REST else []),
        ("URLs left", queue_now(totals)),
        ("hosts", hosts_of(totals)),
        ("answers", histogram(stats["statuses"])),
        ("tried again", histogram(stats["retries"])),
        ("given up", histogram(stats["dead_letters"])),
        ("nodes", nodes_now(stats["nodes"])),
        ("idle because", " ".join(reason["message"] for reason in rest["reasons"])),
        ("bound by", " ".join(reason["message"] for reason in rest["bound_by"])),
    ]
    for name, value in rows:
        if value:
            table.add_row(name, Text(one_line(value), STYLES.get(name, "")))
    return table
