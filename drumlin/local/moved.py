"""A note in the directory of a crawl that was moved to another engine: where it is now, for those who look at it here.

The frontier itself says so too, and refuses to go on (`CLOSED_KEY`). This file is for verbs that read only what is
stored: opening a large frontier would take them longer than their answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from drumlin.disk import write_whole
from drumlin.lines import tell

MOVED_NAME: Final = "moved.json"


class Moved(msgspec.Struct, frozen=True):
    """A sentence that says where the crawl is now, and how to go on with it there."""

    sentence: str
    hint: str


def moved_from(folder: Path) -> Moved | None:
    """None if the crawl in this directory was not moved."""
    try:
        return msgspec.json.decode((folder / MOVED_NAME).read_bytes(), type=Moved)
    except (OSError, msgspec.DecodeError):
        return None


def note_move(folder: Path, moved: Moved) -> None:
    write_whole(folder / MOVED_NAME, msgspec.json.encode(moved))


def tell_moved(folder: Path, meaning: str) -> None:
    """If the crawl in this directory goes on elsewhere, say on stderr where, and what that means for what is shown."""
    if (moved := moved_from(folder)) is not None:
        tell(f"{moved.sentence} {meaning}")
