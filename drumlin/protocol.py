"""What nodes and coordinators say to each other, over HTTP on a Unix socket or TLS, as MessagePack.

A node registers, asks for work, asks which contents are known, settles results, sends heartbeats, leaves. Every answer
is safe to ask for again: tokens guard leases, capture ids guard results. Waits are sent as durations, never as clock
times, so that no two clocks need agree.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from drumlin.model import Duplicate, Task, Verdict

MEDIA_TYPE = "application/msgpack"
BODY_BYTES_MAX = 64 * 1024 * 1024


class CrawlState(StrEnum):
    """What a coordinator wants of its nodes: go on, finish what is in flight and leave, or leave since all is done."""

    RUNNING = "running"
    DRAINING = "draining"
    FINISHED = "finished"


class Register(msgspec.Struct):
    node_id: str
    capacity: float
    metadata: dict[str, str]


class Registered(msgspec.Struct):
    node_id: str
    status: str
    heartbeat_interval_s: float
    config_hash: str


class SetupRequest(msgspec.Struct):
    """Asked before anything else, so that a node can recover what an earlier one left before it registers."""


class Setup(msgspec.Struct):
    """What every node of the crawl must know: the crawl's configuration as JSON and the seeds its scope is made of."""

    config: bytes
    config_hash: str
    seeds: list[str]
    scope_seeds: list[str]


class WorkRequest(msgspec.Struct):
    """Room for `max_hosts` further hosts and `max_tasks` URLs; `renew` names leases (and hosts) that want more time and
    URLs. `scope_version` is how many of the seeds that joined the scope on the way the node knows."""

    request_id: str
    max_tasks: int
    max_hosts: int
    renew: list[tuple[str, str]]
    scope_version: int


class WorkLease(msgspec.Struct, array_like=True):
    """A lease as a node sees it: durations count from the moment the node sent its request."""

    lease_id: str
    host: str
    ttl_s: float
    wait_s: float
    delay_s: float | None
    tasks: list[Task]
    note: bytes


class Work(msgspec.Struct):
    state: CrawlState
    leases: list[WorkLease]
    lost: list[str]
    retry_after_s: float
    scope_seeds: list[str]
    scope_version: int


class Result(msgspec.Struct, array_like=True):
    """What became of one URL. `links` are canonical, in scope and new to the node's own filter."""

    lease_id: str
    task_id: int
    url: str
    host: str
    domain: str
    depth: int
    attempts: int
    outcome: str
    status: int
    capture_id: bytes
    fetched: float
    size: int = 0
    kind: str = ""
    error: str = ""
    retry_after_s: float = 0.0
    redirect_to: str = ""
    redirects: tuple[str, ...] = ()
    links: list[str] = []
    link_hints: list[float] = []
    digest: bytes = b""
    simhash: int | None = None
    record_id: str = ""
    mime: str = ""
    traps: dict[str, int] = {}


class HostReport(msgspec.Struct, array_like=True):
    """What a node says of a leased host: whether it gives the lease back, when the next contact is due, its note."""

    lease_id: str
    host: str
    release: bool
    next_contact_s: float
    delay_s: float | None = None
    note: bytes | None = None
    sitemaps: list[str] = []


class Results(msgspec.Struct):
    results: list[Result]
    hosts: list[HostReport]


class Accepted(msgspec.Struct):
    """Per result, in order: whether it counted, and the earlier capture it repeats, if any."""

    verdicts: list[Verdict]
    duplicates: list[Duplicate | None]


class KnownRequest(msgspec.Struct):
    contents: list[tuple[str, bytes]]


class Known(msgspec.Struct):
    duplicates: list[Duplicate | None]


class Heartbeat(msgspec.Struct):
    status: str
    in_flight: int
    hosts: int
    fetched: int
    fetched_bytes: int


class HeartbeatReply(msgspec.Struct):
    status: str
    state: CrawlState
    next_heartbeat_s: float


class Done(msgspec.Struct):
    status: str = "ok"


class Failure(msgspec.Struct):
    """A node cannot go on (no space left, say): the sentence for the person and the exit code."""

    message: str
    hint: str
    exit_code: int


class HostNote(msgspec.Struct):
    """What a node remembers of a host between leases; the engine keeps it as opaque bytes."""

    robots: dict[str, bytes] = {}
    hsts_until: float = 0.0
    robots_failures: int = 0
