"""`drumlin nodes`: who is at work, and how they do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from drumlin.cli.console import results, say, write_json
from drumlin.cli.remote import ListsByDefault, remote_options
from drumlin.cli.status import in_flight
from drumlin.config import Loaded, config_options, format_duration
from drumlin.lines import one_line

if TYPE_CHECKING:
    from rich.table import Table

    from drumlin.fleet.remote import Remote

STATUSES = ("active", "inactive", "failed", "quarantined", "draining")
STYLES = {"active": "green", "failed": "red", "quarantined": "red", "draining": "yellow", "inactive": "dim"}
COLUMNS = ("node", "status", "pages/s", "in flight", "hosts", "fetched", "last seen", "address")


@click.group("nodes", cls=ListsByDefault)
def command() -> None:
    """List the nodes of a crawl, or let one leave, keep it out or let it in again."""


def _order(loaded: Loaded, remote: Remote, node: str, order: str, sentence: str) -> None:
    answer = remote.post(f"/api/v1/nodes/{quote(node, safe='')}/{order}")
    if loaded.process.json:
        write_json(answer)
    else:
        say(loaded.process, sentence)


@command.command("drain")
@click.argument("node")
@remote_options
@config_options("json", "quiet", "color")
def drain(loaded: Loaded, remote: Remote, node: str) -> None:
    """Let a node finish what is in flight, and leave."""
    _order(loaded, remote, node, "drain", f"{one_line(node)} finishes what is in flight and leaves.")


@command.command("quarantine")
@click.argument("node")
@remote_options
@config_options("json", "quiet", "color")
def quarantine(loaded: Loaded, remote: Remote, node: str) -> None:
    """Keep a node out: it is given nothing, and nothing of it counts."""
    _order(loaded, remote, node, "quarantine", f"{one_line(node)} is kept out; `drumlin nodes release` lets it in.")


@command.command("release")
@click.argument("node")
@remote_options
@config_options("json", "quiet", "color")
def release(loaded: Loaded, remote: Remote, node: str) -> None:
    """Let a node work again that was drained or put out."""
    _order(loaded, remote, node, "release", f"{one_line(node)} may work again.")


@command.command("list")
@click.option("--status", type=click.Choice(STATUSES), help="only nodes of this status")
@remote_options
@config_options("json", "color")
def list_nodes(loaded: Loaded, remote: Remote, status: str | None) -> None:
    """List the nodes of a crawl: the default."""
    query = {} if status is None else {"status": status}
    nodes = remote.get("/api/v1/nodes", **query)["nodes"]
    if loaded.process.json:
        write_json(nodes)
        return
    console = results(loaded.process)
    if nodes:
        console.print(nodes_table(nodes, time.time()))
    console.print(f"{len(nodes):,} nodes, {sum(node['status'] == 'active' for node in nodes):,} of them active.")


def nodes_table(nodes: list[dict[str, Any]], now: float) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("node", "status", "address") else "right", no_wrap=True)
    for node in nodes:
        status = node["status"]
        table.add_row(
            node["node_id"],
            Text(status, style=STYLES.get(status, "")),
            f"{node['pages_per_s']:,.1f}",
            in_flight(node["current_load"]),
            f"{node['leases']:,}",
            f"{node['total_crawled']:,}",
            f"{format_duration(float(max(0, round(now - node['last_seen']))))} ago",
            one_line(node["ip_address"]),
        )
    return table
