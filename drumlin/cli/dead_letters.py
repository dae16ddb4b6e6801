"""`drumlin dead-letters`: look at the URLs that were given up, and retry or drop them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import results, write_json
from drumlin.config import Loaded, config_options
from drumlin.errors import ConfigError
from drumlin.lines import one_line

if TYPE_CHECKING:
    from drumlin.coordinator.calendar import Calendar
    from drumlin.engines.blocking import BlockingEngine
    from drumlin.model import DeadLetter

LISTED_MAX = 100_000


def _selection(function: click.decorators.FC) -> click.decorators.FC:
    function = click.option("--kind", default="", help="only this kind, such as timeout or http_5xx")(function)
    return click.option("--host", default="", help="only of this host")(function)


@click.group("dead-letters")
def command() -> None:
    """List, retry or drop the URLs that used up their retries."""


@command.command("list")
@_selection
@config_options("out", "json", "color")
def list_letters(loaded: Loaded, kind: str, host: str) -> None:
    """Show dead letters: what failed, how often, and why."""
    import msgspec

    from drumlin.coordinator.calendar import TABLE, Calendar

    calendar = Calendar()
    with _frontier(loaded) as engine:
        calendar.read(engine.get_entries(TABLE))
        letters = [_dated(letter, calendar) for letter in _select(engine, kind, host)]
    if loaded.process.json:
        write_json([msgspec.structs.asdict(letter) for letter in letters])
        return
    console = results(loaded.process)
    for letter in letters:
        when = datetime.fromtimestamp(letter.last_failed, UTC).strftime("%Y-%m-%d %H:%M:%S")
        error = f"{letter.last_error or 'no details'}{_found_on(letter)}"
        console.print(one_line(f"{when}  {letter.kind}  {letter.url}"), soft_wrap=True)
        console.print(one_line(f"    {_attempts(letter)}: {error}"), soft_wrap=True)
    console.print(f"{len(letters)} dead letters.")


def _dated(letter: DeadLetter, calendar: Calendar) -> DeadLetter:
    from msgspec.structs import replace

    failed = calendar.shown(letter.first_failed), calendar.shown(letter.last_failed)
    return replace(letter, first_failed=failed[0], last_failed=failed[1])


def _attempts(letter: DeadLetter) -> str:
    return "1 attempt" if letter.attempts == 1 else f"{letter.attempts} attempts"


def _found_on(letter: DeadLetter) -> str:
    return f" (found on {letter.found_on})" if letter.found_on else ""


@command.command("retry")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@_selection
@config_options("out", "json", "color")
def retry(loaded: Loaded, urls: tuple[str, ...], kind: str, host: str) -> None:
    """Put dead letters back into the frontier: those named, or all that are selected."""
    with _frontier(loaded) as engine:
        chosen, now = _chosen(engine, urls, kind, host), engine.keep_time(0.0)
        done = sum(engine.revive(shard, members, now) for shard, members in chosen.items())
    results(loaded.process).print(f"{done} URLs will be fetched again by the next `drumlin crawl`.")


@command.command("drop")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@_selection
@config_options("out", "json", "color")
def drop(loaded: Loaded, urls: tuple[str, ...], kind: str, host: str) -> None:
    """Forget dead letters: those named, or all that are selected. They are not fetched again."""
    with _frontier(loaded) as engine:
        chosen = _chosen(engine, urls, kind, host)
        done = sum(engine.drop(shard, members) for shard, members in chosen.items())
    results(loaded.process).print(f"{done} dead letters dropped.")


@contextmanager
def _frontier(loaded: Loaded) -> Iterator[BlockingEngine]:
    """The frontier of a crawl that is not running."""
    from drumlin.engines.blocking import open_blocking
    from drumlin.local import CrawlDirectory

    out = Path(loaded.process.out)
    if not (out / "frontier").is_dir():
        raise ConfigError(f"There is no crawl in {out}.", "Name a crawl directory with --out.")
    directory = CrawlDirectory(out)
    directory.open()
    try:
        engine = open_blocking(f"rocksdb:{out / 'frontier'}")
        try:
            yield engine
        finally:
            engine.close()
    finally:
        directory.close()


def _select(engine: BlockingEngine, kind: str, host: str) -> list[DeadLetter]:
    letters = [
        letter
        for shard in range(engine.shard_count)
        for letter in engine.dead_letters(shard, kind=kind, host=host, limit=LISTED_MAX)
    ]
    return sorted(letters, key=lambda letter: letter.last_failed)


def _chosen(engine: BlockingEngine, urls: tuple[str, ...], kind: str, host: str) -> dict[int, list[str]]:
    """By shard: the named URLs, or without names all that fit the selection."""
    from drumlin.urls import canonical, host_of

    chosen: dict[int, list[str]] = {}
    named = [canonical(url) or url for url in urls]
    for url in named or [letter.url for letter in _select(engine, kind, host)]:
        chosen.setdefault(engine.shard_of(host_of(url)), []).append(url)
    return chosen
