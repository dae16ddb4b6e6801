"""What a setting says about itself: its kind, bounds and help, and how a raw value becomes a typed one.

A `Key` stands beside its field in `drumlin.config.settings` or `drumlin.config.processes`. The flag, the TOML key, the
environment variable and the reference page of a setting all come from that one place, so they cannot differ.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Callable
from enum import Enum

import msgspec

from drumlin.config.quantities import format_duration, format_size, parse_duration, parse_size
from drumlin.config.types import format_rule, parse_rules

NONE = "none"
TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})
VARIABLE_PREFIX = "DRUMLIN_"
VERB_SECTIONS = frozenset({"node", "coordinator", "fleet"})
"""The sections that belong to one verb each. Two verbs may use the same name (`store`), so these names carry the verb
wherever no section stands beside them: `DRUMLIN_NODE_STORE`."""
HIDDEN = "(not shown)"


class Kind(Enum):
    """The shapes of values; the text is how help and errors name them."""

    TEXT = "TEXT"
    CHOICE = "CHOICE"
    PATTERNS = "REGEX"
    TYPES = "TYPE=SIZE"
    COUNT = "N"
    SIZE = "SIZE"
    DURATION = "DURATION"
    SWITCH = "true or false"
    PATH = "DIR"
    FILE = "FILE"
    NETWORKS = "ADDRESS"
    SECRET = "TOKEN"  # noqa: S105  # how help names one
    """Taken from a variable or a flag, never from a settings file, and shown nowhere."""


LISTS = frozenset({Kind.PATTERNS, Kind.TYPES, Kind.NETWORKS})


class Key(msgspec.Struct, frozen=True):
    """The metadata of one setting, as written in an `Annotated[…]` of a settings struct."""

    kind: Kind
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[str], object] | None = None
    metavar: str = ""
    """What stands for a value in help, where the kind says too little."""
    aliases: tuple[str, ...] = ()
    """Further flags that mean the same."""
    masked: Callable[[str], str] | None = None
    """Takes a password out of a value before it is shown."""


class Setting(msgspec.Struct, frozen=True):
    """One row of the table of settings: a `Key` with its section, its field and its default. All names of the setting
    follow from these."""

    section: str
    field: str
    default: object
    key: Key

    @property
    def name(self) -> str:
        """The name for people. A value carries its own unit (`2h`), so the field's unit is left off."""
        return self.field.removesuffix("_bytes_s").removesuffix("_s").removesuffix("_bytes")

    @property
    def full_name(self) -> str:
        """The name that no other setting has."""
        return f"{self.section}_{self.name}" if self.section in VERB_SECTIONS else self.name

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.full_name.upper()

    @property
    def metavar(self) -> str:
        return self.key.metavar or "|".join(self.key.choices) or self.key.kind.value

    def convert(self, value: object) -> object:
        """The typed value of a raw one from a flag, variable or file. ValueError says what it should have been."""
        if value == NONE and self.default is None:
            return None
        converted = _CONVERTERS[self.key.kind](self.key, value)
        _check_bounds(self, converted)
        return converted

    def display(self, value: object) -> str:
        """`value` as a person may type it."""
        if value is None:
            return NONE
        if self.key.kind is Kind.SIZE and isinstance(value, int):
            return format_size(value)
        if self.key.kind is Kind.DURATION and isinstance(value, float):
            return format_duration(value)
        if isinstance(value, bool):
            return str(value).lower()
        return " ".join(value) if isinstance(value, tuple) else str(value)

    def without_secrets(self, value: object) -> object:
        """`value` as it may be shown to anybody."""
        if not isinstance(value, str):
            return value
        if self.key.kind is Kind.SECRET:
            return HIDDEN
        return self.key.masked(value) if self.key.masked else value

    def shown(self, value: object) -> str:
        """`value` for a sentence, where an empty one needs a word too."""
        return self.display(value) or NONE

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
    patterns = _texts(value, "a list of regular expressions")
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"regular expressions ({pattern!r} is not one: {error})") from error
    return patterns


def _texts(value: object, expected: str) -> tuple[str, ...]:
    """A variable holds one text per line, because a text may contain any other separator."""
    texts = [line for line in value.splitlines() if line] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(expected)
    return tuple(texts)


def _types(key: Key, value: object) -> tuple[str, ...]:
    expected = "types, each with the size of its largest body, such as video/*=100MB, or 0 for none: application/zip=0"
    try:
        return tuple(format_rule(*rule) for rule in parse_rules(_texts(value, expected)).items())
    except ValueError as error:
        raise ValueError(expected) from error


def _networks(key: Key, value: object) -> tuple[str, ...]:
    expected = "a list of addresses or networks, such as 10.0.0.7 or 10.0.0.0/24"
    networks = _texts(value, expected)
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise ValueError(expected) from error
    return networks


def _count(key: Key, value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip(), re.ASCII):
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
    Kind.TYPES: _types,
    Kind.COUNT: _count,
    Kind.SIZE: _size,
    Kind.DURATION: _duration,
    Kind.SWITCH: _switch,
    Kind.PATH: _text,
    Kind.FILE: _text,
    Kind.NETWORKS: _networks,
    Kind.SECRET: _text,
}
