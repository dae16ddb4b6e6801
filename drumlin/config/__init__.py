"""The settings of a crawl and of a process: one table, four sources.

What it is for: `CrawlConfig` is what is crawled and how politely; every node of a fleet has the same one, known by
its `config_hash()`. `ProcessConfig` is how one process runs and talks to people.

How it works: each field of the two structs carries a `Key` (kind, help, bounds). `SETTINGS` is the table made of
them; the flags (`crawl_options`), the keys of `drumlin.toml`, the `DRUMLIN_*` variables and
`docs/reference/configuration.md` are all generated from it. `load` puts the sources together in the order
default < file < environment < flag.

Invariants:
- an unknown key or variable is an error that names the nearest known one; nothing is ignored silently;
- every value is checked by the same code, whatever its source, and knows its `Origin`;
- a field's name ends in its unit (`delay_s`); its public name does not (`delay`), because the value may carry one.

Limits: a settings file has at most 1 MiB; a list given by a stronger source replaces a weaker one's, it is not added.
"""

from drumlin.config.loading import CONFIG_FILENAME, Loaded, Origin, load
from drumlin.config.options import config_options, crawl_options
from drumlin.config.quantities import format_duration, format_size, parse_duration, parse_size
from drumlin.config.settings import DEFAULT_USER_AGENT, SETTINGS, CrawlConfig, ProcessConfig

__all__ = [
    "CONFIG_FILENAME",
    "DEFAULT_USER_AGENT",
    "SETTINGS",
    "CrawlConfig",
    "Loaded",
    "Origin",
    "ProcessConfig",
    "config_options",
    "crawl_options",
    "format_duration",
    "format_size",
    "load",
    "parse_duration",
    "parse_size",
]
