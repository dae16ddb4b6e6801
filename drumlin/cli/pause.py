"""`drumlin pause`: hold a crawl: nothing more is fetched until it is resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumlin.cli.console import say, write_json
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded, config_options

if TYPE_CHECKING:
    from drumlin.fleet.remote import Remote


@click.command("pause")
@remote_options
@config_options("json", "quiet", "color")
def command(loaded: Loaded, remote: Remote) -> None:
    """Hold the crawl: nodes finish what is in flight, keep their place, and wait for `drumlin resume`."""
    answer = remote.post("/api/v1/crawl/pause")
    if loaded.process.json:
        write_json(answer)
    else:
        say(loaded.process, "The crawl is paused; `drumlin resume` goes on.")
