"""Stores with segments of any age, as nodes would have left them."""

from __future__ import annotations

from pathlib import Path

from drumlin.model import Outcome
from drumlin.store import FetchRecord, SegmentWriter, WarcWriter
from tests.unit.store_captures import FETCHED, HTML, make_capture

PAGES = 3
DAY_S = 86_400.0
OLD = FETCHED
"""A time that is more than 30 days ago by every clock."""


def add_segment(root: Path, node: str, fetched: float = OLD, host: str = "", path: str = "") -> list[str]:
    """A segment of a few pages of one host, with a WARC file of its own; returns their URLs. `path` comes after their
    numbers."""
    urls = [f"http://{host or f'{node}.test'}/{number}{path}" for number in range(PAGES)]
    # The last page is the newest: it makes the age of the segment.
    captures = [
        make_capture(url, HTML + url.encode(), fetched=fetched - PAGES + place, text=b"the words of " + url.encode())
        for place, url in enumerate(urls, 1)
    ]
    writer = WarcWriter(root / "warc", node, software="drumlin/test", info={}, now=fetched)
    writer.settle(writer.store(captures), set())
    writer.close()
    fetches = [FetchRecord(one.url, one.host, one.fetched, Outcome.FETCHED, 200, node=node) for one in captures]
    for fetch, capture in zip(fetches, captures, strict=True):
        fetch.record_id = capture.record_id
    tables = SegmentWriter(root / "tables", segment_of(node), node=node)
    tables.add(captures, fetches)
    tables.finish()
    return urls


def segment_of(node: str) -> str:
    return f"{node}-1f-00001"


def files_below(root: Path) -> dict[str, bytes]:
    """Everything below a folder but locks, by path."""
    paths = (path for path in root.rglob("*") if path.is_file() and not path.name.endswith("lock"))
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}
