"""`drumlin stop`: end a crawl before it is finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumlin.cli.console import say, write_json
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded, config_options

if TYPE_CHECKING:
    from drumlin.fleet.remote import Remote


@click.command("stop")
@remote_options
@config_options("json", "quiet", "color")
def command(loaded: Loaded, remote: Remote) -> None:
    """End the crawl: nodes finish what is in flight and leave. What is left stays in the frontier."""
    answer = remote.post("/api/v1/crawl/stop")
    if loaded.process.json:
        write_json(answer)
    else:
        say(
            loaded.process,
            "The crawl is ending: nodes finish what is in flight and leave. `drumlin resume` goes on with the rest.",
        )
