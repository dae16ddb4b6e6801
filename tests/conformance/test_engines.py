"""Each engine of drumlin's own against the conformance suite."""

from __future__ import annotations

from drumlin.engines import Engine, open_engine
from drumlin.engines.conformance import EngineConformance


class TestMemoryEngine(EngineConformance):
    def open(self, directory: str) -> Engine:
        return open_engine("memory", shard_count=2)


class TestRocksEngine(EngineConformance):
    durable = True

    def open(self, directory: str) -> Engine:
        return open_engine(f"rocksdb:{directory}", shard_count=2)
