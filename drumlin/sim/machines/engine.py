"""The engine as a coordinator reaches it: the memory engine, a network away, on servers that can fail.

A call takes a moment, in which other coordinators' calls may come first, and in which the coordinator may be killed or
frozen. While a server fails over, calls to its shards fail; those under way at that moment may have been done or not,
and nobody is told which. What was acknowledged is kept. A coordinator can be cut off from servers that others reach,
in one direction too: then its calls are not done, or are done and it never hears of it. A call about several shards
reaches each server by itself, so a part of it may be done and another part not (`spreading`). The small tables, claims
and the time are on one server, so the others may fail while they go on.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import Cause, EngineError
from drumlin.sim.machines.loop import Pause, VirtualLoop
from drumlin.sim.machines.spreading import SPREAD, Places, Spread

CALL_S_MEAN = 0.001
CALL_S_MAX = 0.05
SLOWNESS_VARIES = (0.5, 1.5)
UNHEARD = 0.5
"""The share of the answers that do not reach a coordinator that is deaf to a server."""
NO_ANSWER_S = (0.5, 5.0)
"""After how long a call that is not answered has failed. The client for Redis waits for as long at most."""
OF_ONE_SHARD = frozenset(
    {"lease", "visit", "forget", "strike", "story", "host_note", "host_state", "count", "set_delay", "hurry"}
)
ROOT = 0
"""The server that has what belongs to no shard."""
OF_THE_ROOT = frozenset(
    {"get_meta", "put_meta", "put_meta_if_absent", "put_entries", "get_entries", "last_entries", "get_entry"}
    | {"delete_entries", "claim", "keep_time"}
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
        self.down: frozenset[int] = frozenset()
        """Servers that do not answer at the moment."""
        self.slow_s = 0.0
        """How long every call takes on average while servers are slow."""
        self.count = servers
        self.watcher = watcher
        self.calls = 0
        self.places = Places(self.memory, servers)

    def concerns(self, name: str, arguments: tuple[Any, ...], servers: Collection[int]) -> bool:
        """Whether a call needs one of these servers. A call about all shards needs all servers."""
        if name in OF_ONE_SHARD:
            return self.places.of_shard(arguments[0]) in servers
        return ROOT in servers if name in OF_THE_ROOT else bool(servers)


class EngineLink:
    """The network between one coordinator's machine and the servers."""

    __slots__ = ("deaf", "mute")

    def __init__(self) -> None:
        self.mute: frozenset[int] = frozenset()
        """Servers that its calls do not reach."""
        self.deaf: frozenset[int] = frozenset()
        """Servers of whose answers many do not reach it."""


class Process(Protocol):
    """The process that calls the engine."""

    alive: bool
    frozen: bool

    async def hold(self) -> None: ...


class _Asked(NamedTuple):
    """A call of the engine: what does it, who hears of it, and what is asked."""

    done: Callable[..., Awaitable[Any]]
    heard: Listener | None
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]


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
        heard, link, spread = servers.watcher.listener(name), self._link, SPREAD.get(name)

        async def call(*arguments: Any, **options: Any) -> Any:
            if not process.alive or process.frozen:
                await process.hold()
            servers.calls += 1
            waits = bool(servers.slow_s or (suspends and chance() < suspends))
            asked = _Asked(done, heard, arguments, options)
            if spread is not None and (waits or servers.down or link.mute or link.deaf):
                answer = await self._in_parts(spread, asked, waits=waits)
            else:
                answer = await self._whole(name, asked, waits=waits)
            if suspends and chance() < suspends:
                await self._wait()
                if servers.down and servers.concerns(name, arguments, servers.down):
                    # It is done, but the answer is lost with the server that had it.
                    raise EngineError("A server of the engine failed over.", "Wait.", code=Cause.UNCONFIRMED)
            return answer

        return call

    async def _whole(self, name: str, asked: _Asked, *, waits: bool) -> Any:
        """A call that is one request to one server, or that changes nothing; or any call while nothing is wrong."""
        servers, link, arguments = self._servers, self._link, asked.arguments
        if waits:
            await self._wait()
        if link.mute and servers.concerns(name, arguments, link.mute):
            await self._wait_in_vain()
            if servers.concerns(name, arguments, link.mute):
                raise _unreachable()
        if servers.down and servers.concerns(name, arguments, servers.down):
            raise _unreachable()
        answer = await asked.done(*arguments, **asked.options)
        if asked.heard is not None:
            asked.heard(arguments, answer)
        if link.deaf and servers.concerns(name, arguments, link.deaf) and self._chance.random() < UNHEARD:
            await self._wait_in_vain()
            if servers.concerns(name, arguments, link.deaf):
                raise _unanswered()
        return answer

    async def _in_parts(self, spread: Spread, asked: _Asked, *, waits: bool) -> Any:
        """A call that is a request to each of several servers, all at the same time. Some of them may be done and
        others not, and the coordinator is not told which."""
        servers, link, memory = self._servers, self._link, self._servers.memory
        parts = spread.parted(servers.places, asked.arguments)
        ways = sorted((self._way_s() if waits else 0.0, server) for server in parts)
        answers: dict[int, Any] = {}
        lacking, passed_s = list[int](), 0.0

        async def reach(server: int) -> None:
            if server in link.mute or server in servers.down:
                lacking.append(server)
                return
            part, options = parts[server], asked.options
            doing = asked.done(*part, **options) if spread.done is None else spread.done(memory, *part, **options)
            answers[server] = await doing
            if asked.heard is not None:
                asked.heard(part, answers[server])

        for way_s, server in ways:
            if way_s > passed_s:
                await self._sleep(way_s - passed_s)
                passed_s = way_s
            await reach(server)
        unheard = [server for server in answers if server in link.deaf and self._chance.random() < UNHEARD]
        if unheard or any(server in link.mute for server in lacking):
            await self._wait_in_vain()
            again, lacking = lacking, []
            for server in again:
                await reach(server)
        if lacking:
            raise _unreachable()
        if any(server in link.deaf for server in unheard):
            raise _unanswered()
        return spread.joined(servers.places, asked.arguments, answers)

    def _way_s(self) -> float:
        """After how long a request is done."""
        slow_s = self._servers.slow_s and self._servers.slow_s * self._chance.uniform(*SLOWNESS_VARIES)
        return slow_s + min(CALL_S_MAX, self._chance.expovariate(1.0 / CALL_S_MEAN))

    async def _wait(self) -> None:
        await self._sleep(self._way_s())

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


def _unreachable() -> EngineError:
    return EngineError("A server of the engine does not answer.", "Wait.", code=Cause.UNREACHABLE)


def _unanswered() -> EngineError:
    """It is done, but the answer did not come."""
    return EngineError("A server of the engine did not answer.", "Wait.", code=Cause.UNCONFIRMED)


class _Contents:
    """`drumlin.engines.base.Contents` of the same engine."""

    def __init__(self, wire: EngineWire) -> None:
        inner = wire._servers.memory.contents
        self.known = wire.call_of("contents.known", inner.known)
        self.record = wire.call_of("contents.record", inner.record)
        self.adopt = wire.call_of("contents.adopt", inner.adopt)
