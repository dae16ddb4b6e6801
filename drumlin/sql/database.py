"""Opens the tables of a crawl for one question, which can read them and do nothing else.

DuckDB would read and write any file that this user may. So files are closed to it but for the folder of the tables, and
a question must be a SELECT: a COPY could write even there.

A running crawl replaces the files of segments that grow, by longer ones: every half minute, or after a pause of hours.
DuckDB opens a file several times, and would read the head of one and the rows of the other. So these files are opened
before, and read by their descriptors: whatever has their names later, they stay as they are.

DuckDB's own word for all this is enough for whoever asks about their own files on their own machine. Questions that
come by the network are answered in a process that the operating system confines (`asking.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drumlin.disk import temporary_folder
from drumlin.errors import ConfigError, StorageError
from drumlin.sql.in_bucket import datasets
from drumlin.sql.views import TABLES, VIEWS
from drumlin.store.files import StoreFiles
from drumlin.store.ledger import reading
from drumlin.store.opening import in_bucket
from drumlin.store.spools import unfinished_segments
from drumlin.store.tables.schema import SCHEMAS
from drumlin.store.tables.segments import PARQUET_SUFFIX

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

ROWS_AT_ONCE = 1_000
CONFINED_MEMORY = "512MB"
"""What DuckDB may use where it cannot use the disk beside it."""
CONFINED_THREADS = 2
_CONFINED_WITH: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": CONFINED_MEMORY,
    # Threads that begin before the process is confined would stay free.
    "threads": 1,
    "async_threads": 0,
}
SENTENCE_CHARS_MAX = 2_000
"""How much is told of what DuckDB says is wrong. A question can make it say anything, at any length."""
_PATTERN = frozenset("*?[")
DESCRIPTORS = Path("/proc/self/fd")
_OPENED_WITH: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}
# Types of empty tables, as DuckDB calls them. The files of a table that has some tell their own.
_TYPES = {
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.bool_(): "BOOLEAN",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.timestamp("us", tz="UTC"): "TIMESTAMPTZ",
    pa.list_(pa.string()): "VARCHAR[]",
}


class Answer:
    """The rows that answer a question, made as they are read."""

    def __init__(self, relation: DuckDBPyRelation) -> None:
        self._relation = relation
        self.columns = _told_apart(relation.columns)
        self.types: list[str] = [str(kind) for kind in relation.types]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Each row once."""
        with _plain_errors(OSError):
            for batch in self._relation.to_arrow_reader(ROWS_AT_ONCE):
                yield from zip(*map(_values, batch.columns), strict=True)


def _told_apart(names: Sequence[str]) -> list[str]:
    """Names of columns, each once: a second `url` is called `url_1`, as DuckDB does in a subquery. Who reads rows by
    name would miss it otherwise."""
    told: dict[str, None] = {}
    taken, numbers = set(names), {name: count(1) for name in names}
    for name in names:
        numbered = (f"{name}_{number}" for number in numbers[name])
        told[next(one for one in numbered if one not in taken and one not in told) if name in told else name] = None
    return list(told)


def _values(column: Any) -> list[Any]:
    try:
        return [_number(value) for value in column.to_pylist()]
    except (OverflowError, ValueError) as wrong:
        # Arrow and DuckDB have times for which Python has no date. A row may have one, whoever wrote it.
        if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
            why = str(wrong).partition(". ")[0].strip().rstrip(".")
            message = f"A value of the answer cannot be shown ({why}). As text it can: column::VARCHAR."
            raise ConfigError(message) from wrong
        texts: list[Any] = _without_zone(column).cast(pa.string()).to_pylist()
        return texts


def _without_zone(column: Any) -> Any:
    """The same times: their zone is UTC, and Arrow would look for a file that tells of zones."""
    return column.cast(pa.timestamp(column.type.unit)) if pa.types.is_timestamp(column.type) else column


def _number(value: Any) -> Any:
    """Sums of whole numbers come as decimals."""
    if not isinstance(value, Decimal):
        return value
    return int(value) if value == value.to_integral_value() else float(value)


@contextlib.contextmanager
def answering(tables: Path, sql: str, *, confine: Callable[[], None] | None = None) -> Iterator[Answer]:
    """The answer to a question about the tables in this folder; ConfigError says what is wrong with it. `confine` is
    called before the question is looked at; from then on nothing can be written, so large questions fail in place of
    using the disk."""
    # It takes a fifth of a second to load, and no other verb needs it.
    import duckdb

    if not tables.is_dir():
        hint = "Name the directory of a crawl with --out."
        raise ConfigError(f"There are no tables in {tables.parent}.", hint)
    with contextlib.ExitStack() as stack:
        # Large questions use the disk beside the memory.
        spill = "" if confine else str(stack.enter_context(temporary_folder("query")))
        folder = tables.absolute()
        stack.enter_context(reading(folder.parent))
        sources = files_of(folder, stack)
        opened_with = _OPENED_WITH | _CONFINED_WITH if confine else _OPENED_WITH
        connection = stack.enter_context(duckdb.connect(":memory:", config=opened_with))
        if confine is not None:
            confine()
            connection.execute(f"SET threads = {CONFINED_THREADS}")
        with _plain_errors(OSError):
            _lay_out(connection, sources)
            _close_off(connection, folder, sources, spill)
            answer = Answer(connection.sql(_only_statement(connection, sql)))
        with _plain_errors():
            yield answer


