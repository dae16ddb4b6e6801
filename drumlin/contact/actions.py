"""What the law of contact decides: what is to be done next, by whoever performs it.

Actions are performed at once, in their order. A fetch also names its request: the event that ends the request carries
the same object. `send_by` is the last moment, by the boot clock, at which the request may leave. Whoever sends it looks
at the clock right then, since connecting takes time and a process can freeze.
"""

from __future__ import annotations

import msgspec

from drumlin.contact.hosts import HostWork, RobotsQuery
from drumlin.contact.terms import Answer
from drumlin.http.type_limits import TypeLimits
from drumlin.model import Outcome
from drumlin.protocol import Assignment, HostReport


class FetchPage(msgspec.Struct, eq=False):
    """Ask the host for a page. `body_bytes_max` is 0 where the crawl's own limit holds."""

    host: HostWork
    task: Assignment
    url: str
    send_by: float
    cookie: str
    body_bytes_max: int
    types: TypeLimits | None
    over: bool = False
    """Its end was told."""


class FetchRobots(msgspec.Struct, eq=False):
    """Ask for a robots.txt, under the lease of the host that it is on (`host`)."""

    host: HostWork
    query: RobotsQuery
    url: str
    send_by: float
    cookie: str
    body_bytes_max: int
    over: bool = False


class AskWork(msgspec.Struct):
    """Ask the coordinator for leases of up to so many hosts. `WorkEnded` tells that the call is over."""

    hosts: int


class Renew(msgspec.Struct):
    """Have leases renewed (each with its host), with `further` URLs or with time alone. `RenewalEnded` ends it."""

    leases: list[tuple[str, str]]
    further: bool


class AskVisit(msgspec.Struct):
    """Ask for a lease of this very host, because a host that is held needs something that is on it: `sponsor` is the
    lease of that one, and its name. `VisitEnded` ends it."""

    host: str
    sponsor: tuple[str, str]


class Settle(msgspec.Struct):
    """A URL has come to its end without a request: it is denied, redirected by what is known, or put off."""

    host: HostWork
    task: Assignment
    outcome: Outcome
    kind: str = ""
    error: str = ""
    status: int = 0
    redirect_to: str = ""
    put_off_s: float = 0.0
    gave_up: bool = False


class SettlePage(msgspec.Struct):
    """A URL has come to its end with this answer, or with none. `wall` is when by the calendar; `retry_after_s` is how
    long the site asks not to be asked for it."""

    host: HostWork
    task: Assignment
    answer: Answer
    wall: float
    retry_after_s: float = 0.0


class KeepRobots(msgspec.Struct):
    """Archive an answer to a request for robots.txt, which settles no URL. It leads to `redirect_to`, if anywhere."""

    fetch: FetchRobots
    answer: Answer
    redirect_to: str


class Report(msgspec.Struct):
    """Tell the coordinator about a host; with `release` set, the lease is given back."""

    report: HostReport


Action = FetchPage | FetchRobots | AskWork | Renew | AskVisit | Settle | SettlePage | KeepRobots | Report
