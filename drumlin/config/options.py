"""Flags made from the table of settings, so that a command line cannot know other settings than a file does."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from drumlin.config.key import Kind, Setting
from drumlin.config.loading import Loaded, load
from drumlin.config.settings import SETTINGS

Command = Callable[..., Any]


def config_options(*names: str) -> Callable[[Command], Command]:
    """A decorator that gives a command the flags of the named settings (none named: all) and `--config`.

    The command is called with `loaded: Loaded` in place of the flags. Settings without a flag here are still
    read from the file and the environment.
    """
    chosen = [SETTINGS[name] for name in names] or list(SETTINGS.values())

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_loaded(*args: object, config_file: Path | None, **parameters: object) -> object:
            flags = {setting.name: parameters.pop(_parameter(setting)) for setting in chosen}
            return command(*args, loaded=_load(flags, config_file), **parameters)

        decorated: Command = with_loaded
        for option in reversed([*map(_option, chosen), _config_option()]):
            decorated = option(decorated)
        return decorated

    return decorate


def crawl_options(command: Command) -> Command:
    """Give a command the flags of all settings; see `config_options`."""
    return config_options()(command)


def _load(flags: dict[str, object], config_file: Path | None) -> Loaded:
    return load(flags, os.environ, config_file, Path.cwd())


def _parameter(setting: Setting) -> str:
    """A name of its own, so that a command may have an argument called like a setting."""
    return f"setting_{setting.name}"


def _option(setting: Setting) -> Callable[[Command], Command]:
    """Values stay text here: `load` reads them, so that a flag and a file are checked by the same code."""
    help_text = f"{setting.key.help} [default: {setting.display(setting.default)}]"
    if setting.key.kind is Kind.SWITCH:
        flag = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        return click.option(flag, _parameter(setting), default=None, help=help_text)
    if setting.key.kind is Kind.PATTERNS:
        help_text = f"{setting.key.help}; may be repeated"
        return click.option(setting.flag, _parameter(setting), multiple=True, metavar=setting.metavar, help=help_text)
    return click.option(setting.flag, _parameter(setting), default=None, metavar=setting.metavar, help=help_text)


def _config_option() -> Callable[[Command], Command]:
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="settings file [default: drumlin.toml in the working directory, if there is one]",
    )