@contextlib.contextmanager
def answering_from(files: StoreFiles, sql: str) -> Iterator[Answer]:
    """The answer to a question about the tables of a store in a bucket, which are read in place. `StorageError` if one
    of them cannot be read."""
    bucket = in_bucket(files)
    try:
        with _answering_from(files, sql) as answer:
            yield answer
    except ConfigError:
        # Those who read files for DuckDB say it in many lines. The bucket knows what it was.
        trouble = bucket.bucket.trouble if bucket is not None else None
        if trouble is None:
            raise
    else:
        return
    # Raised out here, and as another one, so nothing that DuckDB made is held by it when the process ends.
    raise StorageError(trouble.message, trouble.hint, code=trouble.code)


@contextlib.contextmanager
def _answering_from(files: StoreFiles, sql: str) -> Iterator[Answer]:
    import duckdb

    with contextlib.ExitStack() as stack:
        spill = str(stack.enter_context(temporary_folder("query")))
        connection = stack.enter_context(duckdb.connect(":memory:", config=_OPENED_WITH))
        for table, made in datasets(files, stack).items():
            connection.register(table, made)
        with _plain_errors(OSError):
            _lay_out(connection, {})
            _close_off(connection, Path(spill), {}, spill)
            answer = Answer(connection.sql(_only_statement(connection, sql)))
        with _plain_errors():
            yield answer


def files_of(tables: Path, stack: contextlib.ExitStack) -> dict[str, list[str]]:
    """The files of each table, as DuckDB is to open them: by descriptor, as long as `stack` lasts, if they may change,
    or if DuckDB would take their names for patterns. It lists folders to find what fits, which it may not."""
    opened = bool(_PATTERN & set(str(tables)))
    found = {table: sorted((tables / table).glob("*" + PARQUET_SUFFIX)) for table in TABLES}
    # Looked for after the files: a segment has a journal from before its rows are seen first until it is complete, so
    # one that has none by now stays as it is.
    growing = unfinished_segments(tables.parent)
    return {table: list(_steady(paths, growing, stack, opened=opened)) for table, paths in found.items()}


def _steady(
    paths: Sequence[Path], growing: Collection[str], stack: contextlib.ExitStack, *, opened: bool
) -> Iterator[str]:
    for path in paths:
        if not opened and (path.name.removesuffix(PARQUET_SUFFIX) not in growing or not DESCRIPTORS.exists()):
            yield str(path)
            continue
        # After a crash, a segment whose tables are not all there is removed, and made again from its journal.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            yield str(DESCRIPTORS / str(descriptor))


def _lay_out(connection: DuckDBPyConnection, sources: dict[str, list[str]]) -> None:
    """Give the tables and views their names."""
    for table, files in sources.items():
        connection.execute(f"CREATE VIEW {table} AS {_source(table, files)}")
    for name, view in VIEWS.items():
        connection.execute(f"CREATE VIEW {name} AS {view.sql}")


def _source(table: str, files: list[str]) -> str:
    if files:
        listed = ", ".join(map(_quoted, files))
        # Files of an earlier version may have fewer columns.
        return f"SELECT * FROM read_parquet([{listed}], union_by_name = true)"  # noqa: S608  # our own paths, quoted
    columns = [f"NULL::{_TYPES[_plain(field.type)]} AS {field.name}" for field in SCHEMAS[table]]
    return f"SELECT {', '.join(columns)} LIMIT 0"


def _plain(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _close_off(connection: DuckDBPyConnection, tables: Path, sources: dict[str, list[str]], spill: str) -> None:
    """Close everything to the connection but the tables, and of this process's descriptors those that are of them: it
    may have inherited others."""
    opened = [file for files in sources.values() for file in files if file.startswith(str(DESCRIPTORS))]
    connection.execute(f"SET temp_directory = {_quoted(spill)}")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET allowed_directories = [{_quoted(str(tables))}]")
    connection.execute(f"SET allowed_paths = [{', '.join(map(_quoted, opened))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _only_statement(connection: DuckDBPyConnection, sql: str) -> Any:
    import duckdb

    statements = connection.extract_statements(sql)
    if not statements:
        raise ConfigError("There is no question in this SQL.", "`drumlin query` lists some that are ready.")
    if len(statements) > 1:
        raise ConfigError("These are several statements.", "Ask one question at a time.")
    if statements[0].type != duckdb.StatementType.SELECT:
        message = "Only SELECT is permitted (and DESCRIBE, SUMMARIZE and SHOW TABLES)."
        raise ConfigError(message, "To write the answer to a file: --csv > FILE.")
    return statements[0]


@contextlib.contextmanager
def _plain_errors(*more: type[Exception]) -> Iterator[None]:
    """Turn what DuckDB says into a sentence. `more` are further exceptions that only DuckDB can raise meanwhile."""
    import duckdb

    said: tuple[type[Exception], ...] = (duckdb.Error, *more)
    try:
        yield
    except said as wrong:
        paragraph = str(wrong).strip().split("\n\n")[0]
        told = " ".join(paragraph.split())[:SENTENCE_CHARS_MAX]
        raise ConfigError(f"{told.rstrip('.')}.", "`drumlin query` lists the names that it may use.") from wrong


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
