"""The settings of a crawl that may change while it runs, and how a change is applied to a configuration.

Coordinators and nodes can follow these without a restart: how much, how politely, how far. All others are fixed when a
crawl is founded, because what was done under them cannot be undone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from drumlin.config.key import Setting
from drumlin.config.settings import SETTINGS, CrawlConfig, settings_of
from drumlin.errors import ConfigError
from drumlin.lines import did_you_mean
from drumlin.logs import Event, event

CHANGEABLE: dict[str, Setting] = {
    name: SETTINGS[name]
    for name in (
        *("pages_max", "bytes_max", "time_max", "host_urls_max"),  # how much
        *("delay", "per_host"),  # how politely
        *("scope", "include", "exclude", "types"),  # how far, and what
    )
}
SEEDS = "seeds"
"""Not a setting, but changed in the same way: further seeds for the crawl."""
CHANGEABLE_HINT = f"These can change while a crawl runs: {', '.join([*CHANGEABLE, SEEDS])}."


def changeable(name: str) -> Setting:
    """The setting of this name; ConfigError unless it may change while a crawl runs."""
    if name in CHANGEABLE:
        return CHANGEABLE[name]
    if name in SETTINGS and SETTINGS[name].section != "crawl":
        raise ConfigError(
            f"{name} is a setting of one process: start that process again with another value.", CHANGEABLE_HINT
        )
    if name in SETTINGS:
        raise ConfigError(f"{name} cannot change while a crawl runs.", CHANGEABLE_HINT)
    nearest = did_you_mean(name, [*CHANGEABLE, SEEDS])
    raise ConfigError(f"There is no setting called {name}.", f"{nearest} {CHANGEABLE_HINT}".strip())


def convert(setting: Setting, value: object) -> object:
    """`value` as a typed value of this setting; ConfigError says what is wrong with it."""
    try:
        return None if value is None and setting.default is None else setting.convert(value)
    except ValueError as wrong:
        raise ConfigError(f"{setting.name} must be {wrong}.") from wrong


def changed(config: CrawlConfig, values: Mapping[str, object]) -> CrawlConfig:
    """The configuration with other values for some fields, which must be those of changeable settings. ConfigError
    unless the values are valid."""
    fields = {setting.field: setting for setting in CHANGEABLE.values()}
    return msgspec.structs.replace(config, **{field: convert(fields[field], value) for field, value in values.items()})


def differences(before: CrawlConfig, after: CrawlConfig) -> dict[str, str]:
    """The crawl's settings that have another value, by name, with words such as `--delay was 1s and is 5s`."""
    values = [(one, getattr(before, one.field), getattr(after, one.field)) for one in settings_of("crawl")]
    return {
        one.name: f"{one.flag} was {one.shown(old)} and is {one.shown(new)}" for one, old, new in values if old != new
    }


def log_differences(log: logging.Logger, before: CrawlConfig, after: CrawlConfig, version: int) -> None:
    """Log that other settings are in force from now on: the version of this number."""
    found = differences(before, after)
    said = event(Event.SETTINGS_CHANGED, version=version, settings=" ".join(found))
    log.info("the settings have changed: %s", "; ".join(found.values()), extra=said)
