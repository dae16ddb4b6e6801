"""`drumlin pause`: pause a crawl. Nothing more is fetched until it is resumed."""

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


@click.command("pause", cls=Verb)
@remote_options("json", "quiet", "color")
def command(loaded: Loaded, remote: Remote) -> None:
    """Pause the crawl: nodes finish what is in flight and wait for `drumlin resume`."""
    answer = remote.post(paths.PAUSE)
    if loaded.process.json:
        write_json(answer)
    else:
        say(loaded.process, "The crawl is paused; `drumlin resume` goes on.")
