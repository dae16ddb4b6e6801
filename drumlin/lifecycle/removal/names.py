"""The names of WARC files that are written anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

_STEM: Final = re.compile(r"(drumlin-)([0-9]{17})(-[0-9]{5}-.+)", re.ASCII)
_TIME: Final = "%Y%m%d%H%M%S%f"


def free_stem(stem: str, is_taken: Callable[[str], bool]) -> str:
    """A name for a new file that takes the place of this one, by which its node is still known: the time in it is a
    millisecond later, or as much as it takes."""
    match = _STEM.fullmatch(stem)
    while match is not None:
        stem = f"{match[1]}{_later(match[2])}{match[3]}"
        if not is_taken(stem):
            return stem
        match = _STEM.fullmatch(stem)
    return f"{stem}-removed"


def _later(digits: str) -> str:
    """The next millisecond; the next number, if a stranger has chosen digits that are no time."""
    try:
        later = datetime.strptime(digits, _TIME).replace(tzinfo=UTC) + timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return f"{(int(digits) + 1) % 10 ** len(digits):0{len(digits)}}"
    # Years before 1000 have fewer digits when they are written.
    return f"{later.year:04}{later:%m%d%H%M%S}{later.microsecond // 1000:03}"
