"""The links of pages that are stored: what a wider scope would have followed can be found again without a request."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

from drumlin.store.schema import LINKS, PAGES
from drumlin.store.tables import PARQUET_SUFFIX

BATCH_ROWS: Final = 20_000
NOFOLLOW: Final = "nofollow"


class PastLinks(NamedTuple):
    """Links of one page; a page with many may come several times."""

    url: str
    depth: int
    targets: list[str]


def past_links(tables: Path, kinds: Collection[str]) -> Iterator[PastLinks]:
    """The links of these kinds of all pages that let their links be followed."""
    for path in sorted((tables / PAGES).glob("*" + PARQUET_SUFFIX)):
        depths = _depths(path)
        with pq.ParquetFile(tables / LINKS / path.name) as links:
            for batch in links.iter_batches(BATCH_ROWS, columns=["url", "target", "kind", "rel"]):
                rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                for url, members in groupby(rows, key=lambda row: row[0]):
                    targets = [row[1] for row in members if row[2] in kinds and NOFOLLOW not in row[3]]
                    if url in depths and targets:
                        yield PastLinks(url, depths[url], targets)


def _depths(path: Path) -> dict[str, int]:
    """How deep each page is whose links may be followed."""
    table: Any = pq.read_table(path, columns=["url", "depth", "nofollow", "fetch_status"])
    columns = (table[name].to_pylist() for name in ("url", "depth", "nofollow", "fetch_status"))
    return {url: depth for url, depth, nofollow, status in zip(*columns, strict=True) if not nofollow and status < 300}
