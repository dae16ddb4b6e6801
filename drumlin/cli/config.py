"""`drumlin config show`: the settings as this command line, environment and directory give them."""

from __future__ import annotations

import click

from drumlin.cli.console import MARK, results, write_json
from drumlin.cli.help import VerbFamily
from drumlin.config import SETTINGS, Loaded, Origin, crawl_options
from drumlin.config.key import HIDDEN, Kind, Setting

ORIGIN_COLUMNS_MAX = 80


@click.group("config", cls=VerbFamily)
def command() -> None:
    """Show the settings and where they come from."""


@command.command("show")
@click.option("--origin", is_flag=True, help="say where each value comes from")
@crawl_options
def show(loaded: Loaded, origin: bool) -> None:
    """Show the settings of all verbs, those of `crawl` as it would use them with the same flags.

    (What a crawl that exists was started with is in its directory, in `crawl.json`.) The output without --origin is a
    valid drumlin.toml. Passwords and tokens are not shown.
    """
    if loaded.process.json:
        write_json(_document(loaded, origin))
    else:
        console = results(loaded.process)
        for written in _lines(loaded, origin):
            # Long values are not wrapped: the output must be a valid file.
            console.print(written, soft_wrap=True, style=MARK if written.startswith("[") else None)


def _lines(loaded: Loaded, origin: bool) -> list[str]:
    lines: list[str] = []
    section = ""
    for name, setting in SETTINGS.items():
        if setting.section != section:
            section = setting.section
            lines += [""] * bool(lines) + [f"[{section}]"]
        if line := _line(setting, loaded.value(setting)):
            lines += _with_origin(line, loaded.origins[name]) if origin else [line]
    return lines


def _line(setting: Setting, value: object) -> str:
    """As it may stand in a settings file. A secret may not, so it is only mentioned, if there is one."""
    if setting.key.kind is Kind.SECRET:
        return "" if value is None else f"# {setting.name} {HIDDEN}"
    return f"{setting.name} = {setting.toml(setting.without_secrets(value))}"


def _with_origin(line: str, origin: Origin) -> list[str]:
    """The line with its origin beside it, or above it if that would be too wide."""
    beside = f"{line:<40} # {origin}"
    return [beside] if len(beside) <= ORIGIN_COLUMNS_MAX else [f"# {origin}:", line]


def _document(loaded: Loaded, origin: bool) -> dict[str, dict[str, object]]:
    """Values in base units (bytes, seconds), because a program reads them."""
    document: dict[str, dict[str, object]] = {}
    for name, setting in SETTINGS.items():
        value = setting.without_secrets(loaded.value(setting))
        entry = {"value": value, "origin": loaded.origins[name]} if origin else value
        document.setdefault(setting.section, {})[setting.name] = entry
    return document
