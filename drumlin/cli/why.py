"""`drumlin why`: what happened to a URL; without one, why nothing is being fetched, or not more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.console import MARK, line, results, write_json
from drumlin.cli.crawl import web_address
from drumlin.cli.help import Verb
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded
from drumlin.protocol import paths

if TYPE_CHECKING:
    from drumlin.client.remote import Remote

NO_CAUSE = "Nothing that the figures of the last seconds show keeps it from fetching more."
WAITING = frozenset({"queued", "scheduled"})
"""The states of a URL whose turn has yet to come."""
WHOLE_CRAWL = frozenset(
    {"paused", "draining", "stopped", "finished", "moved", "closed", "not_running", "no_nodes", "no_active_nodes"}
)
"""The reasons for which no URL of a crawl is fetched, whatever its host waits for."""


@click.command("why", cls=Verb)
@click.argument("url", required=False)
@remote_options("json", "color")
def command(loaded: Loaded, remote: Remote, url: str | None) -> None:
    """Say what happened to URL, and why; without a URL, why nothing is being fetched right now, or not more."""
    asked = None if url is None else web_address(url)
    answer = remote.get(paths.WHY_IDLE) if asked is None else remote.get(paths.URLS, url=asked)
    if loaded.process.json:
        write_json(answer)
        return
    console = results(loaded.process)
    if asked is None:
        lines = told(answer)
    else:
        standing_still = _standing_still(remote) if answer["state"] in WAITING else []
        lines = [*_known_as(answer["url"], asked), *answer["story"], *standing_still]
    for place, sentence in enumerate(lines):
        line(console, sentence, style="" if place else MARK)


def told(answer: dict[str, Any]) -> list[str]:
    """Why nothing is being fetched, or not more, in sentences."""
    lines = [reason["message"] for reason in (*answer["reasons"], *answer["bound_by"])]
    return lines if answer["idle"] else ["Pages are being fetched.", *(lines or [NO_CAUSE])]


def without_troubles(answer: dict[str, Any], stats: dict[str, Any]) -> dict[str, Any]:
    """The same without the troubles that the figures name, for those who have told them."""
    named = {trouble["code"] for trouble in stats["troubles"]}
    parts = ("reasons", "bound_by")
    return answer | {part: [reason for reason in answer[part] if reason["code"] not in named] for part in parts}


def _known_as(url: str, asked: str) -> list[str]:
    """Which URL the story is about, if the crawl knows the page by another spelling than the one asked about."""
    return [f"The same page as {url}, the spelling by which the crawl knows it:"] if url != asked else []


def _standing_still(remote: Remote) -> list[str]:
    """Why no URL of the crawl is fetched now; empty if some are."""
    return [reason["message"] for reason in remote.get(paths.WHY_IDLE)["reasons"] if reason["code"] in WHOLE_CRAWL]
