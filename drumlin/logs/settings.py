"""How a process logs, as a user sets it."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

LogFormat = Literal["auto", "human", "json"]
LOG_FORMATS: tuple[str, ...] = get_args(LogFormat)
LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[str, ...] = get_args(LogLevel)


class LogSettings(NamedTuple):
    """The format `auto` is `human` on a terminal and `json` everywhere else. Entries below `level` are left out."""

    format: LogFormat = "auto"
    level: LogLevel = "info"

    @property
    def number(self) -> int:
        """The level as `logging` counts it."""
        return 10 * (LOG_LEVELS.index(self.level) + 1)

    def is_json(self, *, terminal: bool) -> bool:
        return self.format == "json" or (self.format == "auto" and not terminal)
