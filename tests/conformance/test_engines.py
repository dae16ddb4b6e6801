"""Each engine of drumlin's own against the conformance suite."""

from __future__ import annotations

from drumlin.engines.blocking import BlockingEngine, open_blocking
from drumlin.engines.conformance import EngineConformance


class TestMemoryEngine(EngineConformance):
    def open(self, directory: str) -> BlockingEngine:
        return open_blocking("memory", shard_count=2)


class TestRocksEngine(EngineConformance):
    durable = True

    def open(self, directory: str) -> BlockingEngine:
        return open_blocking(f"rocksdb:{directory}", shard_count=2)
