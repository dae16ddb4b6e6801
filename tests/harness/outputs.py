"""What a crawl directory must be once its crawl has ended, checked with tools other than drumlin."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb

with warnings.catch_warnings():
    # Importing FastWARC defines classes that it calls deprecated itself.
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastwarc.warc import ArchiveIterator

CHECK_S_MAX = 900
LEFTOVERS = ("*.open", "*.partial", "*.tmp", "*.journal")
PROGRAMS = Path(sys.executable).parent


def query(out: Path, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Ask DuckDB; `{pages}`, `{links}` and `{fetches}` stand for the tables of the crawl, `?` for the parameters."""
    tables = {name: f"read_parquet('{out}/tables/{name}/*.parquet')" for name in ("pages", "links", "fetches")}
    with duckdb.connect() as connection:
        return connection.execute(sql.format(**tables), parameters).fetchall()


def stored_urls(out: Path) -> list[str]:
    return [url for (url,) in query(out, "SELECT url FROM {pages} ORDER BY url")]


def warc_files(out: Path) -> list[Path]:
    return sorted((out / "warc").glob("*.warc.gz"))


def check_no_leftovers(out: Path) -> None:
    assert [str(path.relative_to(out)) for pattern in LEFTOVERS for path in out.rglob(pattern)] == []


def check_warcs(out: Path) -> None:
    """Both independent checkers accept every file."""
    paths = [str(path) for path in warc_files(out)]
    assert paths, "the crawl wrote no WARC file"
    for path in paths:
        for command in (["warcio", "check"], ["fastwarc", "check", "-q"]):
            program = [str(PROGRAMS / command[0]), *command[1:], path]
            checked = subprocess.run(program, capture_output=True, text=True, timeout=CHECK_S_MAX, check=False)
            assert checked.returncode == 0, f"{command} {path}: {checked.stdout}{checked.stderr}"


def check_rows_lead_to_records(out: Path) -> int:
    """Every row of `pages` names a place in a WARC file where a record of its URL begins; returns how many."""
    places: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, offset, url in query(out, "SELECT warc_filename, warc_record_offset, url FROM {pages}"):
        places[name].append((offset, url))
    for name, rows in places.items():
        with open(out / "warc" / name, "rb") as stream:
            for offset, url in sorted(rows):
                stream.seek(offset)
                record = next(iter(ArchiveIterator(stream)))
                assert record.headers["WARC-Type"] in ("response", "revisit"), (name, offset)
                assert record.headers["WARC-Target-URI"] == url, (name, offset)
    return sum(map(len, places.values()))


def count_captures(out: Path) -> int:
    """Responses in all WARC files, however often a URL is among them."""
    count = 0
    for path in warc_files(out):
        with path.open("rb") as stream:
            types = (record.headers["WARC-Type"] for record in ArchiveIterator(stream, parse_http=False))
            count += sum(kind in ("response", "revisit") for kind in types)
    return count
