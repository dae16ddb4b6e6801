"""What it costs to find one URL in a store: `python -m bench.lookups --segments 20`.

Segments are made as nodes make them, of made-up pages: 10,000 in each, with 30 links a page. Then indexes are made, and
URLs are looked up without and with them. Files are in the page cache, as on a machine that has just written them.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

from drumlin.model import Capture, LinkSet
from drumlin.store import FetchRecord, SegmentWriter
from drumlin.store.files import DirectoryFiles
from drumlin.store.tables.lookup import StoreReader

PAGES, LINKS = 10_000, 30
HOSTS = 1_000
LONG_AGO = 1_700_000_000.0
ASKED = 20


def url_of(number: int) -> str:
    return f"https://www.site{number % HOSTS}.example/section/{number // HOSTS % 97}/page-{number}.html"


def capture_of(number: int, chance: random.Random, pages: int) -> Capture:
    url = url_of(number)
    targets: list[str | None] = [url_of(chance.randrange(pages)) for _ in range(LINKS)]
    links = LinkSet(targets, ["a"] * LINKS, [""] * LINKS, ["a link"] * LINKS)
    host = url.split("/")[2]
    capture = Capture(
        url, host, host, 2, url_of(number // 2), (), LONG_AGO + number, 0.1, 200, "h2", "", b"", b"", b"", b"", {}
    )
    capture.links, capture.text, capture.warc_filename = links, b"a few words of text " * 20, "made-up.warc.gz"
    return capture


def make_segment(tables: Path, segment: int, chance: random.Random, pages: int) -> None:
    writer = SegmentWriter(tables, f"n0-{segment:x}-00001", node="n0")
    for start in range(segment * PAGES, (segment + 1) * PAGES, 500):
        captures = [capture_of(number, chance, pages) for number in range(start, start + 500)]
        fetches = [FetchRecord(one.url, one.host, one.fetched, "fetched", 200, node="n0") for one in captures]
        writer.add(captures, fetches)
    writer.finish()


def seconds(look: object, urls: list[str]) -> str:
    assert callable(look)
    took = []
    for url in urls:
        began = time.perf_counter()
        look(url, lambda: True)
        took.append(time.perf_counter() - began)
    return f"{statistics.median(took) * 1000:.1f} ms (worst {max(took) * 1000:.1f} ms)"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--segments", type=int, default=20)
    count: int = parser.parse_args().segments
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        for segment in range(count):
            make_segment(store / "tables", segment, chance, count * PAGES)
        for path in store.rglob("*.parquet"):
            os.utime(path, (LONG_AGO, LONG_AGO))
        reader = StoreReader(DirectoryFiles(store))
        urls = [url_of(chance.randrange(count * PAGES)) for _ in range(ASKED)]
        reader.fetches(urls[0], lambda: True)
        print(f"{count} segments, {count * PAGES:,} pages, {count * PAGES * LINKS:,} links")
        print(f"attempts, read through: {seconds(reader.fetches, urls[:3])}")
        print(f"links, read through:    {seconds(reader.links, urls[:3])}")
        began, cpu = time.perf_counter(), time.process_time()
        reader.index_some(time.time(), lambda: True)
        took, used = time.perf_counter() - began, time.process_time() - cpu
        print(f"index of a segment: {took / count:.3f} s, CPU {used / count:.3f} s")
        sizes = {kind: sum(path.stat().st_size for path in store.rglob(kind)) for kind in ("*.urls", "*.parquet")}
        print(
            f"size of a segment: {sizes['*.urls'] / count / 1e6:.2f} MB of index, "
            f"{sizes['*.parquet'] / count / 1e6:.2f} MB of tables"
        )
        print(f"attempts, by index: {seconds(reader.fetches, urls)}")
        print(f"links, by index:    {seconds(reader.links, urls)}")
        print(
            f"unknown, by index:  {seconds(reader.links, ['https://nobody.example/' + str(n) for n in range(ASKED)])}"
        )


if __name__ == "__main__":
    main()
