"""A simulated coordinator: the real calls of nodes over the real dispatcher, and the ticks of `drumlin.serving`.

It can be killed, frozen and started again, and its calendar can be stepped. A process that is killed does nothing more,
not even what it would do on its way out, so its tasks are kept and never go on.
"""

from __future__ import annotations

import asyncio
import functools
import math
import random
from collections.abc import Callable, Coroutine, Generator
from typing import Any, cast

import msgspec

from drumlin.access.audit import AuditLog
from drumlin.access.tokens import SECRET_BYTES, Identity, OpenAccess, Role, crawl_secret
from drumlin.api.calls.nodes import NodeCalls
from drumlin.api.gate import Gate, Origin
from drumlin.api.intake.workers import Intake
from drumlin.api.messages.people import LeaveQuery
from drumlin.api.routing import Call
from drumlin.config import CrawlConfig
from drumlin.coordinator.breathing import LIGHT_WEIGHT_REMOTE, LoopLanes
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.errors import DrumlinError
from drumlin.http.refusal import Refused
from drumlin.model import FailureKind
from drumlin.protocol import (
    Accepted,
    Failure,
    Heartbeat,
    KnownRequest,
    Register,
    Results,
    WorkRequest,
    paths,
)
from drumlin.sim.machines.calling import Exchange, Network
from drumlin.sim.machines.clocks import DRIFT_MAX, MachineClock
from drumlin.sim.machines.engine import EngineLink, EngineServers, EngineWire
from drumlin.sim.machines.loop import Pause, VirtualLoop

TICK_S = 1.0
START_TRIES_S = 1.0
ENGINE_RETRY_S = 1.0
SHARDS_ASKED_MAX = 3
IDENTITIES_MAX = 20_000
_KINDS: dict[str, type[Any]] = {
    "register": Register,
    "request": WorkRequest,
    "known": KnownRequest,
    "results": Results,
    "heartbeat": Heartbeat,
    "failed": Failure,
}
_DECODERS = {name: msgspec.msgpack.Decoder(kind).decode for name, kind in _KINDS.items()}
_encode = msgspec.msgpack.Encoder().encode
_TIME_HEADER = paths.TIME_HEADER.encode()


@functools.lru_cache(IDENTITIES_MAX)
def _identity(node: str) -> Identity:
    return Identity(Role.NODE, node)


class SimCall(Call):
    """A call without HTTP around it."""

    __slots__ = ("_node",)

    def __init__(self, node: str, exchange: Exchange, now: float, time: EngineTime) -> None:
        self._node = node
        self.now = now
        self.headers = {}
        self.address = ""
        self.calendar = time.calendar
        self.identity = _identity(node)
        self.gone = lambda: exchange.over and not exchange.doubled

    @property
    def node_id(self) -> str:
        return self._node

    async def check_awaited(self) -> None:
        # There is no socket to look at, so the event loop need not turn for it.
        self.refuse_given_up()


class Crawl(msgspec.Struct, frozen=True):
    """What a coordinator is started with."""

    config: CrawlConfig
    seeds: list[str]
    scope_seeds: list[str]
    heartbeat_s: float | None = None
    budgets: dict[str, int] = {}
    """How many pages people want at most, of some hosts."""


