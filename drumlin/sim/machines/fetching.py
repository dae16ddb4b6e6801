"""How a simulated node asks sites: connect, send, wait, receive, with the delays of its link and of the site.

What the real fetcher promises is kept here too: a request leaves at most once, and not after `send_by`, by the clock at
the moment at which its connection stands.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any, Protocol

from drumlin.contact.actions import FetchPage, FetchRobots
from drumlin.fetch import Transfer
from drumlin.model import FailureKind
from drumlin.node.calling.client import FOREVER
from drumlin.sim.machines.clocks import MachineClock
from drumlin.sim.machines.loop import VirtualLoop
from drumlin.sim.web import BUSY, Web, WebAnswer

SHARE_NEW_CONNECTIONS = 0.3
CONNECT_FAILS_S = (0.05, 3.0)
PAGE_S_VARIES = (0.7, 1.3)
"""By how much the time that a page takes differs from one page to the next."""


class Fetching(Protocol):
    """A node, as far as its fetcher knows it."""

    incarnation: int
    leaving: bool
    timeout_s: float
    chance: random.Random

    def deliver(self, incarnation: int, act: Callable[..., object], *arguments: Any) -> None: ...

    def deliver_quietly(self, incarnation: int, act: Callable[..., object], *arguments: Any) -> None: ...

    def sent(self, fetch: FetchPage | FetchRobots) -> None: ...

    def ended(self, fetch: FetchPage | FetchRobots, seconds: float, status: int) -> None: ...


class SimFetcher:
    """The wire to sites of one process of a node. `page_s` is how long its link takes for a page."""

    request_headers = b""
    absent_at = float("-inf")

    def __init__(self, node: Fetching, web: Web, loop: VirtualLoop, clock: MachineClock, page_s: float) -> None:
        self._node = node
        self._incarnation = node.incarnation
        self._web = web
        self._loop = loop
        self._clock = clock
        self._page_s = page_s
        self._timeout_s = node.timeout_s
        self._chance: random.Random = node.chance

    def count_beside(self, held_bytes: Callable[[], int]) -> None:
        """Bodies are not paused here: they take no memory."""

    def run_once(self, timeout_s: float) -> int:
        raise NotImplementedError("the simulation turns the node's loop")

    def start(
        self,
        url: str,
        on_done: Callable[[Transfer], None],
        context: Any = None,
        *,
        send_by: float = FOREVER,
        **more: Any,
    ) -> None:
        transfer = Transfer(None)
        transfer.url, transfer.context, transfer.on_done, transfer.send_by = url, context, on_done, send_by
        transfer.started = self._clock.boot()
        now = self._loop.now
        if not self._web.reachable(url, now):
            self._later(self._chance.uniform(*CONNECT_FAILS_S), self._fail, transfer, FailureKind.CONNECT)
        elif self._chance.random() < SHARE_NEW_CONNECTIONS:
            when = now + self._chance.uniform(0.0, self._web.connect_s_max)
            self._loop.at(when, self._node.deliver_quietly, self._incarnation, self._connected, transfer)
        else:
            self._connected(transfer)

    def _later(self, wait_s: float, act: Callable[..., None], transfer: Transfer, *arguments: Any) -> None:
        """Have a request end after a while. `act` is told how long it was under way by then: a node that is frozen
        hears of it later."""
        seconds = self._clock.boot() - transfer.started + wait_s
        self._loop.at(
            self._loop.now + wait_s, self._node.deliver, self._incarnation, act, transfer, seconds, *arguments
        )

    def _connected(self, transfer: Transfer) -> None:
        """The connection stands: the request leaves now, or never. A node that leaves no longer sees to its connections
        to sites; it only talks to coordinators."""
        if self._node.leaving:
            return
        boot = self._clock.boot()
        if boot >= transfer.send_by:
            transfer.too_late = True
            transfer.finished = boot
            transfer.on_done(transfer)
            return
        transfer.sends = 1
        self._node.sent(transfer.context)
        way_s = self._web.host_of(transfer.url).way_s * self._chance.random()
        self._loop.at(self._loop.now + way_s, self._reach, transfer, way_s)

    def _reach(self, transfer: Transfer, way_s: float) -> None:
        """The request reaches the host, whatever has become of the node meanwhile."""
        context = transfer.context
        attempt = context.task.attempts if isinstance(context, FetchPage) else 0
        answer = self._web.contact(transfer.url, attempt, self._loop.now)
        if answer.failure == FailureKind.TIMEOUT:
            self._later(self._timeout_s, self._fail, transfer, FailureKind.TIMEOUT)
        elif answer.failure:
            self._later(way_s, self._fail, transfer, FailureKind.RESET)
        else:
            body_s = self._page_s * self._chance.uniform(*PAGE_S_VARIES) if isinstance(context, FetchPage) else 0.0
            if answer.status in BUSY:
                body_s = 0.0
            whole_s = way_s + answer.thinking_s + body_s
            if whole_s > self._timeout_s:
                self._later(self._timeout_s, self._fail, transfer, FailureKind.TIMEOUT)
            else:
                self._later(whole_s, self._arrive, transfer, answer, body_s)

    def _arrive(self, transfer: Transfer, seconds: float, answer: WebAnswer, body_s: float) -> None:
        transfer.finished = self._clock.boot()
        transfer.first_byte = max(transfer.started, transfer.finished - body_s)
        transfer.status, transfer.header_lines = answer.status, answer.header_lines
        transfer.body = io.BytesIO(answer.body)
        transfer.ip, transfer.protocol = "192.0.2.1", "http/1.1"
        self._node.ended(transfer.context, seconds, answer.status)
        transfer.on_done(transfer)

    def _fail(self, transfer: Transfer, seconds: float, kind: FailureKind) -> None:
        transfer.failure, transfer.error = kind, f"made up: {kind}"
        transfer.first_byte = transfer.finished = self._clock.boot()
        self._node.ended(transfer.context, seconds, 0)
        transfer.on_done(transfer)
