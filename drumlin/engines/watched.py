"""How long the calls to an engine take, seen from the coordinator that makes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from drumlin.engines.base import Engine
from drumlin.metrics.counting import Histogram
from drumlin.metrics.registry import ENGINE_BUCKETS_S

FRONTIER_CALLS = (
    *("add_all", "lease", "extend_all", "settle_all", "preview_all", "expire_all"),
    *("stats_all", "get_entries", "put_entries", "check"),
)
CONTENT_CALLS = ("known", "record")
"""The calls that a crawl makes all the time; the others are made by people, or once."""

Call = Callable[..., Awaitable[Any]]


class EngineCalls:
    """Measures the calls to one engine, by taking the place of its methods. `clock` counts seconds from any moment."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seconds = {name: Histogram(ENGINE_BUCKETS_S) for name in (*FRONTIER_CALLS, *CONTENT_CALLS)}
        self.leases_expired = 0
        for name in FRONTIER_CALLS:
            setattr(engine, name, self._measured(name, getattr(engine, name)))
        for name in CONTENT_CALLS:
            setattr(engine.contents, name, self._measured(name, getattr(engine.contents, name)))

    def _measured(self, name: str, call: Call) -> Call:
        clock, seconds = self._clock, self.seconds[name]

        async def measured(*arguments: Any, **more: Any) -> Any:
            began = clock()
            try:
                answer = await call(*arguments, **more)
            finally:
                seconds.observe(clock() - began)
            if name == "expire_all":
                self.leases_expired += len(answer)
            return answer

        return measured