class SimCoordinator:
    """One machine with a coordinator on it."""

    def __init__(
        self,
        loop: VirtualLoop,
        network: Network,
        servers: EngineServers,
        place: int,
        crawl: Crawl,
        suspends: float,
        seed: str,
        on_accepted: Callable[[str, Results, Accepted], None],
    ) -> None:
        self.loop = loop
        self.place = place
        self.crawl = crawl
        self.alive = self.frozen = False
        self.dispatcher: Dispatcher | None = None
        self.chance = random.Random(seed)
        self.clock = MachineClock(loop, self.chance.uniform(1e3, 1e6), 1.0 + self.chance.uniform(-1.0, 1.0) * DRIFT_MAX)
        self.link = EngineLink()
        self._network = network
        self._servers = servers
        self._suspends = suspends
        self.on_accepted = on_accepted
        self._boots = 0
        self._process: _Process | None = None
        self.dead_tasks: list[asyncio.Task[None]] = []
        """Tasks of processes that were killed; they are kept so that nothing ends them."""

    def start(self) -> None:
        if not self.alive:
            self.alive, self.frozen = True, False
            self._boots += 1
            self._process = _Process(self, self._servers, self._boots, self._suspends)
            self._process.begin()

    def kill(self) -> None:
        if self.alive and self._process is not None:
            self.alive = self.frozen = False
            self._process.die()
            self.dispatcher = None

    def freeze(self) -> None:
        if self.alive and self._process is not None:
            self.frozen = self._process.frozen = True

    def thaw(self) -> None:
        if self.frozen and self._process is not None:
            self.frozen = False
            self._process.thaw()

    @property
    def backlog(self) -> int:
        """How many batches of results wait to be settled."""
        return self._process.backlog if self._process is not None else 0

    def receive(self, exchange: Exchange) -> None:
        if self._process is not None:
            self._process.receive(exchange)

    def answer(self, exchange: Exchange, status: int, lines: list[bytes], body: bytes) -> None:
        self._network.answer(exchange, status, lines, body)

    def break_off(self, exchange: Exchange) -> None:
        self._network.break_off(exchange, FailureKind.RESET)


