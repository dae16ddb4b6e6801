"""A million fingerprints in one domain, on RocksDB: exact, durable, in bounded memory, and still cheap."""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
import pytest

from bench.dedupe import BATCH, RocksKeyValue
from drumlin.dedupe import DISTANCE_BITS_MAX, ContentIndex
from drumlin.model import Content, Duplicate

pytestmark = pytest.mark.slow

COUNT = 1_000_000
PROBES = 2_000
MEMORY_GROWTH_BYTES_MAX = 400 << 20
"""RocksDB's caches and write buffers (160 MB), the index (30 MB, twice while rearranged), the test's arrays."""


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def content(name: str, simhash: int) -> Content:
    body = random.Random(name).randbytes(32)
    return Content("one.example", f"https://one.example/{name}", body, simhash, 0.0, f"<{name}>")


def fill(index: ContentIndex, simhashes: list[int]) -> float:
    """Record them all; the CPU-µs spent per content."""
    spent_s = 0.0
    for start in range(0, len(simhashes), BATCH):
        batch = [content(str(number), simhashes[number]) for number in range(start, start + BATCH)]
        began = time.process_time()
        assert index.record(batch) == [None] * BATCH
        spent_s += time.process_time() - began
    return spent_s / len(simhashes) * 1e6


def flipped(chance: random.Random, simhash: int, bits: int) -> int:
    for bit in chance.sample(range(64), bits):
        simhash ^= 1 << bit
    return simhash


def distinct_simhashes(chance: random.Random) -> list[int]:
    """Random ones: the chance that any two of a million are within 3 bits is one in a thousand; the seed has none."""
    return [chance.getrandbits(64) for _ in range(COUNT)]


def brute_force(everything: np.ndarray, simhash: int) -> tuple[int, int] | None:
    """Distance and place of the nearest, if it is near."""
    distances = np.bitwise_count(everything ^ np.uint64(simhash))
    place = int(distances.argmin())
    return (int(distances[place]), place) if distances[place] <= DISTANCE_BITS_MAX else None


def test_a_million_fingerprints_are_searched_exactly_and_survive_closing(tmp_path: Path) -> None:
    chance = random.Random(11)
    simhashes = distinct_simhashes(chance)
    resident_before = resident_bytes()
    kv = RocksKeyValue(tmp_path / "contents")
    spent_us = fill(ContentIndex(kv), simhashes)
    grown_bytes = resident_bytes() - resident_before
    print(f"record {spent_us:.1f} CPU-µs a content, memory grew by {grown_bytes >> 20} MB")
    assert grown_bytes < MEMORY_GROWTH_BYTES_MAX
    kv.close()

    kv = RocksKeyValue(tmp_path / "contents")
    began = time.process_time()
    index = ContentIndex(kv)
    everything = np.array(simhashes, np.uint64)
    for number in range(PROBES):
        distance = number % 5
        target = chance.randrange(COUNT)
        probe = content(f"probe{number}", flipped(chance, simhashes[target], distance))
        expected = brute_force(everything, probe.simhash or 0)
        assert (expected == (distance, target)) == (distance <= DISTANCE_BITS_MAX)
        answer = Duplicate(f"https://one.example/{target}", 0.0, f"<{target}>", distance) if expected else None
        assert index.record([probe]) == [answer]
        everything = np.append(everything, np.uint64(probe.simhash or 0)) if distance > 3 else everything
        if number == 0:
            print(f"read again in {time.process_time() - began:.1f} CPU-s")
    kv.close()
