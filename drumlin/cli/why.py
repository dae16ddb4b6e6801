"""`drumlin why`: what happened to a URL; without one, why nothing is being fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumlin.cli.console import MARK, line, results, write_json
from drumlin.cli.help import Verb
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded
from drumlin.protocol import paths

if TYPE_CHECKING:
    from drumlin.client.remote import Remote


@click.command("why", cls=Verb)
@click.argument("url", required=False)
@remote_options("json", "color")
def command(loaded: Loaded, remote: Remote, url: str | None) -> None:
    """Say what happened to URL, and why; without a URL, why nothing is being fetched right now."""
    answer = remote.get(paths.WHY_IDLE) if url is None else remote.get(paths.URLS, url=_with_scheme(url))
    if loaded.process.json:
        write_json(answer)
        return
    console = results(loaded.process)
    if url is None:
        lines = [reason["message"] for reason in (*answer["reasons"], *answer["bound_by"])]
        lines = lines if answer["idle"] else ["Pages are being fetched.", *lines]
    else:
        lines = answer["story"]
    for place, sentence in enumerate(lines):
        line(console, sentence, style="" if place else MARK)


def _with_scheme(url: str) -> str:
    return url if "://" in url else f"http://{url}"
