"""`drumlin query`: questions in SQL about what a crawl has stored."""

from __future__ import annotations

import csv
import re
import signal
import sys
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from drumlin.cli.console import line, messages, results, write_document
from drumlin.cli.help import Verb
from drumlin.cli.report import store_of
from drumlin.config import Loaded, config_options
from drumlin.errors import ConfigError
from drumlin.lines import did_you_mean, one_line
from drumlin.store.objects.address import is_objects

if TYPE_CHECKING:
    from rich.console import Console

    from drumlin.sql.database import Answer

ROWS_SHOWN_MAX = 100
PLAIN_COLUMNS = 80
COLUMN_CHARS_MIN = 6
BETWEEN = 2
"""How many blanks are between two columns."""
_NAME = re.compile(r"[\w-]+")
NOTHING = ""
"""How NULL is shown in a table and in CSV."""


@click.command("query", cls=Verb)
@click.argument("sql", required=False)
@click.option("--csv", "as_csv", is_flag=True, help="print all rows as CSV on stdout")
@config_options("out", "store", "json", "color")
def command(loaded: Loaded, sql: str | None, as_csv: bool) -> None:
    """Ask what a crawl has stored, in SQL: tables `pages`, `links` and `fetches`, and some views.

    SQL may be the name of a ready question. Without it, these and the views are listed. A crawl may be running. Nothing
    is changed: a question can read the tables, and nothing else.
    """
    from drumlin.sql.ready import QUESTIONS

    if as_csv and loaded.process.json and loaded.is_given("json"):
        raise ConfigError("--csv and --json exclude each other.")
    if sql is None:
        _list_questions(loaded)
        return
    question = QUESTIONS.get(sql.strip())
    if question is None and _NAME.fullmatch(sql.strip()):
        nearest = did_you_mean(sql.strip(), QUESTIONS)
        raise ConfigError(f"There is no ready question {sql.strip()!r}.", nearest or "`drumlin query` lists them.")
    # SIGTERM ends it as Ctrl-C does: a large question has files beside the memory, which must be removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _answering(loaded, question.sql if question else sql) as answer:
        if as_csv:
            _write_csv(answer)
        elif loaded.process.json:
            _write_json(answer)
        else:
            _show(loaded, answer)


def _answering(loaded: Loaded, sql: str) -> AbstractContextManager[Answer]:
    from drumlin.local.moved import tell_moved
    from drumlin.sql.database import answering, answering_from
    from drumlin.store.opening import in_bucket, open_store, store_address
    from drumlin.store.tables.reading import has_moved_tables

    named = loaded.process.store if loaded.is_given("store") else None
    folder = Path(named) if named else store_of(loaded)
    tell_moved(folder, "What it has stored since is here only if it still stores here.")
    address = named if is_objects(named) else store_address(folder)
    files = open_store(address or folder)
    if (bucket := in_bucket(files)) is not None:
        bucket.check_there()
    # DuckDB itself cannot open tables that are elsewhere.
    return answering_from(files, sql) if address or has_moved_tables(files) else answering(folder / "tables", sql)


def _list_questions(loaded: Loaded) -> None:
    from rich.table import Table

    from drumlin.cli.console import write_json
    from drumlin.sql.ready import QUESTIONS
    from drumlin.sql.views import TABLES, VIEWS

    if loaded.process.json:
        write_json({name: {"asks": one.asks, "sql": one.sql} for name, one in QUESTIONS.items()})
        return
    console = results(loaded.process)
    line(console, "Ready questions: drumlin query NAME", style="bold")
    listed = Table.grid(padding=(0, 2))
    for name, question in QUESTIONS.items():
        listed.add_row(f"  {name}", question.asks)
    console.print(listed)
    names = ", ".join([*TABLES, *VIEWS])
    line(console, 'Or ask your own: drumlin query "SELECT count(*) FROM pages". It may use these names:')
    line(console, f"  {names}")
    line(console, '`drumlin query "DESCRIBE pages"` shows the columns of one; docs/reference/sql.md explains them.')


