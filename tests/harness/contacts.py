"""The law of contact driven by hand: a test grants leases, lets time pass, and answers what is asked for."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from drumlin.contact import Contacts, ContactSettings, Moment
from drumlin.contact.actions import (
    Action,
    AskVisit,
    AskWork,
    FetchPage,
    FetchRobots,
    KeepRobots,
    Renew,
    Report,
    Settle,
    SettlePage,
)
from drumlin.contact.events import Event, Granted, PageArrived, RobotsArrived, Tick, TooLate, VisitEnded
from drumlin.contact.hosts import HostWork
from drumlin.contact.rules import Robots
from drumlin.protocol import Assignment, HostReport, WorkLease
from drumlin.robots import Decision

ALLOWED = Decision(None, True, False, 1e12, False, "all allowed")
SETTINGS = ContactSettings("drumlin", 0.0, 1, 5, 1e9, False)
WALL = 1_700_000_000.0
SHARED = 7_000_000.0
ROOM = 100


class Heard(msgspec.Struct):
    """What came of a request: an answer, or a failure."""

    status: int = 0
    failure: str = ""
    error: str = ""
    sends: int = 1
    stale: bool = False
    header_lines: list[bytes] = []
    cookie: str = ""
    started: float = 0.0
    first_byte: float = 0.0
    finished: float = 0.0
    ip: str = "127.0.0.1"
    protocol: str = "http/1.1"

    @property
    def has_head(self) -> bool:
        return bool(self.header_lines)

    def response_headers(self) -> bytes:
        return b"".join(self.header_lines)


def heard(status: int, now: float, **headers: str) -> Heard:
    """An answer with these fields: `Retry_After` is Retry-After."""
    fields = [f"{name.replace('_', '-')}: {value}\r\n".encode() for name, value in headers.items() if value]
    lines = [b"HTTP/1.1 %d X\r\n" % status, *fields, b"\r\n"]
    return Heard(status, header_lines=lines, started=now, first_byte=now, finished=now)


class Driver:
    """Contacts, a clock that a test owns, and all that was decided, by kind. Nothing is performed."""

    def __init__(self, **settings: Any) -> None:
        self.contacts = Contacts(replace(SETTINGS, **settings), lambda: 0.5)
        self.now = 1_000.0
        self.begun: list[FetchPage | FetchRobots] = []
        self.settled: list[Settle | SettlePage] = []
        self.reports: list[HostReport] = []
        self.visits: list[AskVisit] = []
        self.calls: list[AskWork | Renew] = []
        self.kept: list[KeepRobots] = []

    @property
    def moment(self) -> Moment:
        return Moment(self.now, WALL + self.now, SHARED + self.now)

    @property
    def hosts(self) -> dict[str, HostWork]:
        return self.contacts.hosts.by_name

    @property
    def urls(self) -> list[str]:
        """What is being asked for."""
        return [fetch.url for fetch in self.begun]

    def tell(self, event: Event) -> list[Action]:
        actions = self.contacts.handle(event, self.moment)
        for action in actions:
            self._sort(action)
        return actions

    def _sort(self, action: Action) -> None:
        match action:
            case FetchPage() | FetchRobots():
                self.begun.append(action)
            case Settle() | SettlePage():
                self.settled.append(action)
            case Report(report):
                self.reports.append(report)
            case AskVisit():
                self.visits.append(action)
            case AskWork() | Renew():
                self.calls.append(action)
            case KeepRobots():
                self.kept.append(action)

    def tick(self, passed_s: float = 0.0, *, room: int = ROOM, full: bool = False) -> list[Action]:
        """Let time pass, and begin what is due."""
        self.now += passed_s
        return self.tell(Tick(room, full))

    def grant(self, lease: WorkLease, *, known: bool = False) -> HostWork:
        """A host is given, with its robots rules known or not. Nothing is begun before the next tick."""
        self.tell(Granted(lease, self.now))
        host = self.hosts[lease.host]
        if known:
            host.robots["http"] = Robots(ALLOWED, "drumlin")
        return host

    def work(self, *paths: str, known: bool = True, note: bytes = b"") -> HostWork:
        """A host with these URLs, whose first request is under way. Each call has a lease of its own."""
        again = f"n0:a.test+{len(self.reports)}" if self.reports else ""
        host = self.grant(lease_of("a.test", *paths, note=note, lease_id=again), known=known)
        self.tick()
        return host

    def answer(self, status: int, location: str = "", body: bytes = b"", **headers: str) -> str:
        """Answer the oldest request, and begin what is due then; what it was for."""
        return self.end(heard(status, self.now, Location=location, **headers), body)

    def fail(self, failure: str, *, sent: bool = True, stale: bool = False) -> str:
        """Let the oldest request fail, and begin what is due then; what it was for."""
        now = self.now
        return self.end(Heard(0, failure, "made up", int(sent), stale, started=now, first_byte=now, finished=now))

    def end(self, answer: Heard, body: bytes = b"") -> str:
        fetch = self.begun.pop(0)
        self.hear(fetch, answer, body)
        self.tick()
        return fetch.url

    def hear(self, fetch: FetchPage | FetchRobots, answer: Heard, body: bytes = b"") -> None:
        """End this request, and begin nothing yet."""
        if isinstance(fetch, FetchPage):
            self.tell(PageArrived(fetch, answer))
        else:
            self.tell(RobotsArrived(fetch, answer, body))

    def too_late(self) -> str:
        """The oldest request could not be sent in time."""
        fetch = self.begun.pop(0)
        self.tell(TooLate(fetch))
        return fetch.url

    def grant_visit(self, *leases: WorkLease, note: bytes = b"") -> str:
        """Answer the oldest request for a visit; the host that it names."""
        asked = self.visits.pop(0)
        for lease in leases:
            self.tell(Granted(lease, self.now))
        self.tell(VisitEnded(asked.host, note))
        return asked.host

    @property
    def ends(self) -> list[tuple[str, str]]:
        """The URLs that were settled, and of which failure."""
        return [(one.task.url, one.kind if isinstance(one, Settle) else one.answer.failure) for one in self.settled]

    @property
    def released(self) -> list[str]:
        """The hosts that were given back."""
        return [report.host for report in self.reports if report.release]


def lease_of(name: str, *paths: str, note: bytes = b"", lease_id: str = "", **more: Any) -> WorkLease:
    """A lease of a host with these URLs; `more` are further fields of it."""
    lease_id = lease_id or f"n0:{name}"
    assignments = [
        Assignment(f"{lease_id}/{n}.0.0", f"http://{name}{path}", 5, 0.0, name, 0.0) for n, path in enumerate(paths)
    ]
    return WorkLease(
        lease_id, name, more.pop("ttl_s", 100.0), more.pop("min_delay_s", 0.0), assignments, note=note, **more
    )
