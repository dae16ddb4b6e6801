"""How attempts on certain URLs ended, as the tables have it: the last of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.store.schema import FETCHES
from drumlin.store.tables import PARQUET_SUFFIX

_COLUMNS: Final = ["url", "fetch_time", "outcome", "fetch_status", "kind", "error"]


class Fate(msgspec.Struct, frozen=True):
    """The last attempt on a URL. `kind` and `error` say why it failed or was not made."""

    outcome: str
    status: int
    kind: str
    error: str


def last_fates(tables: Path, urls: Sequence[str]) -> dict[str, Fate]:
    """The fates of those of these URLs that were tried."""
    newest: dict[str, dict[str, Any]] = {}
    for path in sorted((tables / FETCHES).glob("*" + PARQUET_SUFFIX)):
        for row in _rows(path, urls):
            known = newest.get(row["url"])
            if known is None or row["fetch_time"] >= known["fetch_time"]:
                newest[row["url"]] = row
    return {
        url: Fate(row["outcome"], row["fetch_status"] or 0, row["kind"] or "", row["error"] or "")
        for url, row in newest.items()
    }


def _rows(path: Path, urls: Sequence[str]) -> list[dict[str, Any]]:
    try:
        table = pq.read_table(path, columns=_COLUMNS, filters=[("url", "in", list(urls))])
    except (OSError, pa.ArrowException):
        # What cannot be read is told by whoever needs all of it.
        return []
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
