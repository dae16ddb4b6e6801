"""Flags made from the table of settings, so the command line knows the same settings as the file."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from drumlin.config.key import LISTS, Kind, Setting
from drumlin.config.loading import Loaded, load
from drumlin.config.settings import SETTINGS, names_of

Command = Callable[..., Any]


def config_options(*names: str) -> Callable[[Command], Command]:
    """A decorator that gives a command the flags of the settings with these full names, and `--config`.

    The command is called with `loaded: Loaded` in place of the flags. Settings without a flag here are still
    read from the file and the environment.
    """
    chosen = [SETTINGS[name] for name in names]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_loaded(*args: object, config_file: Path | None, **parameters: object) -> object:
            flags = {setting.full_name: parameters.pop(_parameter(setting)) for setting in chosen}
            return command(*args, loaded=_load(flags, config_file), **parameters)

        decorated: Command = with_loaded
        for option in reversed([*map(_option, chosen), _config_option()]):
            decorated = option(decorated)
        return decorated

    return decorate


def crawl_options(command: Command) -> Command:
    """Give a command the flags of `drumlin crawl`; see `config_options`."""
    return config_options(*names_of("crawl"), *names_of("process"))(command)


def _load(flags: dict[str, object], config_file: Path | None) -> Loaded:
    loaded = load(flags, os.environ, config_file, Path.cwd())
    for setting in SETTINGS.values():
        if setting.key.kind is Kind.SECRET:
            # Child processes must not inherit a secret.
            os.environ.pop(setting.variable, None)
    return loaded


def _parameter(setting: Setting) -> str:
    """The name of the command's parameter. The prefix lets a command have an argument with the name of a setting."""
    return f"setting_{setting.name}"


def _option(setting: Setting) -> Callable[[Command], Command]:
    """Values stay text here: `load` converts them, so flags and files are checked by the same code."""
    help_text = setting.key.help
    if setting.default is not None or setting.key.kind in (Kind.COUNT, Kind.SIZE, Kind.DURATION):
        help_text += f" [default: {setting.display(setting.default)}]"
    if setting.key.kind is Kind.SWITCH:
        flag = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        return click.option(flag, _parameter(setting), default=None, help=help_text)
    if setting.key.kind in LISTS:
        help_text = f"{setting.key.help}; may be repeated"
        return click.option(setting.flag, _parameter(setting), multiple=True, metavar=setting.metavar, help=help_text)
    return click.option(
        setting.flag,
        *setting.key.aliases,
        _parameter(setting),
        default=None,
        metavar=setting.metavar,
        help=help_text,
        shell_complete=lambda context, option, begun: _completions(setting, begun),
    )


def _completions(setting: Setting, begun: str) -> list[CompletionItem]:
    """What a shell offers to complete a value that begins with `begun`."""
    if setting.key.kind is Kind.PATH:
        return [CompletionItem(begun, type="dir")]
    return [CompletionItem(choice) for choice in setting.key.choices if choice.startswith(begun)]


def _config_option() -> Callable[[Command], Command]:
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="settings file [default: drumlin.toml in the working directory, if there is one]",
    )
