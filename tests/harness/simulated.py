"""A node and a coordinator in one process on a clock that a test owns: a day passes in seconds.

The node is the real one (`Agent.run`), and so is the dispatcher; what is made up is the clock, the sites, and the wire
between the two. `Site` says what each request is answered with, by the time of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from drumlin.clock import Clocks
from drumlin.config import CrawlConfig
from drumlin.engines.blocking import drive
from drumlin.fetch import Transfer
from drumlin.model import HostState
from drumlin.node.calling.coordinator_time import CoordinatorTime
from drumlin.node.main import NodeOptions, make_pipeline, node_settings
from drumlin.protocol import Heartbeat, KnownRequest, Results, WorkRequest
from tests.harness.agents import open_agent
from tests.harness.dispatching import Driven, dispatcher

LATENCY_S = 0.05
TICK_S = 10.0
IDLE_S = 10.0
HEARTBEAT_S = 60.0
STEP_S_MAX = 60.0
BEGINNING = 1_700_000_000.0
RULES = b"User-agent: *\nAllow: /\n"


class Answer(msgspec.Struct):
    """What a request is answered with. With a `failure` nothing comes; `sent` is whether the request went out."""

    status: int = 200
    body: bytes = b"<p>A page.</p>"
    headers: dict[str, str] = {}
    failure: str = ""
    sent: bool = True


Site = Callable[[str, float], Answer]
"""What a URL is answered with, so many seconds after the beginning."""


class Simulation:
    """Stands in for the fetcher and for the client of an agent."""

    request_headers = b""
    cut_off = False
    cut_off_s = 0.0
    among_strangers = False

    def __init__(self, site: Site, seeds: list[str], ends_after_s: float, **config: Any) -> None:
        self.now = BEGINNING
        self.asked: list[tuple[float, str]] = []
        """Every request that a site has seen, or would have: when, and for what."""
        self.seen: list[tuple[float, int, int]] = []
        """What people were shown: when, hosts in back-off, dead URLs."""
        self.clocks = Clocks(lambda: self.now, lambda: self.now)
        self.time = CoordinatorTime(monotonic=self.clocks.boot, wall=self.clocks.wall)
        self.coordinator: Driven
        self._site = site
        self._seeds = seeds
        self._config = CrawlConfig(**({"delay_s": 1.0} | config))
        self._ends_at = BEGINNING + ends_after_s
        self._coming: list[tuple[float, Callable[[], None]]] = []
        self._replies: list[Callable[[], None]] = []
        self._tick_at = BEGINNING

    @property
    def elapsed_s(self) -> float:
        return self.now - BEGINNING

    def run(self, folder: Path) -> None:
        """Crawl until the crawl has ended, or time is up."""
        fields = {name: getattr(self._config, name) for name in self._config.__struct_fields__}
        self.coordinator = dispatcher(self._seeds, **fields)
        self.coordinator.register("n0", self.now)
        settings = node_settings(self._config, NodeOptions("n0", "unix:none", folder, 16, False), "n0")
        open_agent(folder, settings, self, make_pipeline(self._config, self._seeds), self.clocks).run()

    def host(self, name: str) -> HostState:
        engine = self.coordinator.made.engine
        state = drive(engine.host_state(engine.shard_of(name), name))
        assert state is not None
        return state

    # The fetcher

    def count_beside(self, held_bytes: Callable[[], int]) -> None:
        """No body is long enough here to be paused."""

    def start(self, url: str, on_done: Callable[[Transfer], None], context: Any = None, **more: Any) -> None:
        answer = self._site(url, self.elapsed_s)
        self.asked.append((self.elapsed_s, url))
        began = self.now

        def arrive() -> None:
            on_done(_transfer(answer, context, began, self.now))

        self._coming.append((self.now + LATENCY_S, arrive))

    def run_once(self, timeout_s: float) -> int:
        until = self.now + min(max(timeout_s, 0.001), STEP_S_MAX)
        if self._replies:
            replies, self._replies = self._replies, []
            for reply in replies:
                reply()
            return len(replies)
        self._coming.sort(key=lambda one: one[0])
        self.now = min(until, self._tick_at, self._coming[0][0] if self._coming else until)
        if self.now >= self._tick_at:
            self._tick_at = self.now + TICK_S
            self._tick()
        while self._coming and self._coming[0][0] <= self.now:
            self._coming.pop(0)[1]()
        return 0

    def _tick(self) -> None:
        totals = self.coordinator.tick(self.now)
        self.seen.append((self.elapsed_s, totals.hosts_in_backoff, totals.dead))
        if self.now >= self._ends_at:
            drive(self.coordinator.made.stop("time is up"))

    # The client

    def post(self, path: str, message: Any, reply: type, on_reply: Callable[[Any], None], **more: Any) -> None:
        answer = self._answer(message)
        self._replies.append(lambda: on_reply(answer))

    def _answer(self, message: Any) -> Any:
        if isinstance(message, WorkRequest):
            work = self.coordinator.work("n0", message, self.now)
            # A node asks several times a second; most of a day would go by with that.
            work.retry_after_s = max(work.retry_after_s, 0.0 if work.leases else IDLE_S)
            return work
        if isinstance(message, Results):
            return self.coordinator.results(message, self.now, "n0")
        if isinstance(message, KnownRequest):
            return self.coordinator.known(message)
        assert isinstance(message, Heartbeat)
        reply = self.coordinator.heartbeat("n0", message, self.now)
        reply.next_heartbeat = HEARTBEAT_S
        return reply

    def due(self) -> float:
        return float("inf")

    def repeat_failed(self) -> None: ...

    def renewed(self, token: str | None) -> None: ...


def _transfer(answer: Answer, context: Any, began: float, ended: float) -> Transfer:
    transfer = Transfer(None)
    transfer.context, transfer.started, transfer.first_byte, transfer.finished = context, began, ended, ended
    transfer.sends = int(answer.sent and not (answer.failure and answer.failure in ("dns", "connect", "tls")))
    if answer.failure:
        transfer.failure, transfer.error = answer.failure, f"made up: {answer.failure}"
        return transfer
    transfer.status = answer.status
    transfer.body.write(answer.body)
    fields = {"Content-Type": "text/html"} | answer.headers
    lines = [f"{name}: {value}\r\n" for name, value in fields.items()]
    transfer.header_lines = [line.encode() for line in [f"HTTP/1.1 {answer.status} X\r\n", *lines, "\r\n"]]
    return transfer