# Output


def _show(loaded: Loaded, answer: Answer) -> None:
    """A table that fits the terminal; long values are cut, and so is a long answer."""
    rows = list(islice(answer.rows(), ROWS_SHOWN_MAX + 1))
    console = results(loaded.process)
    shown = [[_text(value) for value in row] for row in rows[:ROWS_SHOWN_MAX]]
    _print_table(console, answer.columns, shown, [_is_number(column) for column in zip(*rows, strict=True)])
    if len(rows) > ROWS_SHOWN_MAX:
        more = f"There are more than {ROWS_SHOWN_MAX} rows; --csv or --json print all of them."
        line(messages(loaded.process), more)
    elif not rows:
        line(messages(loaded.process), "No rows.")


def _print_table(console: Console, names: list[str], rows: list[list[str]], numbers: list[bool]) -> None:
    from rich.cells import cell_len
    from rich.text import Text

    room = console.width if console.is_terminal else PLAIN_COLUMNS
    heads = [one_line(name) for name in names]
    widths = fitting([max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)], room)
    if sum(widths) + BETWEEN * (len(widths) - 1) > room:
        _print_records(console, heads, rows, room)
        return
    right = numbers or [False] * len(heads)
    console.print(Text(_row(heads, widths, right), "bold"), soft_wrap=True)
    console.print(Text("  ".join("─" * width for width in widths)), soft_wrap=True)
    for row in rows:
        console.print(Text(_row(row, widths, right)), soft_wrap=True)


def _print_records(console: Console, names: list[str], rows: list[list[str]], room: int) -> None:
    """Rows of more columns than fit side by side: one value a line, a blank line between two rows."""
    from rich.cells import cell_len
    from rich.text import Text

    wide = max(map(cell_len, names))
    for place, row in enumerate(rows):
        if place:
            console.print()
        for name, value in zip(names, row, strict=True):
            kept = min(cell_len(value), room - wide - BETWEEN)
            console.print(Text(_row([name, value], [wide, kept], [False, False])), soft_wrap=True)


def fitting(wanted: list[int], width: int) -> list[int]:
    """The widths of columns, with two blanks between them: as wanted if they fit, and otherwise the widest are cut to
    the same width, but to no less than `COLUMN_CHARS_MIN`."""
    room = width - BETWEEN * (len(wanted) - 1)
    if sum(wanted) <= room:
        return wanted
    most = max(wanted)
    while most > COLUMN_CHARS_MIN and sum(min(one, most) for one in wanted) > room:
        most -= 1
    return [min(one, most) for one in wanted]


def _row(values: list[str], widths: list[int], right: list[bool]) -> str:
    parts = zip(values, widths, right, strict=True)
    return "  ".join(_cell(value, width, number) for value, width, number in parts).rstrip()


def _cell(text: str, width: int, right: bool) -> str:
    """A value in exactly so many columns of a terminal, on which some characters take two."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "…"
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks


def _text(value: Any) -> str:
    """A value for people. Pages are strangers' texts: they must not control the terminal."""
    if value is None:
        return NOTHING
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bytes):
        return value.hex()
    return one_line(str(value))


def _is_number(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, int | float) or value is None for value in values)


def _write_json(answer: Answer) -> None:
    """A list of objects, written as the rows come."""
    separator = "["
    for row in answer.rows():
        record = dict(zip(answer.columns, row, strict=True))
        write_document(f"{separator}\n{msgspec.json.encode(record, enc_hook=str).decode()}")
        separator = ","
    sys.stdout.write("[]\n" if separator == "[" else "\n]\n")


def _write_csv(answer: Answer) -> None:
    safe = one_line if sys.stdout.isatty() else str
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([safe(name) for name in answer.columns])
    for row in answer.rows():
        writer.writerow([NOTHING if value is None else safe(_exact(value)) for value in row])


def _exact(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
