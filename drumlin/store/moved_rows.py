"""Rows of `pages` whose WARC files were written anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from drumlin.store.moves import Moves
from drumlin.store.tables.reading import compute


def moved_rows(rows: Any, moves: Moves) -> Any:
    """Rows of `pages` with the new places of their records."""
    pc = compute()
    names, offsets = rows["warc_filename"].combine_chunks(), rows["warc_record_offset"].combine_chunks()
    plain = names.cast(pa.string())
    known = pa.array(list(moves), pa.string())
    places = pc.fill_null(pc.index_in(plain, value_set=known), -1).to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(offsets.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).copy()
    every = list(moves.values())
    for place in np.unique(places[places >= 0]):
        moved = every[place]
        mine = np.flatnonzero(places == place)
        shifts = np.asarray(moved.shifts, np.int64)
        numbers[mine] += shifts[np.searchsorted(np.asarray(moved.begins, np.int64), numbers[mine], "right") - 1]
    is_moved = pa.array(places >= 0)
    renamed = pa.array([every[place].filename if place >= 0 else None for place in places], pa.string())
    named = pc.if_else(is_moved, renamed, plain).cast(names.type)
    moved_offsets = pc.if_else(is_moved, pa.array(numbers, pa.int64()), offsets.cast(pa.int64())).cast(offsets.type)
    rows = rows.set_column(rows.schema.get_field_index("warc_filename"), "warc_filename", named)
    return rows.set_column(rows.schema.get_field_index("warc_record_offset"), "warc_record_offset", moved_offsets)
