"""The engine as a coordinator reaches it: the memory engine, a network away, on servers that can fail.

A call takes a moment, in which other coordinators' calls may come first, and in which the coordinator may be killed or
frozen. While a server fails over, calls to its shards fail; those under way at that moment may have been done or not,
and nobody is told which. What was acknowledged is kept.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import Cause, EngineError
from drumlin.sim.machines.loop import VirtualLoop

CALL_S_MEAN = 0.001
CALL_S_MAX = 0.05
OF_ONE_SHARD = frozenset(
    {"lease", "visit", "forget", "strike", "story", "host_note", "host_state", "count", "set_delay", "hurry"}
)


class Watcher(Protocol):
    """Hears of every call of the engine that was done: its name, its arguments and its answer."""

    def heard(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any], answer: Any) -> None: ...


class EngineServers:
    """The state that all coordinators share, and the troubles of the servers that keep it."""

    def __init__(self, loop: VirtualLoop, shards: int, servers: int, watcher: Watcher) -> None:
        self.memory = MemoryEngine(shards)
        self.loop = loop
        self.down: set[int] = set()
        """Servers that do not answer at the moment."""
        self.count = servers
        self.watcher = watcher
        self.calls = 0

    def fails(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """Whether a call needs a server that does not answer. A call about all shards needs all servers."""
        if not self.down:
            return False
        return arguments[0] % self.count in self.down if name in OF_ONE_SHARD else True


class Process(Protocol):
    """The process that calls the engine."""

    alive: bool
    frozen: bool

    async def hold(self) -> None: ...


class EngineWire:
    """`drumlin.engines.base.Engine` for one coordinator. With `suspends` as the chance of it, a call lets others come
    first; without, it is done at once, which is cheaper."""

    shared = True

    def __init__(self, servers: EngineServers, process: Process, chance: random.Random, suspends: float) -> None:
        self._servers = servers
        self._process = process
        self._chance = chance
        self._suspends = suspends
        self.shard_count = servers.memory.shard_count
        self.shard_of = servers.memory.shard_of
        self.contents = _Contents(self)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call = self.call_of(name, getattr(self._servers.memory, name))
        setattr(self, name, call)
        return call

    def call_of(self, name: str, done: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The call of this name, with what can happen to it."""
        servers, process, chance, suspends = self._servers, self._process, self._chance.random, self._suspends
        heard = servers.watcher.heard

        async def call(*arguments: Any, **options: Any) -> Any:
            if not process.alive or process.frozen:
                await process.hold()
            servers.calls += 1
            if suspends and chance() < suspends:
                await self._wait()
            if servers.down and servers.fails(name, arguments):
                raise EngineError("A server of the engine does not answer.", "Wait.", code=Cause.UNREACHABLE)
            answer = await done(*arguments, **options)
            heard(name, arguments, options, answer)
            if suspends and chance() < suspends:
                await self._wait()
                if servers.down and servers.fails(name, arguments):
                    # It is done, but the answer is lost with the server that had it.
                    raise EngineError("A server of the engine failed over.", "Wait.", code=Cause.UNCONFIRMED)
            return answer

        return call

    async def _wait(self) -> None:
        await asyncio.sleep(min(CALL_S_MAX, self._chance.expovariate(1.0 / CALL_S_MEAN)))
        process = self._process
        if not process.alive or process.frozen:
            await process.hold()


class _Contents:
    """`drumlin.engines.base.Contents` of the same engine."""

    def __init__(self, wire: EngineWire) -> None:
        inner = wire._servers.memory.contents
        self.known = wire.call_of("contents.known", inner.known)
        self.record = wire.call_of("contents.record", inner.record)
        self.adopt = wire.call_of("contents.adopt", inner.adopt)
