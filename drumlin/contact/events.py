"""What the law of contact hears: leases that came and went, answers that arrived, and that time has passed.

An event is legal whenever what it tells can have happened. Answers may come late (their lease is over). A lease, a
renewal or the end of a request may be told twice: the second time changes nothing. What cannot have happened is
illegal, such as the answer to a request that was never made: `Contacts.handle` then raises `IllegalEvent` and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from drumlin.contact.actions import FetchPage, FetchRobots
from drumlin.contact.hosts import HostWork
from drumlin.contact.terms import Answer, ContactSettings
from drumlin.protocol import CrawlState, WorkLease


class IllegalEvent(Exception):
    """An event tells of something that cannot have happened."""


# Leases


class Granted(msgspec.Struct):
    """A lease came with the answer to a request that left at `sent`, by the boot clock: its time counts from then."""

    lease: WorkLease
    sent: float


class Renewed(msgspec.Struct):
    """A lease has more time, and perhaps more URLs, if `further` ones were asked for."""

    lease: WorkLease
    sent: float
    further: bool = True


class RenewalEnded(msgspec.Struct):
    """The call that `Renew` asked for has ended: the coordinator does not renew the hosts in `not_renewed`. `again_s`
    is set when the call failed: how long to wait before the next."""

    not_renewed: Sequence[str] = ()
    again_s: float | None = None


class WorkEnded(msgspec.Struct):
    """The call that `AskWork` asked for has ended, well or not; `again_s` is how long to wait before the next."""

    again_s: float


class VisitEnded(msgspec.Struct):
    """The call that `AskVisit` asked for has ended. A lease, if there is one, was granted before. Otherwise `note` is
    what others have learnt about the host."""

    host: str
    note: bytes = b""


class Revoked(msgspec.Struct):
    """The coordinator takes leases back."""

    leases: Sequence[str]


# Answers


class PageArrived(msgspec.Struct):
    """A request for a page has ended, well or not."""

    fetch: FetchPage
    answer: Answer


class RobotsArrived(msgspec.Struct):
    """A request for robots.txt has ended. `body` is the file, decoded; `flaw` says why it could not be."""

    fetch: FetchRobots
    answer: Answer
    body: bytes = b""
    flaw: str = ""


class TooLate(msgspec.Struct):
    """A request did not leave, because its connection stood only after `send_by`."""

    fetch: FetchPage | FetchRobots


class Sending(msgspec.Struct):
    """Results are archived and about to be sent: of which hosts, and how many of each."""

    results: Sequence[tuple[HostWork, int]]


class Answered(msgspec.Struct):
    """Results were answered by the coordinator."""

    results: Sequence[tuple[HostWork, int]]


# The crawl, and time


class StateChanged(msgspec.Struct):
    """The crawl is to run, to pause, or to end."""

    state: CrawlState


class SettingsChanged(msgspec.Struct):
    """The crawl has other settings from now on."""

    settings: ContactSettings


class Tick(msgspec.Struct):
    """Time has passed. `room` is how many requests may be under way besides those that are; `full` says that no further
    page can be taken in, so nothing may be begun."""

    room: int
    full: bool = False


Event = (
    Granted
    | Renewed
    | RenewalEnded
    | WorkEnded
    | VisitEnded
    | Revoked
    | PageArrived
    | RobotsArrived
    | TooLate
    | Sending
    | Answered
    | StateChanged
    | SettingsChanged
    | Tick
)
