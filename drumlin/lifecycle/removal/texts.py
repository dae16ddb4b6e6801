"""Logs and JSON files without the removed, and what is told of journals, which their owners write anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

REMOVED: Final = "(removed on request)"

Names = Callable[[bytes], bool]


class Filtered(NamedTuple):
    """A journal without the removed: its new content, how many entries went, how many of others name the removed, and
    whether it has to be written."""

    content: bytes
    removed: int
    mentions: int
    changes: bool


def lines_without(lines: Iterable[bytes], names: Names) -> Iterator[bytes]:
    """The lines of a log that do not name the removed."""
    return (line for line in lines if not names(line))


def scrubbed(value: Any, names: Names) -> tuple[Any, int]:
    """A value of JSON without what names the removed, and how many things went: members of lists go, and other texts
    are replaced."""
    if isinstance(value, str):
        return (REMOVED, 1) if names(value.encode()) else (value, 0)
    if isinstance(value, list):
        kept = [scrubbed(one, names) for one in value if not _is_about(one, names)]
        return [one for one, _ in kept], len(value) - len(kept) + sum(count for _, count in kept)
    if isinstance(value, dict):
        cleaned = {key: scrubbed(one, names) for key, one in value.items() if not names(key.encode())}
        went = len(value) - len(cleaned) + sum(count for _, count in cleaned.values())
        return {key: one for key, (one, _) in cleaned.items()}, went
    return value, 0


def _is_about(value: Any, names: Names) -> bool:
    """Whether an entry of a list is about the removed: it is its name, or has its name as one of its texts."""
    texts = value.values() if isinstance(value, dict) else [value]
    return any(isinstance(text, str) and names(text.encode()) for text in texts)
