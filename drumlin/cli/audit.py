"""`drumlin audit`: who changed what, and who logged in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import line, results, write_json
from drumlin.cli.help import Verb
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded
from drumlin.protocol import paths

if TYPE_CHECKING:
    from drumlin.client.remote import Remote

SHOWN_MAX = 1_000


@click.command("audit", cls=Verb)
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, SHOWN_MAX), default=50, show_default=True, help="the last so many"
)
@remote_options("json", "color")
def command(loaded: Loaded, remote: Remote, limit: int) -> None:
    """Show who changed what in a crawl, newest first: people, and coordinators that put a node into quarantine. Log-ins
    to the dashboard are among it."""
    entries = remote.get(paths.AUDIT, limit=limit)["entries"]
    if loaded.process.json:
        write_json(entries)
        return
    console = results(loaded.process)
    for entry in entries:
        when = datetime.fromtimestamp(entry["time"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        who = entry["name"] or entry["role"]
        line(console, f"{when}  {who}  {entry['action']}  {entry['outcome']}  {entry['target']}", marked=when)
    noun = "entry" if len(entries) == 1 else "entries"
    line(console, f"{len(entries):,} {noun}." if entries else "Nobody has changed anything.")
