"""Rules for types as people write them: `video/*=100MB`, `application/zip=0`."""

from __future__ import annotations

from collections.abc import Sequence

from drumlin.config.quantities import format_size, parse_size
from drumlin.http.type_limits import is_type

NOT_AT_ALL = "0"


def parse_rule(text: str) -> tuple[str, int]:
    """A type and the largest size of its bodies. ValueError if the text is not a rule."""
    name, equals, size = text.strip().rpartition("=")
    name = name.strip().lower()
    if not equals or not is_type(name):
        raise ValueError(f"not a rule for a type: {text!r}")
    return name, parse_size(size)


def parse_rules(rules: Sequence[str]) -> dict[str, int]:
    """The largest size for each type; of two rules for the same type the later one counts."""
    return dict(map(parse_rule, rules))


def format_rule(name: str, bytes_max: int) -> str:
    """A rule as `parse_rule` reads it."""
    return f"{name}={format_size(bytes_max) if bytes_max else NOT_AT_ALL}"
