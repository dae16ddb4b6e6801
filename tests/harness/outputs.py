"""What must hold for a crawl directory once its crawl has ended, checked with tools other than drumlin."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

with warnings.catch_warnings():
    # Importing FastWARC warns about classes that it defines itself.
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastwarc.warc import ArchiveIterator

CHECK_S_MAX = 900
LEFTOVERS = ("*.open", "*.partial", "*.tmp", "*.journal", "*.kept")
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
    """Check that two independent tools accept every file."""
    paths = [str(path) for path in warc_files(out)]
    assert paths, "the crawl wrote no WARC file"
    for path in paths:
        for command in (["warcio", "check"], ["fastwarc", "check", "-q"]):
            program = [str(PROGRAMS / command[0]), *command[1:], path]
            checked = subprocess.run(program, capture_output=True, text=True, timeout=CHECK_S_MAX, check=False)
            assert checked.returncode == 0, f"{command} {path}: {checked.stdout}{checked.stderr}"


def check_rows_lead_to_records(out: Path) -> int:
    """Check that every row of `pages` names a place in a WARC file where a record of its URL begins. Returns how many
    rows there are."""
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


class Archived(NamedTuple):
    """The content of the WARC files: captures by place, with URL and record id, and the ids of captures that are marked
    as surplus."""

    captures: dict[tuple[str, int], tuple[str, str]]
    surplus: set[str]


def read_warcs(out: Path) -> Archived:
    found = Archived({}, set())
    for path in warc_files(out):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, parse_http=False):
                headers, kind = record.headers, record.headers["WARC-Type"]
                if kind in ("response", "revisit"):
                    place = (path.name, record.stream_pos)
                    found.captures[place] = (headers["WARC-Target-URI"], headers["WARC-Record-ID"].strip("<>"))
                elif kind == "metadata" and record.reader.read().startswith(b"drumlin-status: surplus"):
                    marked = headers["WARC-Refers-To"].strip("<>")
                    assert marked not in found.surplus, f"{path.name}: {marked} is called surplus twice"
                    found.surplus.add(marked)
    return found


def read_index(out: Path) -> dict[tuple[str, int], str]:
    """The lines of all indexes: the URL by the place of its record. If there is a merged index, it must be equal."""
    indexes = sorted((out / "warc").glob("*.cdxj"))
    merged = [path for path in indexes if path.name == "index.cdxj"]
    lines = [line for path in indexes if path not in merged for line in path.read_bytes().splitlines()]
    for path in merged:
        assert path.read_bytes().splitlines() == sorted(lines), "index.cdxj is not the sum of the others"
    entries = [json.loads(line.split(b" ", 2)[2]) for line in lines]
    index = {(entry["filename"], int(entry["offset"])): entry["url"] for entry in entries}
    assert len(index) == len(entries), "a capture is in the index twice"
    return index


def check_index_matches_tables(out: Path) -> dict[str, int]:
    """Check the promise of docs/reference/store.md: the index has the captures that counted, which are those of `pages`
    and the redirects and 304s of `fetches`, and every other capture is marked as surplus in its WARC file. Returns how
    many there are of each.

    This holds for stores of nodes. Workers that report pages without sending them leave rows without records."""
    archived, index = read_warcs(out), read_index(out)
    pages = query(out, "SELECT warc_filename, warc_record_offset, url, record_id FROM {pages}")
    others = query(out, "SELECT record_id, url FROM {fetches} WHERE record_id <> '' AND outcome <> 'fetched'")
    fetched = query(out, "SELECT record_id, url FROM {fetches} WHERE record_id <> '' AND outcome = 'fetched'")
    places = {(name, offset): (url, record_id) for name, offset, url, record_id in pages}
    assert len(places) == len(pages), "two rows of pages name the same record"
    assert sorted(fetched) == sorted((record_id, url) for *_, url, record_id in pages)
    indexed = {place: archived.captures[place] for place in index}
    assert {place: url for place, (url, _) in indexed.items()} == index
    assert places.items() <= indexed.items(), "a page is not in the index"
    beyond = sorted((record_id, url) for place, (url, record_id) in indexed.items() if place not in places)
    assert beyond == sorted(others), "the index has captures beyond those that counted, or lacks some"
    unindexed = [record_id for place, (_, record_id) in archived.captures.items() if place not in index]
    assert sorted(unindexed) == sorted(archived.surplus)
    return {"indexed": len(index), "surplus": len(unindexed)}
