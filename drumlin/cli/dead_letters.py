"""`drumlin dead-letters`: look at the URLs that were given up, and retry or drop them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.console import results, write_json
from drumlin.cli.remote import ListsByDefault, remote_options
from drumlin.config import Loaded, config_options
from drumlin.errors import ConfigError
from drumlin.lines import counted, one_line
from drumlin.model import FailureKind

if TYPE_CHECKING:
    from drumlin.fleet.remote import Remote

AT_ONCE = 1_000
"""As many as a coordinator lists or changes with one call."""


def _selection(function: click.decorators.FC) -> click.decorators.FC:
    known = click.Choice([str(kind) for kind in FailureKind])
    kind = click.option(
        "--kind",
        type=known,
        metavar="KIND",
        callback=lambda _context, _option, value: value or "",
        help="only this kind, such as timeout or http_5xx",
    )
    function = kind(function)
    return click.option("--host", default="", help="only of this host")(function)


@click.group("dead-letters", cls=ListsByDefault)
def command() -> None:
    """List, retry or drop the URLs that used up their retries."""


@command.command("list")
@_selection
@click.option(
    "--limit", type=click.IntRange(1, AT_ONCE), default=AT_ONCE, show_default=True, help="show at most so many"
)
@remote_options
@config_options("json", "color")
def list_letters(loaded: Loaded, remote: Remote, kind: str, host: str, limit: int) -> None:
    """Show dead letters: what failed, how often, and why."""
    letters = remote.get("/api/v1/dead-letters", kind=kind, host=host, limit=limit)["dead_letters"]
    letters.sort(key=lambda letter: letter["last_failed"])
    if loaded.process.json:
        write_json(letters)
        return
    console = results(loaded.process)
    for letter in letters:
        when = datetime.fromtimestamp(letter["last_failed"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        error = f"{letter['last_error'] or 'no details'}{_found_on(letter)}"
        console.print(one_line(f"{when}  {letter['kind']}  {letter['url']}"), soft_wrap=True)
        console.print(one_line(f"    {_attempts(letter)}: {error}"), soft_wrap=True)
    more = " There may be more: narrow the list by --kind or --host." if len(letters) == limit else ""
    console.print(f"{counted(len(letters), 'dead letter')}.{more}")


def _attempts(letter: dict[str, Any]) -> str:
    return "1 attempt" if letter["attempts"] == 1 else f"{letter['attempts']} attempts"


def _found_on(letter: dict[str, Any]) -> str:
    return f" (found on {letter['found_on']})" if letter["found_on"] else ""


@command.command("retry")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@_selection
@click.option("--all", "everything", is_flag=True, help="all of them; the same as no selection")
@remote_options
@config_options("json", "color")
def retry(loaded: Loaded, remote: Remote, urls: tuple[str, ...], kind: str, host: str, everything: bool) -> None:
    """Put dead letters back into the frontier: those named, those selected, or all."""
    done = _change(remote, "retry", urls, kind, host)
    by = "by the next `drumlin crawl`" if remote.standing else "in their turn"
    _tell(loaded, done, f"{counted(done, 'URL')} will be fetched again {by}.")


@command.command("drop")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@_selection
@click.option("--all", "everything", is_flag=True, help="all of them")
@remote_options
@config_options("json", "color")
def drop(loaded: Loaded, remote: Remote, urls: tuple[str, ...], kind: str, host: str, everything: bool) -> None:
    """Forget dead letters: those named or selected, or --all. They are not fetched again."""
    if not (urls or kind or host or everything):
        raise ConfigError("Which dead letters?", "Name URLs, select with --kind or --host, or give --all.")
    done = _change(remote, "drop", urls, kind, host)
    _tell(loaded, done, f"{counted(done, 'dead letter')} dropped.")


def _change(remote: Remote, verb: str, urls: tuple[str, ...], kind: str, host: str) -> int:
    """Retry or drop part by part, until a part is not full."""
    path, done = f"/api/v1/dead-letters/{verb}", 0
    if urls:
        for start in range(0, len(urls), AT_ONCE):
            done += remote.post(path, {"urls": urls[start : start + AT_ONCE]})["changed"]
        return done
    while True:
        part: int = remote.post(path, {"kind": kind, "host": host, "limit": AT_ONCE})["changed"]
        done += part
        if part < AT_ONCE:
            return done


def _tell(loaded: Loaded, done: int, sentence: str) -> None:
    if loaded.process.json:
        write_json({"changed": done})
    else:
        results(loaded.process).print(sentence)
