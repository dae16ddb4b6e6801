"""What people want to be kept for how long: a rule for each kind of data. Nothing here reads a clock or a file."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from drumlin.config.quantities import parse_duration, show_duration
from drumlin.errors import ConfigError

FOREVER: Final = "forever"
AGE_S_MIN: Final = 3600.0
"""Nothing is deleted or moved sooner: rows and records that belong together may still be on their way."""


class Kind(StrEnum):
    """What a rule is about."""

    WARC = "warc"
    TEXT = "text"
    TABLES = "tables"
    LOGS = "logs"


class Action(StrEnum):
    """What is done with a unit that is due."""

    DELETE = "delete"
    MOVE = "move"


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long a kind is kept, and since which age it is in another place; 0 means forever, and never."""

    keep_s: float = 0.0
    move_after_s: float = 0.0
    move_to: str = ""

    @property
    def shown(self) -> str:
        keep = f"kept for {show_duration(self.keep_s)}" if self.keep_s else "kept forever"
        return f"{keep}, moved to {self.move_to} after {show_duration(self.move_after_s)}" if self.move_to else keep

    def due(self, newest: float, now: float, *, moved: bool) -> Action | None:
        """What is to be done with a unit whose newest part is of this time. `moved` says that it was moved before."""
        age = now - newest
        if self.keep_s and age >= self.keep_s:
            return Action.DELETE
        return Action.MOVE if self.move_to and not moved and age >= self.move_after_s else None


class Policy(msgspec.Struct, frozen=True):
    """The rules in force. A kind without a rule is kept forever."""

    rules: Mapping[Kind, Rule]

    def rule(self, kind: Kind) -> Rule:
        return self.rules.get(kind, Rule())

    def check(self) -> None:
        """ConfigError if rules contradict each other."""
        text, tables = self.rule(Kind.TEXT), self.rule(Kind.TABLES)
        if text.move_to:
            hint = "Move the tables, or give text only --keep."
            raise ConfigError("Text is a column of the table of pages, and cannot be moved without it.", hint)
        if text.keep_s and tables.move_to and tables.move_after_s <= text.keep_s:
            hint = "Move tables later than text is deleted, or keep text as long as tables."
            raise ConfigError("Text cannot be taken out of tables that were moved away.", hint)


def make_rule(keep: str, move_after: str, move_to: str) -> Rule:
    """A rule as people write it; ConfigError if it makes no sense. `move_to` must have been looked at before."""
    if bool(move_after) != bool(move_to):
        raise ConfigError("Of --move-after and --move-to only one is given.", "Give both, or neither.")
    keep_s = 0.0 if keep in ("", FOREVER) else _age(keep)
    move_after_s = _age(move_after) if move_after else 0.0
    if keep_s and move_to and move_after_s >= keep_s:
        raise ConfigError("It would be deleted before it is moved.", "Let --move-after be less than --keep.")
    return Rule(keep_s, move_after_s, move_to)


def _age(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no duration.", f"Write 90d, 12h, or for --keep {FOREVER}.") from None
    if seconds < AGE_S_MIN:
        raise ConfigError(f"{text!r} is too short.", f"The least is {show_duration(AGE_S_MIN)}.")
    return seconds
