"""`drumlin node`: one worker of a crawl. `drumlin crawl` starts its own."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("node")
@click.option("--coordinator", required=True, metavar="URL", help="where the coordinator listens (unix:PATH)")
@click.option("--name", required=True, help="this node's name in the crawl")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="the crawl directory")
@click.option("--concurrency", default=512, show_default=True, help="requests in flight")
@click.option("--sync", is_flag=True, help="fsync before a page counts as done")
@click.option("--parent-pid", default=0, hidden=True, help="end when this process ends")
def command(coordinator: str, name: str, out: Path, concurrency: int, sync: bool, parent_pid: int) -> None:
    """Lease, fetch, parse, store and settle until the crawl has ended."""
    from drumlin.node.main import NodeOptions, run_node

    run_node(NodeOptions(name, coordinator, out, concurrency, sync, parent_pid))
