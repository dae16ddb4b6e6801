"""The engine as a coordinator reaches it: the memory engine, a network away, on servers that can fail.

A call takes a moment, in which other coordinators' calls may come first, and in which the coordinator may be killed or
frozen. While a server fails over, calls to its shards fail; those under way at that moment may have been done or not,
and nobody is told which. What was acknowledged is kept. A coordinator can be cut off from servers that others reach,
in one direction too: then its calls are not done, or are done and it never hears of it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol

from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import Cause, EngineError
from drumlin.sim.machines.loop import Pause, VirtualLoop

CALL_S_MEAN = 0.001
CALL_S_MAX = 0.05
SLOWNESS_VARIES = (0.5, 1.5)
NO_ANSWER_S = (0.5, 5.0)
"""After how long a call that is not answered has failed. The client for Redis waits for as long at most."""
OF_ONE_SHARD = frozenset(
    {"lease", "visit", "forget", "strike", "story", "host_note", "host_state", "count", "set_delay", "hurry"}
)


Listener = Callable[[tuple[Any, ...], Any], None]
"""Hears of a call of the engine that was done: its arguments and its answer."""


class Watcher(Protocol):
    """Wants to hear of some calls of the engine."""

    def listener(self, name: str) -> Listener | None:
        """Who hears of the calls of this name; None if nobody does."""


class EngineServers:
    """The state that all coordinators share, and the troubles of the servers that keep it."""

    def __init__(self, loop: VirtualLoop, shards: int, servers: int, watcher: Watcher) -> None:
        self.memory = MemoryEngine(shards)
        self.loop = loop
        self.down: set[int] = set()
        """Servers that do not answer at the moment."""
        self.slow_s = 0.0
        """How long every call takes on average while servers are slow."""
        self.count = servers
        self.watcher = watcher
        self.calls = 0

    def concerns(self, name: str, arguments: tuple[Any, ...], servers: Collection[int]) -> bool:
        """Whether a call needs one of these servers. A call about all shards needs all servers."""
        return arguments[0] % self.count in servers if name in OF_ONE_SHARD else bool(servers)


class EngineLink:
    """The network between one coordinator's machine and the servers."""

    __slots__ = ("deaf", "mute")

    def __init__(self) -> None:
        self.mute: frozenset[int] = frozenset()
        """Servers that its calls do not reach."""
        self.deaf: frozenset[int] = frozenset()
        """Servers whose answers do not reach it."""


class Process(Protocol):
    """The process that calls the engine."""

    alive: bool
    frozen: bool

    async def hold(self) -> None: ...


class EngineWire:
    """`drumlin.engines.base.Engine` for one coordinator. With `suspends` as the chance of it, a call lets others come
    first; without, it is done at once, which is cheaper."""

    shared = True

    def __init__(
        self, servers: EngineServers, link: EngineLink, process: Process, chance: random.Random, suspends: float
    ) -> None:
        self._servers = servers
        self._link = link
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
        heard, link = servers.watcher.listener(name), self._link

        async def call(*arguments: Any, **options: Any) -> Any:
            if not process.alive or process.frozen:
                await process.hold()
            servers.calls += 1
            if servers.slow_s or (suspends and chance() < suspends):
                await self._wait()
            if link.mute and servers.concerns(name, arguments, link.mute):
                await self._wait_in_vain()
                if servers.concerns(name, arguments, link.mute):
                    raise EngineError("A server of the engine cannot be reached.", "Wait.", code=Cause.UNREACHABLE)
            if servers.down and servers.concerns(name, arguments, servers.down):
                raise EngineError("A server of the engine does not answer.", "Wait.", code=Cause.UNREACHABLE)
            answer = await done(*arguments, **options)
            if heard is not None:
                heard(arguments, answer)
            if link.deaf and servers.concerns(name, arguments, link.deaf):
                await self._wait_in_vain()
                if servers.concerns(name, arguments, link.deaf):
                    # It is done, but the answer did not come.
                    raise EngineError("A server of the engine did not answer.", "Wait.", code=Cause.UNCONFIRMED)
            if suspends and chance() < suspends:
                await self._wait()
                if servers.down and servers.concerns(name, arguments, servers.down):
                    # It is done, but the answer is lost with the server that had it.
                    raise EngineError("A server of the engine failed over.", "Wait.", code=Cause.UNCONFIRMED)
            return answer

        return call

    async def _wait(self) -> None:
        slow_s = self._servers.slow_s and self._servers.slow_s * self._chance.uniform(*SLOWNESS_VARIES)
        await self._sleep(slow_s + min(CALL_S_MAX, self._chance.expovariate(1.0 / CALL_S_MEAN)))

    async def _wait_in_vain(self) -> None:
        """Wait for an answer that does not come, unless the network is whole again by then."""
        await self._sleep(self._chance.uniform(*NO_ANSWER_S))

    async def _sleep(self, seconds: float) -> None:
        if self._servers.loop.over:
            # Python closes what was left waiting. Nothing more may happen on the way out.
            raise GeneratorExit
        await Pause(seconds)
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
