"""`drumlin set`: change a setting of a crawl while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumlin.cli.console import line, results, write_json
from drumlin.cli.crawl import read_seeds
from drumlin.cli.help import Verb
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded
from drumlin.config.changes import CHANGEABLE, SEEDS, changeable, convert
from drumlin.config.key import LISTS, NONE, Setting
from drumlin.errors import ConfigError
from drumlin.lines import counted
from drumlin.protocol import paths

if TYPE_CHECKING:
    from drumlin.client.remote import Remote


SPENT_THEN = {"paused": "the crawl stays paused", "finished": "the crawl stays finished"}
"""What becomes of a crawl in these states whose budget is spent; any other stops."""
GO_ON = "Raise it with `drumlin set {name} ...`; then `drumlin resume` goes on."


@click.command("set", cls=Verb)
@click.argument(
    "name",
    metavar="NAME",
    shell_complete=lambda context, argument, begun: [name for name in (*CHANGEABLE, SEEDS) if name.startswith(begun)],
)
@click.argument("values", nargs=-1, metavar="VALUE...")
@remote_options("json", "color")
def command(loaded: Loaded, remote: Remote, name: str, values: tuple[str, ...]) -> None:
    """Change a setting of a running crawl: pages_max, bytes_max, time_max, host_urls_max, delay, per_host, scope,
    include, exclude or types; or add seeds.

    Values are written as in flags: `drumlin set delay 2s`, `drumlin set pages_max none`. Patterns and types replace
    those there were, and `none` removes them. The whole crawl follows within seconds.
    """
    name = name.removeprefix("--").replace("-", "_")
    if not values:
        raise ConfigError("The value is missing.", "Write it after the name: `drumlin set delay 2s`.")
    if name == SEEDS:
        answer = remote.patch(paths.CRAWL, {SEEDS: _seeds(values)})
    else:
        setting = changeable(name)
        answer = remote.patch(paths.CRAWL, {setting.field: _read(setting, values)})
    if loaded.process.json:
        write_json(answer)
        return
    lines = [_line(field, change["before"], change["after"]) for field, change in answer["changed"].items()]
    if answer["spent"]:
        then = SPENT_THEN.get(remote.get(paths.CRAWL)["state"], "the crawl stops")
        lines.append(f"So much is spent already: {then}. {GO_ON.format(name=answer['spent'])}")
    if name == SEEDS:
        lines.append(f"{counted(answer['seeds_added'], 'seed')} added.")
    for sentence in lines or [f"{name} has this value already."]:
        line(results(loaded.process), sentence)


def _seeds(values: tuple[str, ...]) -> list[str]:
    if NONE in values:
        hint = "`drumlin set exclude` keeps a crawl away from pages."
        raise ConfigError("Seeds can be added, but not removed.", hint)
    return read_seeds(values, None)


def _read(setting: Setting, values: tuple[str, ...]) -> object:
    """The value as the coordinator wants it."""
    if setting.key.kind in LISTS:
        return convert(setting, [] if values == (NONE,) else list(values))
    if len(values) > 1:
        raise ConfigError(f"{setting.name} takes one value.", "Only patterns, types and seeds may be several.")
    return convert(setting, values[0])


def _line(field: str, before: object, after: object) -> str:
    setting = next(one for one in CHANGEABLE.values() if one.field == field)

    def shown(value: object) -> str:
        return setting.display(tuple(value) if isinstance(value, list) else value) or NONE

    return f"{setting.name} was {shown(before)} and is {shown(after)} now."
