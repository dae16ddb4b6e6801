"""Simulated nodes for the load test: they send the same HTTP requests as real nodes, and fetch nothing.

Load comes in turns. In a turn, one idle node asks for work, renews part of its leases half-way, asks which contents are
known, and reports its pages with their links, which gives the leases back. Turns begin at the given pace, and each call
has a time when it is due, even if the calls before it were late. Between turns nodes are idle, but all of them send
heartbeats. Some vanish with their leases, come back, send what they had and register again.

Nodes are made of callbacks, not of coroutines: ten thousand tasks would use more CPU than the coordinators that are
measured.
"""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from ssl import SSLContext
from typing import Any, Protocol

import msgspec
import zstandard

from bench.load_client import Connection, connect
from bench.load_record import LostWork, Record
from bench.load_web import LoadWeb, Page, host_number, random_digests
from drumlin.access import signing
from drumlin.protocol import (
    MEDIA_TYPE,
    Accepted,
    Heartbeat,
    HeartbeatReply,
    HostReport,
    KnownRequest,
    Register,
    Registered,
    Results,
    WorkRequest,
    paths,
)

COMPRESS_BYTES_MIN = 1_000
HOSTS_PER_TURN_MAX = 100
RENEW_HOSTS_MAX = 5
"""How many leases a node renews half-way through a turn: those of its hosts with the longest queues."""
KNOWN_BEFORE_RESULTS_S = 0.5
NEXT_CONTACT_S = 1.0
CALL_S_MAX = 30.0
"""After how long a node gives up a call and tries another coordinator."""
RETRY_S = 0.2
RETRIES_AT_ONCE = 1
BUSY_S = 15.0
"""The shortest pause after a 503, as Retry-After says; the header itself is not read."""
CAPACITY_PAGES_PER_S = 10.0

PATHS = {"work": "work/request", "renew": "work/request", "known": "known", "results": "results"}
PATHS["heartbeat"] = "heartbeat"

_encode = msgspec.msgpack.Encoder().encode
_compress = zstandard.ZstdCompressor(level=1).compress


class WorkAssignment(msgspec.Struct):
    """What the generator reads of an assignment; the rest is skipped."""

    assignment_id: str
    url: str


class HeldLease(msgspec.Struct):
    lease_id: str
    host: str
    ttl_s: float
    assignments: list[WorkAssignment]


class GivenWork(msgspec.Struct):
    leases: list[HeldLease]
    retry_after_s: float = 0.0


_read_work = msgspec.msgpack.Decoder(GivenWork).decode
_read_accepted = msgspec.msgpack.Decoder(Accepted).decode
_read_beat = msgspec.msgpack.Decoder(HeartbeatReply).decode
_read_registered = msgspec.msgpack.Decoder(Registered).decode


class FleetSettings(msgspec.Struct, frozen=True):
    """How many nodes, and how they behave."""

    nodes: int
    batch_pages: int = 100
    fetch_s: float = 15.0
    flapping_share: float = 0.15
    up_s: float = 60.0
    down_s: float = 30.0
    registrations_per_s: float = 500.0
    asks_known: bool = True
    join_token: str = ""
    seed: int = 1


class Waiting(msgspec.Struct):
    """A call that is due. `body` is kept, so a repeated call is the same call."""

    kind: str
    due: float
    body: bytes | None = None
    tries: int = 0


class Surroundings(Protocol):
    """What a node needs from its fleet."""

    settings: FleetSettings
    endpoints: list[tuple[str, int]]
    web: LoadWeb
    tls: SSLContext | None
    record: Record
    lost_work: LostWork

    def at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call at a time of `time.perf_counter`."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside everything else."""

    def rest(self, node: SimulatedNode) -> None:
        """A node has nothing to do."""

    def learn_pages(self, pages: int) -> None:
        """A turn brought this many pages."""


