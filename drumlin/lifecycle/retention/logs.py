"""Log files of a crawl on one machine, as units of retention. They are in the directory of the crawl, also if its store
is in a bucket, and can be deleted or moved only while nothing writes to them."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from drumlin.disk import remove
from drumlin.lifecycle.retention.planning import Left, Step, Unit
from drumlin.lifecycle.retention.policy import Action, Kind
from drumlin.store.places import copied_to

LOGS: Final = "logs"
TAIL_BYTES: Final = 256 * 1024
# Both forms of an entry have the time first: `2026-05-01 10:00:00,123` (local time), or `…T10:00:00.123Z` as JSON. A
# time further behind is a stranger's, as in a URL.
_TIME: Final = re.compile(rb'^(?:\{"time": ?")?(\d{4}-\d\d-\d\d)([ T])(\d\d:\d\d:\d\d)[.,]\d{3}', re.MULTILINE)


def log_units(folder: Path) -> Iterator[Unit]:
    """The logs in the directory of a crawl."""
    busy = Left.GROWING if _is_at_work(folder) else None
    for path in sorted((folder / LOGS).glob("*")):
        if path.is_file() and not path.is_symlink():
            name = f"{LOGS}/{path.name}"
            size = path.stat().st_size
            yield Unit(
                kind=Kind.LOGS,
                name=path.name,
                paths=[name],
                movable=[name],
                rows=_lines(path),
                bytes=size,
                bytes_movable=size,
                newest=_newest(path),
                busy=busy,
            )


def take_log(folder: Path | None, step: Step) -> Left | None:
    """Delete or move a log. Returns why not, if it was not possible."""
    if folder is None or _is_at_work(folder):
        return Left.GROWING
    path = folder / step.unit.paths[0]
    if step.action is Action.MOVE:
        # Logs of several runs have the same names.
        copied_to(step.to, f"{LOGS}/{step.unit.name}-{int(step.unit.newest)}", path)
    remove(path)
    return None


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(TAIL_BYTES), b""))


def _newest(path: Path) -> float:
    """The time of the last entry. A file without any, such as an empty one, says it only by its own time."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        found = _TIME.findall(file.read())
    for day, between, time in reversed(found):
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(f"{day.decode()}T{time.decode()}")
            return (moment.replace(tzinfo=UTC) if between == b"T" else moment).timestamp()
    return path.stat().st_mtime


def _is_at_work(folder: Path) -> bool:
    """Whether a process of the crawl lives: it holds the lock of the directory."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
