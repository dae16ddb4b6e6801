"""`drumlin dead-letters`: look at the URLs that were given up, and retry or drop them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.console import line, results, write_json
from drumlin.cli.remote import ListsByDefault, remote_options
from drumlin.config import Loaded
from drumlin.errors import ConfigError
from drumlin.lines import counted, one_line
from drumlin.model import FailureKind
from drumlin.protocol import paths

if TYPE_CHECKING:
    from drumlin.client.remote import Remote

ERROR_INDENT = 6
AT_ONCE = 1_000
"""How many dead letters a coordinator lists or changes with one call."""


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
    "--limit",
    metavar="N",
    type=click.IntRange(1, AT_ONCE),
    default=AT_ONCE,
    show_default=True,
    help="show at most so many",
)
@click.option("--after", default="", metavar="PLACE", help="go on after this place, which the list before has named")
@click.option("--by", type=click.Choice(["kind", "host"]), help="count them instead: for each kind, or kind and host")
@remote_options("json", "color")
def list_letters(loaded: Loaded, remote: Remote, kind: str, host: str, limit: int, after: str, by: str | None) -> None:
    """Show dead letters: what failed, how often, and why. With --by, how many there are, most first."""
    if by:
        _count_letters(loaded, remote, by, kind, host, limit, after)
        return
    page = remote.get(paths.DEAD_LETTERS, kind=kind, host=host, limit=limit, after=after)
    letters = page["dead_letters"]
    letters.sort(key=lambda letter: letter["last_failed"])
    if loaded.process.json:
        write_json(letters)
        return
    console = results(loaded.process)
    for letter in letters:
        when = datetime.fromtimestamp(letter["last_failed"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        error = f"{letter['last_error'] or 'no details'}{_found_on(letter)}"
        begun = f"{when}  {letter['kind']}"
        line(console, f"{begun}  {letter['url']}", marked=begun)
        line(console, f"    {counted(letter['attempts'], 'attempt')}: {error}", indent=ERROR_INDENT)
    said = f"{counted(len(letters), 'dead letter')}.{_more(page['next'])}" if letters else _none(kind, host, after)
    line(console, said)


def _none(kind: str, host: str, after: str) -> str:
    which = "further URL" if after else "such URL" if kind or host else "URL"
    return f"No {which} was given up."


def _count_letters(loaded: Loaded, remote: Remote, by: str, kind: str, host: str, limit: int, after: str) -> None:
    if host:
        raise ConfigError("--by counts the letters of all hosts.", "Leave --host out.")
    page = remote.get(paths.DEAD_LETTER_GROUPS, by=by, kind=kind, limit=limit, after=after)
    if loaded.process.json:
        write_json(page["groups"])
        return
    console = results(loaded.process)
    for group in page["groups"]:
        counts = f"{group['urls']:>9,}  {group['kind']:<12}"
        line(console, f"{counts}  {one_line(group['host']) or group['means']}", marked=counts)
    line(console, f"{counted(len(page['groups']), 'group')}.{_more(page['next'])}")


def _more(after: str) -> str:
    return f" There may be more: add --after '{after}'." if after else ""


def _found_on(letter: dict[str, Any]) -> str:
    return f" (found on {letter['found_on']})" if letter["found_on"] else ""


@command.command("retry")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@_selection
@click.option("--all", "everything", is_flag=True, help="all of them; the same as no selection")
@remote_options("json", "color")
def retry(loaded: Loaded, remote: Remote, urls: tuple[str, ...], kind: str, host: str, everything: bool) -> None:
    """Put dead letters back into the queue: the URLs named, those selected by --kind and --host, or all."""
    done = _change(remote, paths.RETRY_DEAD_LETTERS, urls, kind, host)
    by = "by the next `drumlin crawl`" if remote.standing else "in their turn"
    _tell(loaded, done, f"{counted(done, 'URL')} will be fetched again {by}.")


@command.command("drop")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@_selection
@click.option("--all", "everything", is_flag=True, help="all of them")
@remote_options("json", "color")
def drop(loaded: Loaded, remote: Remote, urls: tuple[str, ...], kind: str, host: str, everything: bool) -> None:
    """Forget dead letters: the URLs named, those selected by --kind and --host, or --all. They are not fetched
    again."""
    if not (urls or kind or host or everything):
        raise ConfigError("Which dead letters?", "Name URLs, select with --kind or --host, or give --all.")
    done = _change(remote, paths.DROP_DEAD_LETTERS, urls, kind, host)
    _tell(loaded, done, f"{counted(done, 'dead letter')} dropped.")


def _change(remote: Remote, path: str, urls: tuple[str, ...], kind: str, host: str) -> int:
    """Retry or drop, `AT_ONCE` at a time, until fewer are changed. Returns how many."""
    from drumlin.urls import canonical

    wrong = next((url for url in urls if canonical(url) is None), None)
    if wrong is not None:
        raise ConfigError(f"{wrong!r} is not a web address.", "Write it like https://example.com/page.")
    done = 0
    if urls:
        for start in range(0, len(urls), AT_ONCE):
            part = urls[start : start + AT_ONCE]
            done += remote.post(path, {"urls": part, "kind": kind, "host": host})["changed"]
        return done
    while True:
        changed: int = remote.post(path, {"kind": kind, "host": host, "limit": AT_ONCE})["changed"]
        done += changed
        if changed < AT_ONCE:
            return done


def _tell(loaded: Loaded, done: int, sentence: str) -> None:
    if loaded.process.json:
        write_json({"changed": done})
    else:
        line(results(loaded.process), sentence)
