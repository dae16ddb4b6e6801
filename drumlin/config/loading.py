"""Putting the settings together: default < file < environment < flag, each value with its origin."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from drumlin.config.key import LISTS, VARIABLE_PREFIX, Kind, Setting
from drumlin.config.processes import ClientConfig, CoordinatorConfig, FleetConfig, NodeConfig, ProcessConfig
from drumlin.config.settings import SECTIONS, SETTINGS, CrawlConfig, settings_of
from drumlin.config.trust import who_else_may_write
from drumlin.errors import ConfigError
from drumlin.lines import did_you_mean

CONFIG_FILENAME = "drumlin.toml"
CONFIG_FILE_BYTES_MAX = 2**20
# Switches by which tests provoke faults are not settings: they have no key in a file, no flag and no line in the docs.
TEST_VARIABLE_PREFIX = "DRUMLIN_TEST_"
SOURCES = ("default", "file", "environment", "flag")
"""From the weakest to the strongest."""


class Origin(msgspec.Struct, frozen=True):
    """Where a value came from: `source` is default, file, environment or flag; `place` is the exact spot."""

    source: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.source} {self.place}".strip()

    @property
    def strength(self) -> int:
        """Of two settings that exclude each other the one from the stronger source is meant."""
        return SOURCES.index(self.source)


class Loaded(msgspec.Struct, frozen=True):
    """The settings of this run, by section. `origins` is keyed by the full name of a setting, as `SETTINGS` is."""

    crawl: CrawlConfig
    process: ProcessConfig
    client: ClientConfig
    node: NodeConfig
    coordinator: CoordinatorConfig
    fleet: FleetConfig
    origins: dict[str, Origin]

    def is_given(self, name: str) -> bool:
        """Whether anybody said what this setting shall be."""
        return self.origins[name].strength > 0

    def stronger(self, one: str, other: str) -> str:
        """Which of two settings that exclude each other is meant: the one from the stronger source. Empty when both
        come from the same source, or neither was given."""
        first, second = self.origins[one].strength, self.origins[other].strength
        return "" if first == second else one if first > second else other

    def value(self, setting: Setting) -> object:
        return getattr(getattr(self, setting.section), setting.field)


class Given(msgspec.Struct, frozen=True):
    """One raw value as somebody gave it, and where: errors name the place."""

    setting: Setting
    value: object
    origin: Origin


def load(flags: Mapping[str, object], environ: Mapping[str, str], config_file: Path | None, cwd: Path) -> Loaded:
    """Read every source and check every value; ConfigError names the first wrong one.

    `flags` maps full names of settings to values; None and an empty tuple mean that the flag was not given.
    """
    values: dict[str, object] = {name: setting.default for name, setting in SETTINGS.items()}
    origins = {name: Origin("default") for name in SETTINGS}
    for given in [*_from_file(config_file, cwd), *_from_environment(environ), *_from_flags(flags)]:
        values[given.setting.full_name] = _converted(given)
        origins[given.setting.full_name] = given.origin
    sections: Any = {section: _filled(section, values) for section in SECTIONS}
    return Loaded(**sections, origins=origins)


def _filled(section: str, values: Mapping[str, object]) -> msgspec.Struct:
    fields: Any = {setting.field: values[setting.full_name] for setting in settings_of(section)}
    return SECTIONS[section](**fields)


def _converted(given: Given) -> object:
    try:
        return given.setting.convert(given.value)
    except ValueError as error:
        raise ConfigError(f"{given.origin.place} must be {error}, not {_shown(given)}.") from error


def _shown(given: Given) -> str:
    """A value as a person gave it, unless it is a secret. Repeated flags come as a tuple."""
    value = given.setting.without_secrets(given.value)
    return ", ".join(map(repr, value)) if isinstance(value, tuple) else repr(value)


def _from_flags(flags: Mapping[str, object]) -> Iterator[Given]:
    for name, value in flags.items():
        if name not in SETTINGS:
            raise ConfigError(f"There is no setting {name!r}.", did_you_mean(name, SETTINGS))
        if value is not None and value != ():
            setting = SETTINGS[name]
            yield Given(setting, value, Origin("flag", setting.flag))


def _from_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    variables = {setting.variable: setting for setting in SETTINGS.values()}
    if environ.get("NO_COLOR") and not environ.get("DRUMLIN_COLOR"):
        yield Given(SETTINGS["color"], False, Origin("environment", "NO_COLOR"))
    for variable, value in sorted(environ.items()):
        if not variable.startswith(VARIABLE_PREFIX) or variable.startswith(TEST_VARIABLE_PREFIX):
            continue
        if variable not in variables:
            nearest = did_you_mean(variable, variables)
            raise ConfigError(f"The environment variable {variable} is not a setting.", nearest)
        # An empty variable sets a list to nothing. For any other setting it counts as not set, as is usual in shells.
        if value or variables[variable].key.kind in LISTS:
            yield Given(variables[variable], value, Origin("environment", variable))


def _from_file(config_file: Path | None, cwd: Path) -> Iterator[Given]:
    path = cwd / (config_file or CONFIG_FILENAME)
    if config_file is None and not path.exists():
        return
    shown = str(config_file or CONFIG_FILENAME)
    for section, table in _parsed(_content(path, shown, is_named=config_file is not None), shown).items():
        if section not in SECTIONS or not isinstance(table, dict):
            raise _unknown_section(shown, section, is_section=isinstance(table, dict))
        for name, value in table.items():
            setting = _setting_in(shown, section, name)
            yield Given(setting, value, Origin("file", f"{shown} [{section}] {name}"))


def _content(path: Path, shown: str, *, is_named: bool) -> bytes:
    """The content of a settings file. One that nobody named must be a file that only this user or root can change."""
    try:
        with open(path, "rb", opener=None if is_named else _open_at_once) as file:
            stranger = "" if is_named else who_else_may_write(os.fstat(file.fileno()))
            content = file.read(CONFIG_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"The configuration file {shown} cannot be read: {error.strerror}.") from error
    if stranger:
        hint = f"It could send your token to a stranger. If you trust it, say so with --config {shown}."
        raise ConfigError(f"The file {shown} in the working directory {stranger}, so it is not read.", hint)
    if len(content) > CONFIG_FILE_BYTES_MAX:
        raise ConfigError(f"The configuration file {shown} is larger than {CONFIG_FILE_BYTES_MAX} bytes.")
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Open a file that nobody named. If it is a pipe that a stranger put there, this must not wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parsed(content: bytes, shown: str) -> dict[str, object]:
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"The configuration file {shown} is not UTF-8 text (byte {error.start}).") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"The configuration file {shown} is not valid TOML: {error}.") from error


def _setting_in(shown: str, section: str, name: str) -> Setting:
    known = {setting.name: setting for setting in settings_of(section)}
    setting = known.get(name)
    if setting is not None and setting.key.kind is Kind.SECRET:
        hint = f"Others may read that file: set {setting.variable}, or name a file of its own as {name}_file."
        raise ConfigError(f"{shown} has the secret {name!r} in [{section}].", hint)
    if setting is not None:
        return setting
    if elsewhere := _sections_with(name):
        raise ConfigError(f"{shown} has {name!r} in [{section}].", f"It belongs in {elsewhere}.")
    raise ConfigError(f"{shown} has an unknown key {name!r} in [{section}].", did_you_mean(name, known))


def _sections_with(name: str) -> str:
    """The sections that have a setting of this name, in words."""
    return " or ".join(f"[{setting.section}]" for setting in SETTINGS.values() if setting.name == name)


def _unknown_section(shown: str, section: str, *, is_section: bool) -> ConfigError:
    if section in SECTIONS and not is_section:
        return ConfigError(f"{shown} has a value called {section!r}.", f"Write a section [{section}] instead.")
    if places := _sections_with(section):
        return ConfigError(f"{shown} has {section!r} outside a section.", f"Put it in {places}.")
    what = "section" if is_section else "key"
    names = [setting.name for setting in SETTINGS.values()]
    return ConfigError(f"{shown} has an unknown {what} {section!r}.", did_you_mean(section, [*SECTIONS, *names]))
