"""Putting the settings together: default < file < environment < flag, each value with its origin."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from drumlin.config.key import Kind, Setting
from drumlin.config.settings import SETTINGS, CrawlConfig, ProcessConfig
from drumlin.errors import ConfigError

CONFIG_FILENAME = "drumlin.toml"
CONFIG_FILE_BYTES_MAX = 2**20
VARIABLE_PREFIX = "DRUMLIN_"
# Switches that tests use to provoke faults are no settings: they appear in no file, flag or reference page.
TEST_VARIABLE_PREFIX = "DRUMLIN_TEST_"
# Neither is what a person uses to prove who they are, or the coordinator that a verb talks to.
OTHER_VARIABLES = frozenset({"DRUMLIN_TOKEN", "DRUMLIN_COORDINATOR"})
SECTIONS = ("crawl", "process")


class Origin(msgspec.Struct, frozen=True):
    """Where a value came from: `source` is default, file, environment or flag; `place` is the exact spot."""

    source: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.source} {self.place}".strip()


class Loaded(msgspec.Struct, frozen=True):
    """The settings of this run. `origins` is keyed by the name of a setting, as in a TOML file."""

    crawl: CrawlConfig
    process: ProcessConfig
    origins: dict[str, Origin]


class Given(msgspec.Struct, frozen=True):
    """One raw value as somebody gave it, and the words that name the spot in an error."""

    setting: Setting
    value: object
    origin: Origin


def load(flags: Mapping[str, object], environ: Mapping[str, str], config_file: Path | None, cwd: Path) -> Loaded:
    """Read every source and check every value; ConfigError names the first that is wrong.

    `flags` maps names of settings to values; None and an empty tuple mean that the flag was not given.
    """
    values: dict[str, object] = {name: setting.default for name, setting in SETTINGS.items()}
    origins = {name: Origin("default") for name in SETTINGS}
    for given in [*_from_file(config_file, cwd), *_from_environment(environ), *_from_flags(flags)]:
        values[given.setting.name] = _converted(given)
        origins[given.setting.name] = given.origin
    crawl: Any = {s.field: values[s.name] for s in SETTINGS.values() if s.section == "crawl"}
    process: Any = {s.field: values[s.name] for s in SETTINGS.values() if s.section == "process"}
    return Loaded(CrawlConfig(**crawl), ProcessConfig(**process), origins)


def _converted(given: Given) -> object:
    try:
        return given.setting.convert(given.value)
    except ValueError as error:
        raise ConfigError(f"{given.origin.place} must be {error}, not {given.value!r}.") from error


def _from_flags(flags: Mapping[str, object]) -> Iterator[Given]:
    for name, value in flags.items():
        if name not in SETTINGS:
            raise ConfigError(f"There is no setting {name!r}.", _nearest(name, SETTINGS))
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
        if variable in OTHER_VARIABLES:
            continue
        if variable not in variables:
            raise ConfigError(f"The environment variable {variable} is no setting.", _nearest(variable, variables))
        # An empty list is a list; any other empty variable is how a shell says that it is not set.
        if value or variables[variable].key.kind is Kind.PATTERNS:
            yield Given(variables[variable], value, Origin("environment", variable))


def _from_file(config_file: Path | None, cwd: Path) -> Iterator[Given]:
    path = cwd / (config_file or CONFIG_FILENAME)
    if config_file is None and not path.exists():
        return
    shown = str(config_file or CONFIG_FILENAME)
    for section, table in _read_toml(path, shown).items():
        if section not in SECTIONS or not isinstance(table, dict):
            raise _unknown_section(shown, section)
        for name, value in table.items():
            setting = _setting_in(shown, section, name)
            yield Given(setting, value, Origin("file", f"{shown} [{section}] {name}"))


def _read_toml(path: Path, shown: str) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"The configuration file {shown} cannot be read: {error.strerror}.") from error
    if len(content) > CONFIG_FILE_BYTES_MAX:
        raise ConfigError(f"The configuration file {shown} is larger than {CONFIG_FILE_BYTES_MAX} bytes.")
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"The configuration file {shown} is not UTF-8 text (byte {error.start}).") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"The configuration file {shown} is not valid TOML: {error}.") from error


def _setting_in(shown: str, section: str, name: str) -> Setting:
    setting = SETTINGS.get(name)
    if setting is None:
        known = [s.name for s in SETTINGS.values() if s.section == section]
        raise ConfigError(f"{shown} has an unknown key {name!r} in [{section}].", _nearest(name, known))
    if setting.section != section:
        raise ConfigError(f"{shown} has {name!r} in [{section}].", f"It belongs in [{setting.section}].")
    return setting


def _unknown_section(shown: str, section: str) -> ConfigError:
    if section in SETTINGS:
        return ConfigError(f"{shown} has {section!r} outside a section.", f"Put it in [{SETTINGS[section].section}].")
    if section in SECTIONS:
        return ConfigError(f"{shown} has a value called {section!r}.", f"Write a section [{section}] instead.")
    return ConfigError(f"{shown} has an unknown key {section!r}.", _nearest(section, [*SECTIONS, *SETTINGS]))


def _nearest(name: str, known: Mapping[str, object] | list[str]) -> str:
    """A hint, or nothing when no known name is at all like `name`. difflib is slow to load and seldom needed."""
    import difflib

    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"Did you mean {matches[0]!r}?" if matches else ""
