"""Bundles that come late, from nodes that were away when something was removed: it is taken out before they are stored.

Only tombstones tell here what was removed, so names in texts are not looked for. The bytes are a stranger's, also after
they were checked, so a coordinator has it done in a process of its own (`take_out_alone`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq

from drumlin.disk import replace
from drumlin.lifecycle.removal import rows, warcs
from drumlin.lifecycle.removal.counts import Counts
from drumlin.lifecycle.removal.plan import SUFFIX
from drumlin.lifecycle.removal.tombstones import Tombstones
from drumlin.store.bundles import limit_process
from drumlin.store.moves import Moved
from drumlin.store.tables.schema import FETCHES, LINKS, PAGES
from drumlin.store.tables.segments import PARQUET_SUFFIX
from drumlin.store.warc.cdxj import CDXJ_SUFFIX, write_index
from drumlin.store.warc.file import WARC_SUFFIX

TAKEN_OUT: Final = "taken-out"
RECORD_BYTES_MAX: Final = 16 * 1024**2
"""How much of a record is kept in memory: only headers and warcinfo records are looked at."""


class TakenOut(msgspec.Struct):
    """What became of a bundle: how much was taken out of it, or else what is wrong."""

    counts: Counts
    wrong: str = ""


def take_out_alone(folder: Path, members: Mapping[str, Path], removed: Tombstones) -> None:
    """Do it in a process of its own, and write beside the bundle what was done."""
    limit_process()
    try:
        done = TakenOut(take_out(members, removed.covers))
    except OSError:
        # The disk is at fault, not the sender: nothing is said.
        raise
    except Exception as odd:
        # Libraries may raise anything when they read a stranger's bytes.
        done = TakenOut(Counts(), f"what was removed cannot be taken out of it ({type(odd).__name__})")
    (folder / TAKEN_OUT).write_bytes(msgspec.msgpack.encode(done))


def take_out(members: Mapping[str, Path], covers: warcs.Covers) -> Counts:
    """Write those files of a bundle anew that have something of the removed; `members` are its files by their paths in
    the store. The same bundle becomes the same each time, so it can be sent again."""
    counts, moves = Counts(), dict[str, Moved]()
    for member, path in members.items():
        if member.endswith(WARC_SUFFIX):
            found = warcs.look(path, covers, warcs.nowhere, record_bytes_max=RECORD_BYTES_MAX)
            counts.add(found.counts)
            if found.changes:
                filename = member.rpartition("/")[2]
                moves[filename] = found.moved(filename)
                warcs.write(path, _beside(path), found.parts)
                replace(_beside(path), path)
    for member, path in members.items():
        if member.endswith(CDXJ_SUFFIX):
            kept, removed = warcs.index_without(iter(path.read_bytes().splitlines(keepends=True)), covers, moves)
            counts.index_lines += removed
            write_index(path, kept)
    for table in (FETCHES, LINKS, PAGES):
        for member, path in members.items():
            if member.startswith(f"tables/{table}/") and member.endswith(PARQUET_SUFFIX):
                _table(path, table, covers, moves, counts)
    return counts


def _table(path: Path, table: str, covers: warcs.Covers, moves: dict[str, Moved], counts: Counts) -> None:
    with pq.ParquetFile(path) as file:
        found = rows.look(rows.groups_of(file), covers, moves if table == PAGES else {}, None)
    if found.changes:
        with pq.ParquetFile(path) as file:
            rows.write(rows.groups_of(file), _beside(path), table, covers, moves)
        replace(_beside(path), path)
        setattr(counts, table, getattr(counts, table) + found.removed)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)
