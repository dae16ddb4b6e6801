"""The network between nodes and coordinators: messages are late, lost, doubled, overtaken, or cannot pass at all.

A message is the body that would go over HTTP. The node's client is the real one, which repeats calls and finds other
coordinators; only how it sends is replaced. A call ends for its node when the answer comes, when the connection breaks,
or when its time is over, whichever is first.
"""

from __future__ import annotations

import io
import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from drumlin.fetch import Transfer
from drumlin.model import FailureKind
from drumlin.node.calling.client import CoordinatorClient, _Call
from drumlin.sim.machines.loop import VirtualLoop

ENDPOINT = "unix:"
"""The addresses of coordinators begin so. Messages to a Unix socket are not compressed, which would cost time."""
DOUBLES_LATE, LATE_S_MEAN = 0.3, 15.0
"""Some messages that come twice were kept somewhere on the way: a process may be gone by then that sent them."""
WAY_LEAST_SHARE, WAY_MOST_TIMES = 0.2, 50.0


class Caller(Protocol):
    """A node, as far as the network knows it."""

    name: str
    incarnation: int
    lag_s: float
    mute: frozenset[int]
    """Coordinators that its messages do not reach."""
    deaf: frozenset[int]
    """Coordinators whose answers do not reach it."""

    def deliver(self, incarnation: int, act: Callable[..., object], *arguments: Any) -> None: ...


class Exchange:
    """One call on its way to a coordinator and back."""

    __slots__ = ("call", "caller", "client", "doubled", "incarnation", "over", "place", "sender", "started", "timeouts")

    def __init__(self, client: SimClient, caller: Caller, call: _Call, place: int, started: float) -> None:
        self.client = client
        self.caller = caller
        self.sender = caller.name
        """Who calls. The caller's machine may have a node of another name by the time the call is looked at."""
        self.incarnation = caller.incarnation
        self.call = call
        self.place = place
        self.started = started
        self.over = False
        """Whether the node waits no more."""
        self.doubled = False
        """Whether the network has made two of it. The second one is read however late it comes."""
        self.timeouts: Timeouts | None = None
        """What would end it, once it is sent."""

    def end(self, transfer: Transfer) -> None:
        """The call has come back to the node, or not."""
        if not self.over:
            self.over = True
            if self.timeouts is not None:
                self.timeouts.forget(self)
            transfer.started = self.started
            self.client.ended(self.call, transfer, self.place)

    def fail(self, kind: FailureKind, error: str) -> None:
        transfer = Transfer(None)
        transfer.failure, transfer.error = kind, error
        self.end(transfer)


class Server(Protocol):
    """A coordinator, as far as the network knows it."""

    alive: bool

    def receive(self, exchange: Exchange) -> None: ...


class Timeouts:
    """Calls that may last equally long, in the order in which their time is over. Nearly all end long before. They are
    forgotten at once, since their memory is then still in the processor's cache and is used again; and only the time of
    the first is planned as an event."""

    def __init__(self, loop: VirtualLoop, timeout_s: float) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._waiting: OrderedDict[Exchange, float] = OrderedDict()
        self._planned = False

    def add(self, exchange: Exchange) -> None:
        exchange.timeouts = self
        self._waiting[exchange] = self._loop.now + self._timeout_s
        if not self._planned:
            self._plan()

    def forget(self, exchange: Exchange) -> None:
        """The call has ended."""
        self._waiting.pop(exchange, None)

    def _plan(self) -> None:
        first = next(iter(self._waiting.values()), None)
        self._planned = first is not None
        if first is not None:
            self._loop.at(first, self._ring)

    def _ring(self) -> None:
        while self._waiting:
            exchange, over_at = next(iter(self._waiting.items()))
            if over_at > self._loop.now:
                break
            del self._waiting[exchange]
            exchange.caller.deliver(exchange.incarnation, exchange.fail, FailureKind.TIMEOUT, "made up: no answer")
        self._plan()


class Network:
    """Carries messages. Its troubles are set by faults."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, way_s: float) -> None:
        """A message takes a fifth of `way_s` one way and, on average, `way_s` more, where nothing is in its way."""
        self._loop = loop
        self._chance = chance
        self._mean_s = way_s
        self.servers: list[Server] = []
        self.loss = self.duplication = self.jitter_s = 0.0
        self.messages = self.bytes = 0
        self._timeouts: dict[float, Timeouts] = {}

    def _way_s(self, caller: Caller) -> float:
        mean_s = self._mean_s
        drawn = self._chance.expovariate(1.0 / (mean_s + self.jitter_s))
        return WAY_LEAST_SHARE * mean_s + caller.lag_s + min(drawn, WAY_MOST_TIMES * mean_s + 5.0 * self.jitter_s)

    def send(self, exchange: Exchange) -> None:
        """Take a call to its coordinator."""
        caller, place = exchange.caller, exchange.place
        self.messages += 1
        self.bytes += len(exchange.call.body)
        loop, way_s = self._loop, self._way_s(caller)
        timeout_s = exchange.call.timeout_s
        if timeout_s not in self._timeouts:
            self._timeouts[timeout_s] = Timeouts(loop, timeout_s)
        self._timeouts[timeout_s].add(exchange)
        if place in caller.mute or (self.loss and self._chance.random() < self.loss):
            return
        loop.at(loop.now + way_s, self._arrive, exchange)
        if self.duplication and self._chance.random() < self.duplication:
            exchange.doubled = True
            late = self._chance.random() < DOUBLES_LATE
            late_s = self._chance.expovariate(1.0 / LATE_S_MEAN) if late else self._way_s(caller)
            loop.at(loop.now + way_s + late_s, self._arrive, exchange)

    def _arrive(self, exchange: Exchange) -> None:
        server = self.servers[exchange.place]
        if server.alive:
            server.receive(exchange)
        else:
            self.break_off(exchange, FailureKind.CONNECT)

    def answer(self, exchange: Exchange, status: int, header_lines: list[bytes], body: bytes) -> None:
        """Take an answer back to its node."""
        caller = exchange.caller
        self.messages += 1
        self.bytes += len(body)
        if exchange.place in caller.deaf or (self.loss and self._chance.random() < self.loss):
            return
        transfer = Transfer(None)
        transfer.status, transfer.header_lines, transfer.body = status, header_lines, io.BytesIO(body)
        self._back(exchange, exchange.end, transfer)

    def break_off(self, exchange: Exchange, kind: FailureKind) -> None:
        """The coordinator's machine says that nobody listens, or that whoever did is gone."""
        if exchange.place not in exchange.caller.deaf:
            self._back(exchange, exchange.fail, kind, "made up: nobody listens")

    def _back(self, exchange: Exchange, act: Callable[..., None], *arguments: Any) -> None:
        when = self._loop.now + self._way_s(exchange.caller)
        self._loop.at(when, exchange.caller.deliver, exchange.incarnation, act, *arguments)


class SimClient(CoordinatorClient):
    """The node's client, which sends through the simulated network."""

    def __init__(self, caller: Caller, network: Network, **more: Any) -> None:
        super().__init__(**more)
        self._caller = caller
        self._network = network
        self._places = [int(endpoint.removeprefix(ENDPOINT)) for endpoint in self._coordinators.endpoints]
        """The numbers of the coordinators, in the order in which this node knows them."""

    def _send(self, call: _Call) -> None:
        server = self._places[self._coordinators.current]
        self._network.send(Exchange(self, self._caller, call, server, self._clocks.boot()))

    def ended(self, call: _Call, transfer: Transfer, server: int) -> None:
        """A call to a coordinator has ended."""
        self._ended(call, transfer, self._places.index(server))
