"""Sizes and durations as people write and read them: the one place that reads and writes `10GB` and `1h30m`, and
shows `1.2 GB` and `3 min`."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from itertools import pairwise

BYTES_PER_UNIT = {
    "": 1,
    "b": 1,
    "k": 10**3,
    "kb": 10**3,
    "kib": 2**10,
    "m": 10**6,
    "mb": 10**6,
    "mib": 2**20,
    "g": 10**9,
    "gb": 10**9,
    "gib": 2**30,
    "t": 10**12,
    "tb": 10**12,
    "tib": 2**40,
}
SECONDS_PER_UNIT = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
    # The words in which `show_duration` shows durations, so people can type what they read.
    "min": 60.0,
    "day": 86400.0,
    "days": 86400.0,
}
TENTHS_BELOW = 10.0

_SHOWN_UNITS = (("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]*)", re.ASCII)
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|min|days?|[smhdw])\s*", re.ASCII)
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)


def parse_size(text: str) -> int:
    """The bytes that `text` means: `1500`, `10GB` (decimal), `16MiB` (binary). ValueError if it is not a size."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match[2] not in BYTES_PER_UNIT:
        raise ValueError(f"not a size: {text!r}")
    number, unit = match[1], BYTES_PER_UNIT[match[2]]
    return int(number) * unit if number.isdigit() else round(float(number) * unit)


def parse_duration(text: str) -> float:
    """The seconds that `text` means: `1.5`, `90s`, `1h30m`, `500ms`. ValueError if it is not a duration."""
    text = text.strip().lower()
    if _SECONDS.fullmatch(text):
        return _finite(float(text), text)
    parts = list(_DURATION_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        raise ValueError(f"not a duration: {text!r}")
    return _finite(math.fsum(float(part[1]) * SECONDS_PER_UNIT[part[2]] for part in parts), text)


def format_size(size: int) -> str:
    """The shortest way to write `size` exactly, which `parse_size` reads back."""
    for unit in ("TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "kB"):
        quotient, rest = divmod(size, BYTES_PER_UNIT[unit.lower()])
        if quotient and not rest:
            return f"{quotient}{unit}"
    return f"{size}B"


def format_duration(seconds: float) -> str:
    """The shortest way to write `seconds` exactly in one unit, which `parse_duration` reads back."""
    for unit in ("d", "h", "m"):
        quotient, rest = divmod(seconds, SECONDS_PER_UNIT[unit])
        if quotient and not rest:
            return f"{quotient:.0f}{unit}"
    # A plain decimal without an exponent, because `parse_duration` does not read exponents.
    return f"{Decimal(repr(seconds)).normalize():f}s"


def show_size(size: float) -> str:
    """A size for people, rounded: `1.2 GB`."""
    for unit in ("TB", "GB", "MB", "kB"):
        amount = size / BYTES_PER_UNIT[unit.lower()]
        if amount >= 1:
            return f"{amount:,.1f} {unit}" if amount < TENTHS_BELOW else f"{amount:,.0f} {unit}"
    return f"{size:.0f} bytes"


def show_duration(seconds: float) -> str:
    """A duration for people, rounded to two units at most: `4.6 s`, `3 min`, `1 h 30 min`, `2 days`."""
    if 0 < seconds < TENTHS_BELOW and round(seconds, 1) % 1:
        return f"{seconds:.1f} s"
    whole = max(0, round(seconds))
    for (unit, size_s), (smaller, smaller_s) in pairwise(_SHOWN_UNITS):
        if whole >= size_s:
            many, rest = divmod(round(whole / smaller_s), size_s // smaller_s)
            name = "days" if unit == "day" and many > 1 else unit
            return f"{many:,} {name} {rest} {smaller}" if rest else f"{many:,} {name}"
    return f"{whole} s"


def _finite(seconds: float, text: str) -> float:
    if not math.isfinite(seconds):
        raise ValueError(f"not a duration: {text!r}")
    return seconds
