"""`drumlin audit`: who changed what."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import results, write_json
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded, config_options
from drumlin.lines import one_line

if TYPE_CHECKING:
    from drumlin.fleet.remote import Remote

SHOWN_MAX = 1_000


@click.command("audit")
@click.option("--limit", type=click.IntRange(1, SHOWN_MAX), default=50, show_default=True, help="the last so many")
@remote_options
@config_options("json", "color")
def command(loaded: Loaded, remote: Remote, limit: int) -> None:
    """Show who changed what of a crawl, the newest first: people, and coordinators that put a node out."""
    entries = remote.get("/api/v1/audit", limit=limit)["entries"]
    if loaded.process.json:
        write_json(entries)
        return
    console = results(loaded.process)
    for entry in entries:
        when = datetime.fromtimestamp(entry["time"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        who = entry["name"] or entry["role"]
        console.print(
            one_line(f"{when}  {who}  {entry['action']}  {entry['outcome']}  {entry['target']}"), soft_wrap=True
        )
    console.print(f"{len(entries):,} changes.")
