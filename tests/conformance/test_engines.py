"""Each engine of drumlin's own against the conformance suite."""

from __future__ import annotations

from pathlib import Path

from drumlin.engines.blocking import BlockingEngine, open_blocking
from drumlin.engines.conformance.suite import EngineConformance


class TestMemoryEngine(EngineConformance):
    def open(self, directory: str) -> BlockingEngine:
        return open_blocking("memory", shard_count=2)


class TestRocksEngine(EngineConformance):
    durable = True

    def open(self, directory: str) -> BlockingEngine:
        return open_blocking(f"rocksdb:{directory}", shard_count=2)

    def test_the_number_of_shards_is_fixed_when_the_frontier_is_founded(self, tmp_path: Path) -> None:
        """Another version may use another number of shards by default, and must still resume this crawl."""
        self.open(str(tmp_path)).close()
        again = open_blocking(f"rocksdb:{tmp_path}", shard_count=16)
        assert again.shard_count == 2
        again.close()
