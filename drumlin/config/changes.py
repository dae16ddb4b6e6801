"""Which settings of a crawl may change while it runs, and what a change makes of its configuration.

These are the ones that coordinators and nodes can follow without a restart: how much, how politely, how far. All others
are fixed when a crawl is founded, since what was done under them cannot be undone.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from drumlin.config.key import Setting
from drumlin.config.settings import SETTINGS, CrawlConfig
from drumlin.errors import ConfigError

CHANGEABLE: dict[str, Setting] = {
    name: SETTINGS[name]
    for name in (
        *("pages_max", "bytes_max", "time_max", "host_urls_max"),  # how much
        *("delay", "per_host"),  # how politely
        *("scope", "include", "exclude"),  # how far
    )
}
SEEDS = "seeds"
"""Not a setting, but changed in the same way: URLs to begin from that join the others."""
CHANGEABLE_HINT = f"These can change while a crawl runs: {', '.join([*CHANGEABLE, SEEDS])}."


def changeable(name: str) -> Setting:
    """The setting of this name; ConfigError unless it may change while a crawl runs."""
    if name in CHANGEABLE:
        return CHANGEABLE[name]
    if name in SETTINGS and SETTINGS[name].section == "process":
        raise ConfigError(f"{name} is a setting of one process: start that again with another.", CHANGEABLE_HINT)
    if name in SETTINGS:
        raise ConfigError(f"{name} cannot change while a crawl runs.", CHANGEABLE_HINT)
    raise ConfigError(f"There is no setting called {name}.", CHANGEABLE_HINT)


def convert(setting: Setting, value: object) -> object:
    """The typed value that a setting shall have; ConfigError says what is wrong with it."""
    try:
        return None if value is None and setting.default is None else setting.convert(value)
    except ValueError as wrong:
        raise ConfigError(f"{setting.name} must be {wrong}.") from wrong


def changed(config: CrawlConfig, values: Mapping[str, object]) -> CrawlConfig:
    """The configuration with other values for some fields, all of which must be of changeable settings; ConfigError
    unless the values are good."""
    fields = {setting.field: setting for setting in CHANGEABLE.values()}
    return msgspec.structs.replace(config, **{field: convert(fields[field], value) for field, value in values.items()})
