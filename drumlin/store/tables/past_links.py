"""Reads the links and redirects of stored pages, and which hosts were asked for their robots.txt. When a crawl's scope
becomes wider, what they name is offered to the frontier again, so nothing needs to be fetched a second time for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import groupby
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

from drumlin.model import Outcome
from drumlin.store.files import StoreFiles
from drumlin.store.tables.reading import table_files
from drumlin.store.tables.rows import ROBOTS_OUTCOME
from drumlin.store.tables.schema import FETCHES, LINKS, PAGES
from drumlin.urls import canonical

BATCH_ROWS: Final = 2_000
NOFOLLOW: Final = "nofollow"


class PastFinds(NamedTuple):
    """What earlier runs have found: the links of all pages, where redirects led, and the hosts whose robots.txt was
    asked for. Nothing is read before a call."""

    links: Callable[[], Iterator[PastLinks]]
    redirects: Callable[[], dict[str, str]]
    hosts: Callable[[], Iterator[str]]


class PastLinks(NamedTuple):
    """Links of one page; a page with many may come several times."""

    url: str
    depth: int
    targets: list[str]


def past_links(files: StoreFiles, kinds: Collection[str]) -> Iterator[PastLinks]:
    """The links of these kinds, of all pages that allow their links to be followed."""
    for path in table_files(files, PAGES):
        depths = _depths(files, path)
        with files.open(path.replace(PAGES, LINKS, 1)) as opened, pq.ParquetFile(opened) as links:
            for batch in links.iter_batches(BATCH_ROWS, columns=["url", "target", "kind", "rel"]):
                rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                for url, members in groupby(rows, key=lambda row: row[0]):
                    targets = [row[1] for row in members if row[2] in kinds and NOFOLLOW not in row[3]]
                    if url in depths and targets:
                        yield PastLinks(url, depths[url], targets)


def _depths(files: StoreFiles, path: str) -> dict[str, int]:
    """The depth of each page whose links may be followed."""
    names = ("url", "depth", "nofollow", "soft_404", "fetch_status")
    table: Any = _read(files, path, columns=list(names))
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    return {
        url: depth for url, depth, nofollow, soft_404, status in rows if not nofollow and not soft_404 and status < 300
    }


def past_redirects(files: StoreFiles) -> dict[str, str]:
    """The target of each URL that redirected."""
    found: dict[str, str] = {}
    for path in table_files(files, FETCHES):
        rows: Any = _read(files, path, columns=["url", "redirect_to"], filters=[("outcome", "=", Outcome.REDIRECTED)])
        found |= zip(rows["url"].to_pylist(), rows["redirect_to"].to_pylist(), strict=True)
    return {url: target for url, href in found.items() if href and (target := canonical(href, url))}


def past_hosts(files: StoreFiles) -> Iterator[str]:
    """The hosts whose robots.txt was asked for. A host that was asked several times may come several times."""
    for path in table_files(files, FETCHES):
        rows: Any = _read(files, path, columns=["host"], filters=[("outcome", "=", ROBOTS_OUTCOME)])
        yield from dict.fromkeys(rows["host"].to_pylist())


def _read(files: StoreFiles, path: str, **how: Any) -> Any:
    with files.open(path) as file:
        return pq.read_table(file, **how)


class StoredFile(NamedTuple):
    """A stored page and the place of its record."""

    url: str
    depth: int
    mime: str
    warc_filename: str
    warc_offset: int


def stored_files(files: StoreFiles, is_wanted: Callable[[str], bool]) -> Iterator[StoredFile]:
    """The pages whose type is wanted."""
    for path in table_files(files, PAGES):
        names = ("url", "depth", "content_mime_detected", "warc_filename", "warc_record_offset", "fetch_status")
        table: Any = _read(files, path, columns=list(names))
        for *fields, status in zip(*(table[name].to_pylist() for name in names), strict=True):
            one = StoredFile(*fields)
            if one.mime and one.warc_filename and status < 300 and is_wanted(one.mime):
                yield one
