"""Building blocks for the examples of the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from drumlin.engines.blocking import BlockingEngine
from drumlin.model import Lease, NewURLs, Renewal, Settled, Settlement, Task, TaskState


def url_of(host: str, path: int) -> str:
    return f"http://{host}/{path}"


def urls_of(host: str, *paths: int) -> NewURLs:
    return NewURLs(host, [url_of(host, path) for path in paths])


def settled(task: Task, attempt_id: bytes, state: TaskState = TaskState.DONE, **fields: Any) -> Settled:
    return Settled(task.id, task.url, state, attempt_id, **fields)


def settlement(lease: Lease, *parts: Settled, **fields: Any) -> Settlement:
    return Settlement(lease.host, lease.lease_id, list(parts), **fields)


class ConformanceBase:
    """Subclasses define `open`, which opens an engine with at least one shard, kept in `directory` if it is durable."""

    durable: ClassVar[bool] = False

    def open(self, directory: str) -> BlockingEngine:
        raise NotImplementedError

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[BlockingEngine]:
        engine = self.open(str(tmp_path / "engine"))
        yield engine
        engine.close()

    def seed(self, engine: BlockingEngine, host: str = "a.example", count: int = 3, now: float = 100.0) -> None:
        engine.add(engine.shard_of(host), [urls_of(host, *range(count))], now)

    def lease(self, engine: BlockingEngine, now: float = 100.0, **changes: Any) -> list[Lease]:
        wanted: dict[str, Any] = {"until": now + 10, "hosts_max": 9, "urls_max": 99, "urls_per_host": 9} | changes
        request = wanted.pop("request", f"node-{now}")
        shard = engine.shard_of(wanted.pop("host", "a.example"))
        return engine.lease(shard, wanted.pop("node", "node"), request, now, **wanted)

    def lease_one(self, engine: BlockingEngine, now: float = 100.0, **changes: Any) -> Lease:
        (lease,) = self.lease(engine, now, **changes)
        return lease

    def extend(
        self,
        engine: BlockingEngine,
        lease: Lease,
        now: float,
        *,
        until: float,
        urls_max: int,
        delay_default_s: float = 0.0,
    ) -> Lease | None:
        renewal = Renewal(lease.shard, lease.host, lease.lease_id, urls_max)
        (extended,) = engine.extend_all([renewal], now, until=until, delay_default_s=delay_default_s)
        return extended

    def state(self, engine: BlockingEngine, path: int, host: str = "a.example") -> TaskState | None:
        story = engine.story(engine.shard_of(host), url_of(host, path))
        return story.state if story else None