class _Process:
    """One process of a coordinator, from its start to its death."""

    def __init__(self, machine: SimCoordinator, servers: EngineServers, boot: int, suspends: float) -> None:
        self.machine = machine
        self.alive = True
        self.frozen = False
        self._thawed: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[Exchange, None] = {}
        self._deferred: list[Exchange] = []
        self.wire = cast(Any, EngineWire(servers, machine.link, self, machine.chance, suspends))
        self._calls: NodeCalls | None = None
        self._name = f"c{machine.place}-{boot}"
        self._elapsed_s = 0.0
        self._ticked = 0.0

    # Its life

    async def hold(self) -> None:
        """Wait until the process goes on, which a dead one never does."""
        while True:
            if self.machine.loop.over:
                # Python closes what was left waiting. Nothing more may happen on the way out.
                raise GeneratorExit
            if not self.alive:
                await self.machine.loop.create_future()
            if not self.frozen:
                return
            if self._thawed is None:
                self._thawed = self.machine.loop.create_future()
            await self._thawed

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.hold()

    def begin(self) -> None:
        self._spawn(self._run())

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as far as it goes without waiting. If it waits for time alone, it goes on by an event. Only
        if it waits for something else, its rest becomes a task, which costs more."""
        loop = self.machine.loop
        try:
            waits_for = coroutine.send(None)
        except StopIteration:
            return
        if isinstance(waits_for, Pause):
            loop.at(loop.now + waits_for.seconds, self._spawn, coroutine)
            return
        task = loop.create_task(_rest(coroutine, waits_for))
        if not self.alive:
            self.machine.dead_tasks.append(task)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None and self.alive:
            self.machine.loop.call_exception_handler({"exception": failure})

    def die(self) -> None:
        self.alive = False
        for exchange in [*self._open, *self._deferred]:
            self.machine.break_off(exchange)
        self.machine.dead_tasks += self._tasks

    def thaw(self) -> None:
        self.frozen = False
        if self._thawed is not None:
            self._thawed.set_result(None)
            self._thawed = None
        deferred, self._deferred = self._deferred, []
        for exchange in deferred:
            self.receive(exchange)

    async def _run(self) -> None:
        """Start, then tick for ever; `drumlin.serving.service` does the same with a server around it."""
        machine = self.machine
        self.time = EngineTime(self.wire, monotonic=machine.clock.boot, wall=machine.clock.wall, sleep=self._sleep)
        while True:
            try:
                await self._open_crawl()
                break
            except DrumlinError:
                await self._sleep(START_TRIES_S)
        self._spawn(self.time._tell_always())
        while True:
            await self._tick()
            await self._sleep(TICK_S)

    async def _open_crawl(self) -> None:
        machine, crawl = self.machine, self.machine.crawl
        now = await self.time.now()
        secret = await crawl_secret(self.wire, machine.chance.randbytes(SECRET_BYTES))
        dispatcher = Dispatcher(
            self.wire,
            crawl.config,
            crawl.scope_seeds,
            chance=machine.chance,
            name=self._name,
            shards_asked_max=SHARDS_ASKED_MAX,
            ends=False,
            heartbeat_s=crawl.heartbeat_s,
        )
        dispatcher.lanes = LoopLanes(LIGHT_WEIGHT_REMOTE)
        await dispatcher.open()
        if machine.place == 0:
            for host, pages in crawl.budgets.items():
                await dispatcher.orders.limit(host, pages)
            await dispatcher.seed(crawl.seeds, now)
        gate = Gate(dispatcher, AuditLog(self.wire))
        self._gate = gate
        self._calls = NodeCalls(
            dispatcher,
            OpenAccess(secret),
            gate,
            Intake(dispatcher, None, engine_time=self.time),
            engine_time=self.time,
            on_failure=lambda failure: None,
            store=None,
            files=None,
            endpoint="",
            bundle_quota_bytes=0,
        )
        machine.dispatcher = dispatcher

    async def _tick(self) -> None:
        dispatcher, calls = self.machine.dispatcher, self._calls
        if dispatcher is None or calls is None:
            return
        try:
            now = await self.time.now()
            spent_s, self._ticked = now - (self._ticked or now), now
            self._elapsed_s += spent_s
            await dispatcher.tick(now, self._elapsed_s)
            dispatcher.nodes.let_go(now)
            calls.work_may_have_come()
        except DrumlinError:
            # The next tick tries again; nodes go on meanwhile.
            return

    # Its calls

    @property
    def backlog(self) -> int:
        return len(self._calls._backlog) if self._calls is not None else 0

    def receive(self, exchange: Exchange) -> None:
        if self.frozen:
            self._deferred.append(exchange)
        elif self._calls is None:
            self.machine.break_off(exchange)
        else:
            self._open[exchange] = None
            self._spawn(self._serve(exchange, self._calls))

    async def _serve(self, exchange: Exchange, calls: NodeCalls) -> None:
        lines: list[bytes] = []
        try:
            answer = await self._answer(exchange, calls)
            status, body = 200, _encode(answer)
        except Refused as refused:
            status, body = refused.status, _encode(refused.document())
            lines = [b"Retry-After: %d\r\n" % math.ceil(refused.retry_after_s)] if refused.retry_after_s else []
        except DrumlinError as broken:
            status = 503
            body = _encode(Refused(503, broken.code, broken.message, broken.hint).document())
            lines = [b"Retry-After: %d\r\n" % ENGINE_RETRY_S]
        if self.frozen or not self.alive or self.machine.loop.over:
            await self.hold()
        self._open.pop(exchange, None)
        stamp = b"%b: %d\r\n" % (_TIME_HEADER, int(self.time.reading() * 1000))
        self.machine.answer(exchange, status, [b"HTTP/1.1 %d X\r\n" % status, stamp, *lines, b"\r\n"], body)

    async def _answer(self, exchange: Exchange, calls: NodeCalls) -> Any:
        message = exchange.call
        now = await self.time.now()
        call = SimCall(exchange.sender, exchange, now, self.time)
        await self._gate.admit(call.identity, now)
        try:
            if message.method == "DELETE":
                return await calls.leave(call, LeaveQuery(boot=int(message.path.rpartition("=")[2])))
            name = message.path.rpartition("/")[2]
            told = _DECODERS[name](message.body)
            answer = await getattr(calls, _METHODS[name])(call, told)
            if name == "results":
                self.machine.on_accepted(call.node_id, told, answer)
            return answer
        finally:
            if self.machine.dispatcher is not None and self.machine.dispatcher.misdeeds:
                await self._gate.account(call.identity, now, Origin("", now))


async def _rest(coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await _Rest(coroutine, waits_for)


class _Rest:
    """What is left of a coroutine that has begun to wait for something."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        coroutine, waits_for = self._coroutine, self._waits_for
        while True:
            try:
                if isinstance(waits_for, Pause):
                    yield from asyncio.sleep(waits_for.seconds).__await__()
                    heard = None
                else:
                    heard = yield waits_for
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as raised:
                step = functools.partial(coroutine.throw, raised)
            else:
                step = functools.partial(coroutine.send, heard)
            try:
                waits_for = step()
            except StopIteration:
                return


_METHODS = {name: "work" if name == "request" else name for name in _KINDS}
