"""A million sketches in one domain, on RocksDB: found again, durable, in bounded memory, and still cheap."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from bench.dedupe import BATCH, RocksKeyValue, made_up_sketch
from drumlin.dedupe import ContentIndex
from drumlin.dedupe.sketches import COLUMNS_AT
from drumlin.model import Content

pytestmark = pytest.mark.slow

COUNT = 1_000_000
PROBES = 2_000
MEMORY_GROWTH_BYTES_MAX = 700 << 20
"""RocksDB's caches and write buffers (160 MB), the index (130 MB, twice while it grows), its sketches (88 MB)."""


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def content(name: str, sketch: bytes) -> Content:
    body = random.Random(name).randbytes(32)
    return Content("one.example", f"https://one.example/{name}", body, sketch, 0.0, f"<{name}>")


def fill(index: ContentIndex, sketches: list[bytes]) -> float:
    """Record all contents. Returns the CPU-µs per content."""
    spent_s = 0.0
    for start in range(0, len(sketches), BATCH):
        batch = [content(str(number), sketches[number]) for number in range(start, start + BATCH)]
        began = time.process_time()
        assert index.record(batch) == [None] * BATCH
        spent_s += time.process_time() - began
    return spent_s / len(sketches) * 1e6


def changed(sketch: bytes, bands: int) -> bytes:
    """The same sketch with other bits in so many bands, and in one column."""
    changed = bytearray(sketch)
    for band in range(bands):
        changed[2 * band] ^= 0x55
    changed[8 * COLUMNS_AT] ^= 1
    return bytes(changed)


def test_a_million_sketches_are_searched_and_survive_closing(tmp_path: Path) -> None:
    chance = random.Random(11)
    sketches = [made_up_sketch(chance) for _ in range(COUNT)]
    resident_before = resident_bytes()
    kv = RocksKeyValue(tmp_path / "contents")
    spent_us = fill(ContentIndex(kv), sketches)
    grown_bytes = resident_bytes() - resident_before
    print(f"record {spent_us:.1f} CPU-µs a content, memory grew by {grown_bytes >> 20} MB")
    assert grown_bytes < MEMORY_GROWTH_BYTES_MAX
    kv.close()

    kv = RocksKeyValue(tmp_path / "contents")
    began = time.process_time()
    index = ContentIndex(kv)
    # Each target is probed once: a probe is recorded too, and would be nearer to a second probe of the same target.
    for number, target in enumerate(chance.sample(range(COUNT), PROBES)):
        bands = number % 5
        (answer,) = index.record([content(f"probe{number}", changed(sketches[target], bands))])
        if bands == 4:
            assert answer is None
        else:
            assert answer is not None
            assert answer.url == f"https://one.example/{target}"
        if number == 0:
            print(f"read again in {time.process_time() - began:.1f} CPU-s")
    kv.close()
