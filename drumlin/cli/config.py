"""`drumlin config show`: the settings as this command line, environment and directory give them."""

from __future__ import annotations

import click

from drumlin.cli.console import results, write_json
from drumlin.config import SETTINGS, Loaded, crawl_options


@click.group("config")
def command() -> None:
    """Show the settings and where they come from."""


@command.command("show")
@click.option("--origin", is_flag=True, help="say where each value comes from")
@crawl_options
def show(loaded: Loaded, origin: bool) -> None:
    """Show every setting as `crawl` would use it with the same flags.

    The output without --origin is a valid drumlin.toml.
    """
    if loaded.process.json:
        write_json(_document(loaded, origin))
    else:
        results(loaded.process).print("\n".join(_lines(loaded, origin)), soft_wrap=True)


def _lines(loaded: Loaded, origin: bool) -> list[str]:
    lines: list[str] = []
    section = ""
    for name, setting in SETTINGS.items():
        if setting.section != section:
            section = setting.section
            lines += [""] * bool(lines) + [f"[{section}]"]
        line = f"{name} = {setting.toml(_value(loaded, name))}"
        lines.append(f"{line:<50} # {loaded.origins[name]}" if origin else line)
    return lines


def _document(loaded: Loaded, origin: bool) -> dict[str, dict[str, object]]:
    """Values in base units (bytes, seconds), because a program reads them."""
    document: dict[str, dict[str, object]] = {}
    for name, setting in SETTINGS.items():
        value = _value(loaded, name)
        entry = {"value": value, "origin": loaded.origins[name]} if origin else value
        document.setdefault(setting.section, {})[name] = entry
    return document


def _value(loaded: Loaded, name: str) -> object:
    setting = SETTINGS[name]
    return getattr(loaded.crawl if setting.section == "crawl" else loaded.process, setting.field)
