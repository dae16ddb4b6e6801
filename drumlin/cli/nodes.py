"""`drumlin nodes`: the nodes of a crawl and their state, and orders for one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from drumlin.cli.console import line, results, say, write_json
from drumlin.cli.figures import in_flight, pace
from drumlin.cli.remote import ListsByDefault, now_of, remote_options
from drumlin.config import Loaded
from drumlin.config.quantities import show_duration
from drumlin.lines import counted, one_line
from drumlin.protocol import NodeStatus, paths

if TYPE_CHECKING:
    from rich.table import Table

    from drumlin.client.remote import Remote

STATUSES = [str(status) for status in NodeStatus]
STYLES = {"active": "green", "failed": "red", "quarantined": "red", "draining": "yellow"}
STYLES |= {"inactive": "dim", "quiet": "dim"}
WIDE = 100
"""On a terminal with fewer columns, addresses are left out."""
COLUMNS = ("node", "status", "pages/s", "in flight", "hosts", "since start", "last seen", "address")


@click.group("nodes", cls=ListsByDefault)
def command() -> None:
    """List the nodes of a crawl, or let one leave, put it into quarantine or release it."""


def _order(loaded: Loaded, remote: Remote, node: str, path: str, sentence: str) -> None:
    answer = remote.post(path.format(node_id=quote(node, safe="")))
    if loaded.process.json:
        write_json(answer)
    else:
        say(loaded.process, sentence)


@command.command("drain")
@click.argument("node")
@remote_options("json", "quiet", "color")
def drain(loaded: Loaded, remote: Remote, node: str) -> None:
    """Let a node finish what is in flight and leave."""
    _order(loaded, remote, node, paths.DRAIN, f"{one_line(node)} finishes what is in flight and leaves.")


@command.command("quarantine")
@click.argument("node")
@remote_options("json", "quiet", "color")
def quarantine(loaded: Loaded, remote: Remote, node: str) -> None:
    """Put a node into quarantine: it gets no work, and its results do not count."""
    done = f"{one_line(node)} is in quarantine; `drumlin nodes release` lets it in."
    _order(loaded, remote, node, paths.QUARANTINE, done)


@command.command("release")
@click.argument("node")
@remote_options("json", "quiet", "color")
def release(loaded: Loaded, remote: Remote, node: str) -> None:
    """Let a node work again that was drained or quarantined."""
    _order(loaded, remote, node, paths.RELEASE, f"{one_line(node)} may work again.")


@command.command("list")
@click.option("--status", type=click.Choice(STATUSES), help="only nodes of this status")
@remote_options("json", "color")
def list_nodes(loaded: Loaded, remote: Remote, status: str | None) -> None:
    """List the nodes of a crawl: the default."""
    query = {} if status is None else {"status": status}
    told = remote.get(paths.NODES, **query)
    nodes = told["nodes"]
    if loaded.process.json:
        write_json(nodes)
        return
    console = results(loaded.process)
    if nodes:
        now = now_of(told, standing=remote.standing)
        console.print(nodes_table(nodes, now, wide=not console.is_terminal or console.width >= WIDE))
    active = sum(node["status"] == "active" for node in nodes)
    line(console, f"{counted(len(nodes), 'node')}, {active:,} of them active." if nodes else _nobody(status))


def _nobody(status: str | None) -> str:
    if status is not None:
        return f"No node is {status}."
    return "No node has registered. `drumlin node --coordinator URL` starts one."


def nodes_table(nodes: list[dict[str, Any]], now: float, *, wide: bool = True) -> Table:
    """A line for each node; addresses only where there is room for them."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in COLUMNS if wide else COLUMNS[:-1]:
        table.add_column(column, justify="left" if column in ("node", "status", "address") else "right", no_wrap=True)
    for node in nodes:
        status = node["status"]
        cells = [
            node["node_id"],
            Text(status, style=STYLES.get(status, "")),
            pace(node["pages_per_s"]),
            in_flight(node["current_load"]),
            f"{node['leases']:,}",
            f"{node['total_crawled']:,}",
            f"{show_duration(round(now - node['last_seen']))} ago",
            one_line(node["ip_address"]),
        ]
        table.add_row(*(cells if wide else cells[:-1]))
    return table
