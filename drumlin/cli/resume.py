"""`drumlin resume`: let a crawl that was paused or stopped go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumlin.cli.console import say, write_json
from drumlin.cli.help import Verb
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded
from drumlin.protocol import paths

if TYPE_CHECKING:
    from drumlin.client.remote import Remote


@click.command("resume", cls=Verb)
@remote_options("json", "quiet", "color")
def command(loaded: Loaded, remote: Remote) -> None:
    """Go on with a crawl that was paused or stopped."""
    answer = remote.post(paths.RESUME)
    if loaded.process.json:
        write_json(answer)
    else:
        say(loaded.process, "The crawl goes on.")