class SimulatedNode:
    """One node: a connection, the leases it holds, and the calls that are due."""

    __slots__ = (
        "_beats",
        "_connecting",
        "_connection",
        "_digests",
        "_endpoint",
        "_fleet",
        "_flight",
        "_key",
        "_late",
        "_leases",
        "_life",
        "_pages",
        "_paused",
        "_recovering",
        "_requests",
        "_sent",
        "_token",
        "_total",
        "_turn_due",
        "_waiting",
        "idle",
        "name",
        "registered",
    )

    def __init__(self, fleet: Surroundings, number: int) -> None:
        self.name = f"load-{number:05}"
        self.registered = False
        self.idle = False
        """Whether it is in the fleet's line of nodes that wait for a turn."""
        self._fleet = fleet
        self._endpoint = number
        self._connection: Connection | None = None
        self._connecting = False
        self._waiting: deque[Waiting] = deque()
        self._paused: list[Waiting] = []
        self._flight: Waiting | None = None
        self._life = 0
        self._sent = 0.0
        self._beats = False
        self._token = ""
        self._key = b""
        self._requests = 0
        self._total = 0
        self._recovering = False
        self._late = False
        self._turn_due = 0.0
        self._leases: list[HeldLease] = []
        self._pages: list[Page] = []
        self._digests: list[str] = []

    # What happens to it

    def join(self, due: float) -> None:
        """Register. A node that comes back with results of its last life sends them first."""
        self._recovering = self._late = bool(self._pages)
        self._plan("register", due)

    def begin_turn(self, due: float) -> None:
        self._turn_due = due
        self._plan("work", due)

    def vanish(self) -> list[str]:
        """Die at once, as after kill -9 or when a cable is cut. Returns the hosts whose leases are lost."""
        self._life += 1
        self.registered = self._beats = False
        if self._leases:
            # The pace counts pages that are reported: other turns must make up for this one.
            self._fleet.learn_pages(0)
        self._waiting.clear()
        self._paused.clear()
        self._flight = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        return [lease.host for lease in self._leases]

    def unanswered(self, now: float) -> Iterator[tuple[str, float]]:
        calls = [*self._waiting, *self._paused, *([self._flight] if self._flight else [])]
        yield from ((call.kind, now - call.due) for call in calls if call.due < now)

    def check_time(self, now: float) -> None:
        """Give up a call that takes too long."""
        if self._flight is not None and self._connection is not None and now - self._sent > CALL_S_MAX:
            self._fleet.record.errors[f"{self._flight.kind}: no answer in {CALL_S_MAX:.0f} s"] += 1
            self._connection.abort()

    # Calls, one at a time

    def _plan(self, kind: str, due: float) -> None:
        self._fleet.at(due, self._came_due, kind, due, self._life)

    def _came_due(self, kind: str, due: float, life: int) -> None:
        if life == self._life:
            self._waiting.append(Waiting(kind, due))
            self._send_next()

    def _send_next(self) -> None:
        if self._flight is not None or not self._waiting:
            return
        if self._connection is None:
            self._connect()
            return
        self._flight = call = self._waiting.popleft()
        if call.body is None:
            call.body = self._body(call.kind)
        self._sent = time.perf_counter()
        self._connection.send(self._request(call.kind, call.body), self._replied)

    def _connect(self) -> None:
        if not self._connecting:
            self._connecting = True
            self._fleet.start(self._open(self._life))

    async def _open(self, life: int) -> None:
        try:
            host, port = self._fleet.endpoints[self._endpoint % len(self._fleet.endpoints)]
            connection = await connect(host, port, self._lost, self._fleet.tls)
        except OSError as refused:
            self._connecting = False
            self._fleet.record.errors[f"connect: {type(refused).__name__}"] += 1
            self._endpoint += 1
            self._fleet.at(time.perf_counter() + RETRY_S * (1 + random.random()), self._send_next)
            return
        self._connecting = False
        if life != self._life:
            connection.abort()
            self._send_next()
            return
        self._connection = connection
        self._send_next()

    def _lost(self, connection: Connection) -> None:
        """The connection ended: the call that was under way is sent again to another coordinator, at first at once."""
        if connection is not self._connection:
            return
        self._connection = None
        call, self._flight = self._flight, None
        if call is None:
            self._fleet.record.calls["idle connections closed"] += 1
            return
        self._fleet.record.errors[f"{call.kind}: connection lost"] += 1
        self._endpoint += 1
        call.tries += 1
        self._again(call, 0.0 if call.tries <= RETRIES_AT_ONCE else RETRY_S * (1 + random.random()))

    def _again(self, call: Waiting, pause_s: float) -> None:
        """Send a call again after a pause. Other calls may be sent meanwhile."""
        self._paused.append(call)
        self._fleet.at(time.perf_counter() + pause_s, self._resume, call, self._life)

    def _resume(self, call: Waiting, life: int) -> None:
        if life == self._life:
            self._paused.remove(call)
            self._waiting.appendleft(call)
            self._send_next()

    def _request(self, kind: str, body: bytes) -> bytes:
        path = f"/api/v1/nodes/{'register' if kind == 'register' else f'{self.name}/{PATHS[kind]}'}"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {MEDIA_TYPE}\r\nAccept: {MEDIA_TYPE}\r\n"
        token = self._fleet.settings.join_token if kind == "register" else self._token
        if token:
            head += f"Authorization: Bearer {token}\r\n"
        if len(body) >= COMPRESS_BYTES_MIN:
            body = _compress(body)
            head += "Content-Encoding: zstd\r\n"
        if kind == "results" and self._key:
            signature = signing.sign(self._key, "POST", path, body, time.time(), os.urandom(16))
            head += f"{paths.SIGNATURE_HEADER}: {signature}\r\n"
        self._fleet.record.bytes_sent[kind] += len(body)
        return b"%sContent-Length: %d\r\n\r\n%s" % (head.encode(), len(body), body)

    def _replied(self, status: int, body: bytes) -> None:
        call, self._flight = self._flight, None
        if call is None:
            return
        if status == 200:
            self._fleet.record.answered(call.kind, time.perf_counter() - call.due)
            self._took(call, body)
        else:
            self._refused(call, status)
        self._send_next()

    def _refused(self, call: Waiting, status: int) -> None:
        self._fleet.record.errors[f"{call.kind}: status {status}"] += 1
        if status == 503:
            self._again(call, BUSY_S * (1 + random.random()))
        elif status >= 500:
            self._endpoint += 1
            self._again(call, RETRY_S * (1 + random.random()))
        elif call.kind in ("work", "renew", "known", "results"):
            self._end_turn()

    # What it says

    def _body(self, kind: str) -> bytes:
        if kind == "heartbeat":
            load = float(len(self._pages))
            return _encode(Heartbeat("active", load, self._total, hosts=len(self._leases), unstarted=len(self._pages)))
        if kind == "work":
            return _encode(self._work_request(self._fleet.settings.batch_pages, HOSTS_PER_TURN_MAX, []))
        if kind == "renew":
            longest = sorted(self._leases, key=lambda lease: len(lease.assignments))[-RENEW_HOSTS_MAX:]
            return _encode(self._work_request(0, 0, [(lease.lease_id, lease.host) for lease in longest]))
        self._digests = self._digests or random_digests(len(self._pages))
        if kind == "known":
            return _encode(KnownRequest(list(zip(self._domains(), self._digests, strict=True))))
        if kind == "results":
            return _encode(self._results())
        # A node that comes back proves that it is its own successor, as drumlin's nodes do.
        who = Register(
            CAPACITY_PAGES_PER_S, self.name, recovering=self._recovering, instance=self.name, boot=self._life
        )
        return _encode(who)

    def _work_request(self, tasks: int, hosts: int, renew: list[tuple[str, str]]) -> WorkRequest:
        self._requests += 1
        request = f"{self._life:x}.{self._requests:x}"
        return WorkRequest(tasks, max_hosts=hosts, request_id=request, renew=renew, flat=False)

    def _domains(self) -> list[str]:
        return [self._fleet.web.host_name(page.host).removeprefix("www.") for page in self._pages]

    def _results(self) -> Results:
        results = self._fleet.web.results(self._pages, self._digests, time.time())
        hosts = [
            HostReport(lease.lease_id, lease.host, release=True, next_contact_s=NEXT_CONTACT_S)
            for lease in self._leases
        ]
        return Results(results, hosts, canonical_links=True, stored=True)

    # What it is told

    def _took(self, call: Waiting, body: bytes) -> None:
        if call.kind == "heartbeat":
            self._plan("heartbeat", call.due + _read_beat(body).next_heartbeat)
        elif call.kind == "work":
            self._took_work(_read_work(body).leases)
        elif call.kind == "renew":
            for lease in _read_work(body).leases:
                self._add_pages(lease)
        elif call.kind == "results":
            self._took_accepted(_read_accepted(body))
        elif call.kind == "register":
            self._took_registered(_read_registered(body))

    def _took_work(self, leases: list[HeldLease]) -> None:
        self._leases = leases
        now, due, fetch_s = time.perf_counter(), self._turn_due, self._fleet.settings.fetch_s
        for lease in leases:
            self._fleet.lost_work.given(lease.host, now)
            self._add_pages(lease)
        if not leases:
            self._fleet.record.turns_empty += 1
            self._end_turn()
            return
        self._plan("renew", due + fetch_s / 2)
        if self._fleet.settings.asks_known:
            self._plan("known", due + fetch_s - KNOWN_BEFORE_RESULTS_S)
        self._plan("results", due + fetch_s)

    def _add_pages(self, lease: HeldLease) -> None:
        host = host_number(lease.host)
        self._pages += [Page(one.assignment_id, one.url, host) for one in lease.assignments]
        self._digests = []

    def _took_accepted(self, accepted: Accepted) -> None:
        record = self._fleet.record
        record.pages += accepted.accepted_count
        record.pages_rejected += accepted.rejected_count
        self._total += accepted.accepted_count
        if self._late:
            record.pages_late += accepted.accepted_count
        else:
            self._fleet.learn_pages(len(self._pages))
        self._end_turn()

    def _took_registered(self, told: Registered) -> None:
        self._token, self._key = told.token or "", bytes.fromhex(told.key or "")
        now = time.perf_counter()
        if self._recovering:
            self._recovering = False
            self._plan("results", now)
            return
        self.registered = True
        if not self._beats:
            self._beats = True
            self._plan("heartbeat", now + random.random() * told.heartbeat_interval)
        self._fleet.rest(self)

    def _end_turn(self) -> None:
        self._leases, self._pages, self._digests = [], [], []
        if self._late:
            self._late = False
            self._plan("register", time.perf_counter())
        else:
            self._fleet.rest(self)
