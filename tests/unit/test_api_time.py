"""The time of a request: a coordinator that was frozen asks the engine for the time before it answers anything."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec

from drumlin.access.tokens import SECRET_BYTES, OpenAccess
from drumlin.api.app import CoordinatorApp
from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import STALE_S, EngineTime
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.protocol.paths import TIME_HEADER
from tests.harness.clocks import HandClock

FOUNDED = 1_795_000_000.0
LEASE_S = 20.0


class Coordinator:
    """An application whose boot-time clock is set by hand."""

    def __init__(self) -> None:
        self.engine, self.boot = MemoryEngine(1), HandClock(50.0)
        config = CrawlConfig(lease_s=LEASE_S, scope="any")
        dispatcher = Dispatcher(self.engine, config, [], chance=random.Random(1))
        self._app = CoordinatorApp(
            dispatcher,
            access=OpenAccess(b"s" * SECRET_BYTES),
            on_failure=lambda _: None,
            engine_time=EngineTime(self.engine, monotonic=self.boot, wall=HandClock(FOUNDED)),
        )

    async def get(self, path: str) -> tuple[dict[bytes, bytes], Any]:
        """The headers and the answer."""
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        async def send(event: dict[str, Any]) -> None:
            sent.append(event)

        await self._app({**scope, "headers": [(b"accept", b"application/json")]}, receive, send)
        return dict(sent[0]["headers"]), msgspec.json.decode(sent[1]["body"])

    async def time(self) -> float:
        """As every answer says it."""
        headers, _ = await self.get("/api/v1/stats")
        return int(headers[TIME_HEADER.lower().encode()]) / 1000


def test_time_passes_for_requests_but_not_while_the_coordinator_is_frozen() -> None:
    async def check() -> None:
        coordinator = Coordinator()
        assert await coordinator.time() == FOUNDED
        coordinator.boot.now += STALE_S - 0.5
        assert await coordinator.time() == FOUNDED + STALE_S - 0.5
        coordinator.boot.now += 2 * LEASE_S
        assert await coordinator.time() == FOUNDED + STALE_S - 0.5
        coordinator.boot.now += 1.0
        assert await coordinator.time() == FOUNDED + STALE_S + 0.5

    asyncio.run(check())


def test_time_that_passed_for_others_has_passed_for_a_coordinator_that_was_frozen() -> None:
    async def check() -> None:
        coordinator = Coordinator()
        await coordinator.time()
        await coordinator.engine.keep_time(FOUNDED + 40.0)
        coordinator.boot.now += 40.0
        headers, stats = await coordinator.get("/api/v1/stats")
        assert int(headers[TIME_HEADER.lower().encode()]) == (FOUNDED + 40.0) * 1000
        assert stats["time"] == FOUNDED + 40.0

    asyncio.run(check())


def test_refusals_say_the_time_too() -> None:
    async def check() -> None:
        headers, refusal = await Coordinator().get("/nowhere")
        assert refusal["error"]["code"]
        assert TIME_HEADER.lower().encode() in headers

    asyncio.run(check())
