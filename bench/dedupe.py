"""What fingerprints and the content index cost, in CPU-µs: `python -m bench.dedupe`.

Measured with the CPU time of the process, RocksDB's background threads included.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch

from drumlin.dedupe import ContentIndex, digest, sketches
from drumlin.dedupe.sketches import FORMAT
from drumlin.model import Content
from drumlin.parse import keep_freed_memory

BLOCK_CACHE_BYTES = 64 << 20
WRITE_BUFFER_BYTES = 32 << 20
BATCH = 32
TEXT_WORDS = 2_000


class RocksKeyValue:
    """`drumlin.dedupe.KeyValue` on a RocksDB of its own, with bounded caches."""

    def __init__(self, path: Path) -> None:
        table = BlockBasedOptions()
        table.set_block_cache(Cache(BLOCK_CACHE_BYTES))
        table.set_bloom_filter(10, False)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_compression_type(DBCompressionType.none())
        self._db = Rdict(str(path), options)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return list(self._db.get([*keys]) or [])

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in pairs:
            batch.put(key, value)
        self._db.write(batch)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        entries = cast("Iterator[tuple[bytes, bytes]]", self._db.items(from_key=prefix))
        for key, value in entries:
            if not key.startswith(prefix):
                return
            yield key, value

    def close(self) -> None:
        self._db.close()


@contextmanager
def rocks_key_value() -> Iterator[RocksKeyValue]:
    with tempfile.TemporaryDirectory() as directory:
        kv = RocksKeyValue(Path(directory) / "contents")
        yield kv
        kv.close()


def made_up_text(chance: random.Random, words: int = TEXT_WORDS) -> bytes:
    """Words of a made-up vocabulary with the lengths and frequencies of a natural language, roughly."""
    vocabulary = [f"{chance.getrandbits(40):x}"[: chance.randint(2, 9)] for _ in range(3000)]
    weights = [1 / (rank + 3) for rank in range(len(vocabulary))]
    return " ".join(chance.choices(vocabulary, weights, k=words)).encode()


def made_up_sketch(chance: random.Random) -> bytes:
    """The sketch of a text of 1,000 to 2,000 shingles that has nothing to do with any other."""
    size = chance.randint(1_000, 2_000) | FORMAT << 56
    return chance.randbytes(8) + size.to_bytes(8, "little") + chance.randbytes(72)


def made_up_contents(chance: random.Random, domains: int, count: int) -> Iterator[list[Content]]:
    """Batches of contents with random fingerprints over the domains."""
    for start in range(0, count, BATCH):
        yield [
            Content(
                f"site-{chance.randrange(domains)}.example",
                f"https://site.example/articles/{number}/a-title-of-some-words",
                chance.randbytes(32),
                made_up_sketch(chance),
                1.7e9 + number,
                f"<urn:uuid:{chance.getrandbits(128):032x}>",
            )
            for number in range(start, start + BATCH)
        ]


def measure_fingerprints(batch: int = BATCH, rounds: int = 20) -> tuple[float, float]:
    """CPU-µs per text: sha256, sketch."""
    texts = [made_up_text(random.Random(seed)) for seed in range(batch)]
    digests = _cpu_us(lambda: [digest(text) for text in texts], rounds) / batch
    return digests, _cpu_us(lambda: sketches(texts), rounds) / batch


def measure_index(domains: int, count: int, tail: int) -> tuple[float, float, float]:
    """CPU-µs per content: `record` over all, and over the last `tail`; `known` of the last ones."""
    with rocks_key_value() as kv:
        index = ContentIndex(kv)
        spent: list[float] = []
        for contents in made_up_contents(random.Random(1), domains, count):
            spent.append(_cpu_us(lambda contents=contents: index.record(contents), 1))
        items = [(content.domain, content.digest) for content in contents]
        known = _cpu_us(lambda: index.known(items), 20) / BATCH
    last = spent[-tail // BATCH :]
    return sum(spent) / len(spent) / BATCH, sum(last) / len(last) / BATCH, known


def _cpu_us(work: object, rounds: int) -> float:
    assert callable(work)
    started = time.process_time()
    for _ in range(rounds):
        work()
    return (time.process_time() - started) * 1e6 / rounds


def main() -> None:
    # As every node does. Otherwise arrays as large as a batch would be mapped again each time.
    keep_freed_memory()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    text_bytes = len(made_up_text(random.Random(0)))
    for batch in (1, 16, 64):
        digests, hashes = measure_fingerprints(batch)
        print(f"text of {text_bytes} bytes, batch {batch:2}: sha256 {digests:5.1f} µs, sketch {hashes:5.1f} µs")
    for domains in (count // 100, 1):
        everything, tail, known = measure_index(domains, count, count // 10)
        print(f"{count} contents in {domains} domains:", end=" ")
        print(f"record {everything:.1f} µs (last tenth {tail:.1f}), known {known:.1f} µs")


if __name__ == "__main__":
    main()
