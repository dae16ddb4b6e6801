"""`drumlin set`: change a setting of a crawl while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumlin.cli.console import results, write_json
from drumlin.cli.crawl import read_seeds
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded, config_options
from drumlin.config.changes import CHANGEABLE, SEEDS, changeable, convert
from drumlin.config.key import NONE, Kind, Setting
from drumlin.errors import ConfigError
from drumlin.lines import counted

if TYPE_CHECKING:
    from drumlin.fleet.remote import Remote


@click.command("set")
@click.argument("name", metavar="NAME")
@click.argument("values", nargs=-1, metavar="VALUE...")
@remote_options
@config_options("json", "color")
def command(loaded: Loaded, remote: Remote, name: str, values: tuple[str, ...]) -> None:
    """Change a setting of a running crawl: pages_max, bytes_max, time_max, host_urls_max, delay, per_host, scope,
    include or exclude; or add seeds.

    Values are written as in flags: `drumlin set delay 2s`, `drumlin set pages_max none`. Patterns replace those there
    were, and `none` removes them. All coordinators and nodes follow within a heartbeat.
    """
    name = name.removeprefix("--").replace("-", "_")
    if not values:
        raise ConfigError("There is no value.", "Write it after the name: `drumlin set delay 2s`.")
    if name == SEEDS:
        answer = remote.patch("/api/v1/crawl", {SEEDS: _seeds(values)})
    else:
        setting = changeable(name)
        answer = remote.patch("/api/v1/crawl", {setting.field: _read(setting, values)})
    if loaded.process.json:
        write_json(answer)
        return
    lines = [_line(field, change["before"], change["after"]) for field, change in answer["changed"].items()]
    if name == SEEDS:
        lines.append(f"{counted(answer['seeds_added'], 'seed')} added.")
    for line in lines or [f"{name} has this value already."]:
        results(loaded.process).print(line)


def _seeds(values: tuple[str, ...]) -> list[str]:
    if NONE in values:
        hint = "`drumlin set exclude` keeps a crawl away from pages."
        raise ConfigError("Seeds can be added, and not be taken away.", hint)
    return read_seeds(values, None)


def _read(setting: Setting, values: tuple[str, ...]) -> object:
    """The value as the coordinator wants it."""
    if setting.key.kind is Kind.PATTERNS:
        return convert(setting, [] if values == (NONE,) else list(values))
    if len(values) > 1:
        raise ConfigError(f"{setting.name} takes one value.", "Only patterns and seeds may be several.")
    return convert(setting, values[0])


def _line(field: str, before: object, after: object) -> str:
    setting = next(one for one in CHANGEABLE.values() if one.field == field)

    def shown(value: object) -> str:
        return setting.display(tuple(value) if isinstance(value, list) else value) or NONE

    return f"{setting.name} was {shown(before)} and is {shown(after)} now."
