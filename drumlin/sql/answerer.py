"""The process that answers one question of somebody on the network: `python -P -m drumlin.sql.answerer TABLES`.

It reads an `Order` from its standard input, loads its libraries, opens the tables, gives up everything else
(`confinement.py`), and only then looks at the question. The answer goes to its standard output: a `Found`, or a
`Wrong`, as JSON or MessagePack. The rows in it are in the form in which the sender of the question wants them: whoever
passes them on does not take them apart.
"""

from __future__ import annotations

import contextlib
import math
import resource
import sys
import zoneinfo
from pathlib import Path
from typing import Any, Final

import msgspec

from drumlin.errors import ConfigError
from drumlin.sql.confinement import CannotConfine, confine
from drumlin.sql.database import CONFINED_MEMORY, Answer, answering
from drumlin.sql.views import TABLES

EXACT_MAX: Final = 2**53 - 1
"""Larger whole numbers are given as text: many readers of JSON would round them."""
BAD_SQL: Final = "bad_sql"
NOT_CONFINED: Final = "not_confined"
TOO_MUCH: Final = "too_much"
NO_LIMITS: Final = "Ask about fewer rows or columns. `drumlin query`, on the machine of the store, has no such limit."
_OUT_OF_MEMORY: Final = "Out of Memory"


class Order(msgspec.Struct):
    """A question, how long its answer may be, and whether it is wanted as MessagePack rather than JSON."""

    sql: str
    rows_max: int
    bytes_max: int
    packed: bool = False


class Found(msgspec.Struct, tag=True):
    """The answer to a question: names and types of its columns, and its rows as they were written, a list of lists. It
    is not `complete` if there are more rows than an answer may have."""

    columns: list[str]
    types: list[str]
    rows: msgspec.Raw
    complete: bool


class Wrong(msgspec.Struct, tag=True):
    """Why there is no answer."""

    code: str
    message: str
    hint: str = ""


def reply(tables: Path, order: Order) -> bytes:
    """The answer as it is sent."""
    return _encoded(_answered(tables, order), order)


def _encoded(value: Any, order: Order) -> bytes:
    return msgspec.msgpack.encode(value) if order.packed else msgspec.json.encode(value)


def _answered(tables: Path, order: Order) -> Found | Wrong:
    try:
        with answering(tables, order.sql, confine=lambda: confine(_folders(tables))) as answer:
            return _written(answer, order)
    except ConfigError as wrong:
        return _told(wrong.message)
    except CannotConfine as wrong:
        return Wrong(NOT_CONFINED, str(wrong))


def _folders(tables: Path) -> list[Path]:
    """The folders to read. Each is named, because one may be a link to another disk."""
    return [tables, *(folder for table in TABLES if (folder := tables / table).is_dir())]


def _told(message: str) -> Wrong:
    if message.startswith(_OUT_OF_MEMORY):
        return Wrong(TOO_MUCH, f"This takes more memory than a question may have ({CONFINED_MEMORY}).", NO_LIMITS)
    return Wrong(BAD_SQL, message)


def _written(answer: Answer, order: Order) -> Found | Wrong:
    """The rows as far as they fit. Each is written at once, so that few are held as objects."""
    rows: list[msgspec.Raw] = []
    size, complete = sum(map(len, (*answer.columns, *answer.types))), True
    if size > order.bytes_max:
        return Wrong(TOO_MUCH, "The names and types of the columns are too long.", NO_LIMITS)
    for row in answer.rows():
        written = _row(row, order)
        size += len(written)
        if len(rows) >= order.rows_max or size > order.bytes_max:
            complete = False
            break
        rows.append(msgspec.Raw(written))
    return Found(answer.columns, answer.types, msgspec.Raw(_encoded(rows, order)), complete)


def _row(row: tuple[Any, ...], order: Order) -> bytes:
    written = msgspec.json.encode([shown(value) for value in row], enc_hook=str)
    # By way of JSON: times and the like are the same texts in both forms.
    return msgspec.msgpack.encode(msgspec.json.decode(written)) if order.packed else written


def shown(value: Any) -> Any:
    """A value in a form that JSON has, and that no reader of JSON changes."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -EXACT_MAX <= value <= EXACT_MAX else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(name): shown(part) for name, part in value.items()}
    return [shown(part) for part in value] if isinstance(value, list | tuple) else value


def _load() -> None:
    """Load what is needed later, while files can still be read, and permit as many open files as there may be."""
    import duckdb  # noqa: F401
    import pyarrow as pa

    zone = zoneinfo.ZoneInfo("UTC")
    pa.array([0], pa.timestamp("us", tz=str(zone))).to_pylist()
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.stdin.close()
    _load()
    sys.stdout.buffer.write(reply(Path(sys.argv[1]), order))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
