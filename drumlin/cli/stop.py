"""`drumlin stop`: end a crawl before it is finished."""

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

_GO_ON = {
    True: "The same `drumlin crawl` command goes on with the rest.",
    False: "`drumlin resume` goes on with the rest.",
}


@click.command("stop", cls=Verb)
@remote_options("json", "quiet", "color")
def command(loaded: Loaded, remote: Remote) -> None:
    """End the crawl: nodes finish what is in flight and leave. What is left stays queued."""
    answer = remote.post(paths.STOP)
    if loaded.process.json:
        write_json(answer)
    else:
        say(
            loaded.process,
            f"The crawl is ending: nodes finish what is in flight and leave. {_GO_ON[remote.of_one_machine]}",
        )
