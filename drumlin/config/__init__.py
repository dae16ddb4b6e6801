"""The settings of every verb: one table, four sources. Read `settings` first, then `loading`.

What it is for. `CrawlConfig` says what is crawled and how politely; every node of a fleet has the same one, known by
its `config_hash()`. The other structs are about one process: `ProcessConfig` says how it runs and talks to people,
`ClientConfig` how it reaches a coordinator, `NodeConfig`, `CoordinatorConfig` and `FleetConfig` what those verbs need.

How it works. Each struct is a section of `drumlin.toml`, and each of its fields carries a `Key` (kind, help, bounds).
`SETTINGS` is the table made from them; the flags (`config_options`), the keys of `drumlin.toml`, the `DRUMLIN_*`
variables and `docs/reference/configuration.md` are all generated from it. `load` puts the sources together in the
order default < file < environment < flag.

Invariants:
- an unknown key or variable is an error that names the nearest known one; nothing is ignored silently;
- every value is checked by the same code, whatever its source, and knows its `Origin`;
- a field's name ends in its unit (`delay_s`); its public name does not (`delay`), because the value may carry one;
- a secret is never taken from a settings file and never shown;
- a `drumlin.toml` that nobody named is read only if no other user can write it (`trust`).

Limits: a settings file has at most 1 MiB; a list from a stronger source replaces that of a weaker one, instead of
adding to it.
"""

from drumlin.config.loading import CONFIG_FILENAME, Loaded, Origin, load
from drumlin.config.options import config_options, crawl_options
from drumlin.config.processes import ClientConfig, CoordinatorConfig, FleetConfig, NodeConfig, ProcessConfig
from drumlin.config.quantities import format_duration, format_size, parse_duration, parse_size
from drumlin.config.settings import DEFAULT_USER_AGENT, SETTINGS, CrawlConfig, names_of, settings_of

__all__ = [
    "CONFIG_FILENAME",
    "DEFAULT_USER_AGENT",
    "SETTINGS",
    "ClientConfig",
    "CoordinatorConfig",
    "CrawlConfig",
    "FleetConfig",
    "Loaded",
    "NodeConfig",
    "Origin",
    "ProcessConfig",
    "config_options",
    "crawl_options",
    "format_duration",
    "format_size",
    "load",
    "names_of",
    "parse_duration",
    "parse_size",
    "settings_of",
]
