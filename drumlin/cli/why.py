"""`drumlin why`: what happened to a URL; without one, why nothing is being fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumlin.cli.console import results, write_json
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded, config_options
from drumlin.lines import one_line

if TYPE_CHECKING:
    from drumlin.fleet.remote import Remote


@click.command("why")
@click.argument("url", required=False)
@remote_options
@config_options("json", "color")
def command(loaded: Loaded, remote: Remote, url: str | None) -> None:
    """Say what happened to URL, and why; without a URL, why nothing is being fetched right now."""
    answer = remote.get("/api/v1/why-idle") if url is None else remote.get("/api/v1/urls", url=_with_scheme(url))
    if loaded.process.json:
        write_json(answer)
        return
    console = results(loaded.process)
    if url is None:
        lines = [reason["message"] for reason in (*answer["reasons"], *answer["bound_by"])]
        lines = lines if answer["idle"] else ["Pages are being fetched.", *lines]
    else:
        lines = answer["story"]
    for line in lines:
        console.print(one_line(line), soft_wrap=True)


def _with_scheme(url: str) -> str:
    return url if "://" in url else f"http://{url}"
