"""Sizes, durations and large numbers as people write and read them: the one place that reads and writes `10GB` and
`1h30m`, reads `10 billion` and `70%`, and shows `1.2 GB` and `3 min`."""

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
NUMBERS_PER_UNIT = {
    "": 1.0,
    "k": 1e3,
    "thousand": 1e3,
    "m": 1e6,
    "million": 1e6,
    "b": 1e9,
    "billion": 1e9,
    "t": 1e12,
    "trillion": 1e12,
}
TENTHS_BELOW = 10.0
GAP_IN_TENTHS = 0.095
ROUNDED_ABOVE = 100.0

_SHOWN_UNITS = (("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]*)", re.ASCII)
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|min|days?|[smhdw])\s*", re.ASCII)
_NUMBER = re.compile(r"([0-9][0-9,_]*(?:\.[0-9]+)?(?:e[0-9]{1,3})?) ?([a-z]*)", re.ASCII)
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+) ?(%?)", re.ASCII)
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


def parse_number(text: str) -> float:
    """The number that `text` means: `23,148`, `1e9`, `2.5M`, `10 billion`. ValueError if it is not a number."""
    match = _NUMBER.fullmatch(text.strip().lower())
    if match is None or match[2] not in NUMBERS_PER_UNIT:
        raise ValueError(f"not a number: {text!r}")
    return float(match[1].replace(",", "").replace("_", "")) * NUMBERS_PER_UNIT[match[2]]


def parse_share(text: str) -> float:
    """The share of a whole that `text` means: `0.7`, `70%`. ValueError if it is not one, or more than the whole."""
    match = _SHARE.fullmatch(text.strip())
    share = float(match[1]) / (100 if match[2] else 1) if match else math.inf
    if share > 1:
        raise ValueError(f"not a share: {text!r}")
    return share


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


def show_bits(bits_per_s: float) -> str:
    """The speed of a network for people, rounded: `1.2 Gbit/s`."""
    for unit, many in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if (amount := bits_per_s / many) >= 1:
            return f"{amount:,.1f} {unit}" if amount < TENTHS_BELOW else f"{amount:,.0f} {unit}"
    return f"{bits_per_s:.0f} bit/s"


def show_number(number: float) -> str:
    """A number for people: `0.25`, `23,148`, and rounded from a million: `1.23 million`, `10 billion`."""
    for unit in ("trillion", "billion", "million"):
        if (amount := number / NUMBERS_PER_UNIT[unit]) >= 1:
            return f"{amount:,.0f} {unit}" if amount >= ROUNDED_ABOVE else f"{amount:.3g} {unit}"
    return f"{number:,.0f}" if number >= TENTHS_BELOW else f"{Decimal(f'{number:.3g}'):f}"


def show_many(number: float, noun: str) -> str:
    """`1 host`, `2.5 million hosts`, `0.5 pages`; for nouns that take an s."""
    shown = show_number(number)
    return f"{shown} {noun}" if shown == "1" else f"{shown} {noun}s"


def show_rate(pages_per_s: float) -> str:
    """`1 page/s`, `23,148 pages/s`."""
    return f"{show_many(pages_per_s, 'page')}/s"


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


def show_gap(seconds: float) -> str:
    """A time between two requests, which may be far below a second: `50 ms`."""
    return f"{seconds * 1000:.0f} ms" if 0 < seconds < GAP_IN_TENTHS else show_duration(seconds)


def _finite(seconds: float, text: str) -> float:
    if not math.isfinite(seconds):
        raise ValueError(f"not a duration: {text!r}")
    return seconds
