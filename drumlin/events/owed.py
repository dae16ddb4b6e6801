"""Cursor files: `NAME.events` in a writer's spool says that events of segment or log NAME are owed, and how far the
broker has confirmed them. Whoever holds the spool's lock sends them; the files of a dead writer are taken over by being
moved. Written as a whole each time, so a kill leaves the old cursor or the new one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from drumlin.disk import remove, replace, write_whole
from drumlin.store.names import node_of_segment
from drumlin.store.spools import EVENTS_SUFFIX, JOURNAL_SUFFIX
from drumlin.store.tables.schema import COLUMNS, PAGES
from drumlin.store.tables.segments import PARQUET_SUFFIX

LOG_SUFFIX: Final = ".told"
"""The suffix of a coordinator's log of what it has to tell."""
LOG_NAME: Final = "told-"
"""How the names of such logs begin; no segment's does, since a segment is called after its writer and the time."""


Signature = tuple[tuple[int, int], ...]


class Cursor(msgspec.Struct, frozen=True):
    """How many rows of each table of a segment, or bytes of a log, are confirmed."""

    pages: int = 0
    fetches: int = 0
    links: int = 0
    told: int = 0


def owe(spool: Path, name: str) -> None:
    """Note that all events of a segment or log are owed, before anybody can see the first of them. If some were
    confirmed before, they are produced again: a segment that is made anew may have its rows in another order."""
    keep_cursor(spool, name, Cursor())


def cursor_path(spool: Path, name: str) -> Path:
    return spool / (name + EVENTS_SUFFIX)


def keep_cursor(spool: Path, name: str, cursor: Cursor) -> None:
    write_whole(cursor_path(spool, name), msgspec.json.encode(cursor))


def read_cursor(spool: Path, name: str) -> Cursor:
    """A file that was damaged means that nothing is confirmed, so its events are produced again."""
    try:
        return msgspec.json.decode(cursor_path(spool, name).read_bytes(), type=Cursor)
    except msgspec.DecodeError:
        return Cursor()


def owed_names(spool: Path) -> list[str]:
    """Segments and logs whose events are owed, oldest first (by their names, which carry the time)."""
    return sorted(path.name.removesuffix(EVENTS_SUFFIX) for path in spool.glob("*" + EVENTS_SUFFIX))


def grows(spool: Path, name: str) -> bool:
    """Whether more rows may come to a segment: its journal is there until its tables are complete."""
    return (spool / (name + JOURNAL_SUFFIX)).exists()


def forget(spool: Path, name: str) -> None:
    """Everything is confirmed. The log goes first: a cursor without a log is forgotten at the next start."""
    remove(spool / (name + LOG_SUFFIX))
    remove(cursor_path(spool, name))


def forget_unborn(spool: Path, tables: Path) -> None:
    """Forget cursors of segments that never came to be, because their process was killed before. Call this at start
    only: a living writer makes the cursor first."""
    for name in owed_names(spool):
        made = (tables / PAGES / (name + PARQUET_SUFFIX)).exists() or (spool / (name + LOG_SUFFIX)).exists()
        if not made and not grows(spool, name):
            forget(spool, name)


def is_log(name: str) -> bool:
    return name.startswith(LOG_NAME) and not node_of_segment(name)


def take_over(dead: Path, mine: Path, *, segments: bool = True) -> None:
    """Move what a dead writer owed into another spool; both are locked by the caller. A cursor is moved after its log,
    so a kill in between leaves at most a log without a cursor: then all of it is owed. Without `segments` only logs are
    moved, because the manifest of the store tells which segments are owed."""
    for log in dead.glob("*" + LOG_SUFFIX):
        if not cursor_path(dead, log.name.removesuffix(LOG_SUFFIX)).exists():
            owe(dead, log.name.removesuffix(LOG_SUFFIX))
        replace(log, mine / log.name)
    for cursor in dead.glob("*" + EVENTS_SUFFIX):
        if segments or is_log(cursor.name.removesuffix(EVENTS_SUFFIX)):
            replace(cursor, mine / cursor.name)
        else:
            remove(cursor)


def signature_of(spool: Path, tables: Path, name: str) -> Signature:
    """The sizes and times of the files that a cursor is about; they change when rows or messages are added."""
    files = [tables / table / (name + PARQUET_SUFFIX) for table in COLUMNS]
    return tuple(_standing(path) for path in (*files, spool / (name + LOG_SUFFIX)))


def _standing(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns
