"""`drumlin resume`: let a crawl that was paused or stopped go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumlin.cli.console import say, write_json
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded, config_options

if TYPE_CHECKING:
    from drumlin.fleet.remote import Remote


@click.command("resume")
@remote_options
@config_options("json", "quiet", "color")
def command(loaded: Loaded, remote: Remote) -> None:
    """Go on with a crawl that was paused or stopped."""
    answer = remote.post("/api/v1/crawl/resume")
    if loaded.process.json:
        write_json(answer)
    else:
        say(loaded.process, "The crawl goes on.")
