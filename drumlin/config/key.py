"""What a setting says about itself: its kind, bounds and help, and how a raw value becomes a typed one.

A `Key` stands beside its field in `drumlin.config.settings`, so that the flag, the TOML key, the environment
variable and the reference page of a setting all come from one line and cannot differ.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from enum import Enum

import msgspec

from drumlin.config.quantities import format_duration, format_size, parse_duration, parse_size

NONE = "none"
TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})


class Kind(Enum):
    """The shapes of values; the text is how help and errors name them."""

    TEXT = "TEXT"
    CHOICE = "CHOICE"
    PATTERNS = "REGEX"
    COUNT = "N"
    SIZE = "SIZE"
    DURATION = "DURATION"
    SWITCH = "true or false"
    PATH = "DIR"


class Key(msgspec.Struct, frozen=True):
    """The metadata of one setting, as written in an `Annotated[…]` of a settings struct."""

    kind: Kind
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[str], object] | None = None


class Setting(msgspec.Struct, frozen=True):
    """One row of the table of settings: a `Key` with where it lives and what it is called everywhere."""

    section: str
    field: str
    default: object
    key: Key

    @property
    def name(self) -> str:
        """The name for people. A value carries its own unit (`2h`), so the field's unit is left off."""
        return self.field.removesuffix("_bytes_s").removesuffix("_s")

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "DRUMLIN_" + self.name.upper()

    @property
    def metavar(self) -> str:
        return "|".join(self.key.choices) or self.key.kind.value

    def convert(self, value: object) -> object:
        """The typed value of something from a flag, variable or file. ValueError says what it should have been."""
        if value == NONE and self.default is None:
            return None
        converted = _CONVERTERS[self.key.kind](self.key, value)
        _check_bounds(self, converted)
        return converted

    def display(self, value: object) -> str:
        """`value` as it may be typed."""
        if value is None:
            return NONE
        if self.key.kind is Kind.SIZE and isinstance(value, int):
            return format_size(value)
        if self.key.kind is Kind.DURATION and isinstance(value, float):
            return format_duration(value)
        if isinstance(value, bool):
            return str(value).lower()
        return " ".join(value) if isinstance(value, tuple) else str(value)

    def toml(self, value: object) -> str:
        """`value` as it may stand in a settings file."""
        if isinstance(value, tuple):
            return "[" + ", ".join(map(_toml_string, value)) + "]"
        bare = isinstance(value, bool) or (self.key.kind is Kind.COUNT and value is not None)
        return self.display(value) if bare else _toml_string(self.display(value))


def _toml_string(text: str) -> str:
    """TOML's basic strings are JSON's, except that DEL must be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_bounds(setting: Setting, value: object) -> None:
    key = setting.key
    if not isinstance(value, int | float):
        return
    if key.minimum is not None and value < key.minimum:
        raise ValueError(f"at least {setting.display(type(value)(key.minimum))}")
    if key.maximum is not None and value > key.maximum:
        raise ValueError(f"at most {setting.display(type(value)(key.maximum))}")


def _text(key: Key, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not empty")
    if key.check is not None:
        key.check(value)
    return value


def _choice(key: Key, value: object) -> str:
    if value not in key.choices:
        raise ValueError("one of " + ", ".join(key.choices))
    return str(value)


def _patterns(key: Key, value: object) -> tuple[str, ...]:
    """A variable holds one pattern per line, because a pattern may contain any other separator."""
    patterns = [line for line in value.splitlines() if line] if isinstance(value, str) else value
    if not isinstance(patterns, list | tuple) or not all(isinstance(pattern, str) for pattern in patterns):
        raise ValueError("a list of regular expressions")
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"regular expressions ({pattern!r} is none: {error})") from error
    return tuple(patterns)


def _count(key: Key, value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value.strip(), re.ASCII):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("a whole number")


def _size(key: Key, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return parse_size(value if isinstance(value, str) else "")
    except ValueError as error:
        raise ValueError("a size such as 500MB or 16MiB") from error


def _duration(key: Key, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    try:
        return parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise ValueError("a duration such as 1.5, 90s or 2h") from error


def _switch(key: Key, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in TRUE_WORDS | FALSE_WORDS:
        return value.lower() in TRUE_WORDS
    raise ValueError("true or false")


_CONVERTERS: dict[Kind, Callable[[Key, object], object]] = {
    Kind.TEXT: _text,
    Kind.CHOICE: _choice,
    Kind.PATTERNS: _patterns,
    Kind.COUNT: _count,
    Kind.SIZE: _size,
    Kind.DURATION: _duration,
    Kind.SWITCH: _switch,
    Kind.PATH: _text,
}
