"""Tables without the rows of the removed, and how many rows of others name it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from drumlin.store.moved_rows import moved_rows
from drumlin.store.moves import Moves
from drumlin.store.tables.reading import compute
from drumlin.store.tables.schema import PAGES
from drumlin.store.tables.segments import gathered_rows, open_table

Covers = Callable[[str | None], bool]
"""Whether a URL is removed."""
URL: Final = "url"
WARC_NAME: Final = "warc_filename"


class Searched(Protocol):
    """What is looked for in the rows of others."""

    @property
    def literals(self) -> Sequence[str]: ...

    def names(self, text: str) -> bool: ...


class RowsLook(NamedTuple):
    """How many rows of a file are removed, how many of the others name the removed, and whether rows lead to records
    that have moved."""

    removed: int
    mentions: int
    moved: int

    @property
    def changes(self) -> bool:
        return bool(self.removed or self.moved)


def look(groups: Iterable[Any], covers: Covers, moves: Moves, searched: Searched | None) -> RowsLook:
    """Look through the row groups of a file."""
    removed = mentions = moved = 0
    for rows in groups:
        kept = _kept(rows, covers)
        removed += len(rows) - len(kept)
        moved += _moved(kept, moves)
        mentions += _mentions(kept, searched) if searched is not None else 0
    return RowsLook(removed, mentions, moved)


def write(groups: Iterable[Any], target: Any, table: str, covers: Covers, moves: Moves) -> None:
    """Write the rows that are left to a new file."""
    with open_table(target, table) as writer:
        for rows in gathered_rows((_kept(one, covers) for one in groups), table):
            writer.write_table(moved_rows(rows, moves) if table == PAGES and moves else rows)


def groups_of(file: Any) -> Iterator[Any]:
    """The row groups of an open Parquet file."""
    return (file.read_row_group(group) for group in range(file.num_row_groups))


def _kept(rows: Any, covers: Covers) -> Any:
    pc = compute()
    urls = rows[URL].cast(pa.string())
    gone = [url for url in urls.unique().to_pylist() if covers(url)]
    if not gone:
        return rows
    return rows.filter(pc.invert(pc.is_in(urls, value_set=pa.array(gone, pa.string()))))


def _moved(rows: Any, moves: Moves) -> int:
    if WARC_NAME not in rows.schema.names or not moves:
        return 0
    pc = compute()
    inside = pc.is_in(rows[WARC_NAME].cast(pa.string()), value_set=pa.array(list(moves), pa.string()))
    return pc.sum(inside).as_py() or 0


def _mentions(rows: Any, searched: Searched) -> int:
    """How many rows name the removed in any of their texts. Few rows have the letters of the name at all; only those
    are looked at one by one."""
    found: set[int] = set()
    for column in rows.columns:
        places, texts = _texts(column)
        if texts is None or not len(texts):
            continue
        pc = compute()
        mask = np.zeros(len(texts), bool)
        for literal in searched.literals:
            hits = pc.fill_null(pc.match_substring(texts, literal), False)
            mask |= hits.to_numpy(zero_copy_only=False)
        for at in np.flatnonzero(mask):
            row = int(places[at]) if places is not None else int(at)
            if row not in found and searched.names(texts[int(at)].as_py()):
                found.add(row)
    return len(found)


def _texts(column: Any) -> tuple[Any, Any]:
    """The texts of a column in one array, and the row of each unless every row has one; None if it has no texts."""
    if pa.types.is_list(column.type):
        pc, flat = compute(), column.combine_chunks()
        rows = pc.list_parent_indices(flat)
        return rows.to_numpy(zero_copy_only=False), pc.list_flatten(flat)
    if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
        return None, column.cast(pa.string()).combine_chunks()
    return None, None
