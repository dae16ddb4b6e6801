"""Sizes and durations as people write them: the one place that reads and writes `10GB` and `1h30m`."""

from __future__ import annotations

import math
import re
from decimal import Decimal

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
SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]*)", re.ASCII)
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|[smhdw])\s*", re.ASCII)
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)


def parse_size(text: str) -> int:
    """The bytes that `text` says: `1500`, `10GB` (decimal), `16MiB` (binary). ValueError when it says none."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match[2] not in BYTES_PER_UNIT:
        raise ValueError(f"not a size: {text!r}")
    number, unit = match[1], BYTES_PER_UNIT[match[2]]
    return int(number) * unit if number.isdigit() else round(float(number) * unit)


def parse_duration(text: str) -> float:
    """The seconds that `text` says: `1.5`, `90s`, `1h30m`, `500ms`. ValueError when it says none."""
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
    # A plain decimal, because nobody types an exponent and so nothing reads one.
    return f"{Decimal(repr(seconds)).normalize():f}s"


def _finite(seconds: float, text: str) -> float:
    if not math.isfinite(seconds):
        raise ValueError(f"not a duration: {text!r}")
    return seconds
