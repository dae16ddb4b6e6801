"""One URL fetched as a node fetches it, without a coordinator and without a store: what `drumlin fetch` does.

The law of contact is the node's own. There is nobody else to share hosts with, so leases are granted here: whatever the
law asks for it gets, and what it reports about a host is remembered for the next lease of that host.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from math import inf
from typing import Any

from drumlin.clock import monotonic
from drumlin.contact import Contacts, ContactSettings, Moment
from drumlin.contact.actions import AskVisit, FetchPage, FetchRobots, Report, Settle, SettlePage
from drumlin.contact.events import (
    Answered,
    Event,
    Granted,
    PageArrived,
    RobotsArrived,
    Sending,
    Tick,
    VisitEnded,
)
from drumlin.contact.hosts import HostWork
from drumlin.fetch import Fetcher, Transfer
from drumlin.model import FailureKind, Outcome
from drumlin.node.arriving import Arriving, keep_refusal, robots_body
from drumlin.node.keeping.archive import Arrival
from drumlin.node.outcomes import keep_cut
from drumlin.protocol import Assignment, HostReport, WorkLease, read_note
from drumlin.urls import host_of

NAME = "fetch"
ROOM = 4
PRIORITY = 5

OnPage = Callable[[FetchPage], None]
OnDenied = Callable[[HostWork, Settle], None]


class SingleFetch:
    """Follows one URL to its end, redirects included. `on_page` hears of each request for a page before it is made,
    `on_denied` of a URL that robots.txt denies."""

    def __init__(self, settings: ContactSettings, fetcher: Fetcher, *, on_page: OnPage, on_denied: OnDenied) -> None:
        self._settings = settings
        self._fetcher = fetcher
        self._on_page = on_page
        self._on_denied = on_denied
        self._contacts = Contacts(settings, random.random, monotonic)
        self._arriving = Arriving(NAME, fetcher.request_headers, "")
        self._hosts: dict[str, tuple[float, bytes]] = {}
        """When each host may be contacted again, and what is known about it."""
        self._leases = 0
        self._task: Assignment | None = None
        self._ends: list[Arrival] = []
        """What came of the URL, as soon as it is known."""
        self._perform: dict[type[Any], Callable[[Any], None]] = {
            FetchPage: self._fetch_page,
            FetchRobots: self._fetch_robots,
            AskVisit: self._grant_visit,
            Settle: self._settle,
            SettlePage: self._settle_page,
            Report: lambda action: self._heed(action.report),
        }

    def run(self, url: str, redirects: tuple[str, ...] = ()) -> Arrival:
        """What came of one URL. Where it redirects to is for the caller to follow, with another call."""
        self._ends.clear()
        self._task = task = Assignment(f"{NAME}/0", url, PRIORITY, 0.0, host_of(url), 0.0, redirects=redirects)
        self._grant(task.host, [task])
        while not self._ends:
            self._tell(Tick(ROOM))
            self._fetcher.run_once(self._contacts.hosts.next_due() - monotonic())
        return self._ends[0]

    def _tell(self, event: Event) -> None:
        now = time.time()
        for action in self._contacts.handle(event, Moment(monotonic(), now, now)):
            perform = self._perform.get(type(action))
            if perform is not None:
                perform(action)

    def _grant(self, host: str, tasks: list[Assignment]) -> None:
        """Give a lease that lasts, with the wait that the last one of this host asked for."""
        self._leases += 1
        not_before, note = self._hosts.get(host, (0.0, b""))
        now = monotonic()
        wait_s = max(0.0, not_before - now)
        self._tell(Granted(WorkLease(f"{NAME}:{self._leases}", host, inf, 0.0, tasks, wait_s, note=note), now))

    def _grant_visit(self, action: AskVisit) -> None:
        self._grant(action.host, [])
        self._tell(VisitEnded(action.host))

    def _fetch_page(self, fetch: FetchPage) -> None:
        self._on_page(fetch)
        limit, types = fetch.body_bytes_max, fetch.types
        self._fetcher.start(fetch.url, self._page_ended, fetch, body_bytes_max=limit, cookie=fetch.cookie, types=types)

    def _fetch_robots(self, fetch: FetchRobots) -> None:
        limit = fetch.body_bytes_max
        self._fetcher.start(fetch.url, self._robots_ended, fetch, body_bytes_max=limit, cookie=fetch.cookie)

    def _page_ended(self, transfer: Transfer) -> None:
        keep_cut(transfer, last_try=True)
        keep_refusal(transfer)
        self._tell(PageArrived(transfer.context, transfer))

    def _robots_ended(self, transfer: Transfer) -> None:
        body, flaw = robots_body(transfer)
        self._tell(RobotsArrived(transfer.context, transfer, body, flaw))

    def _settle(self, action: Settle) -> None:
        if action.outcome is Outcome.DENIED:
            self._on_denied(action.host, action)
        self._ends.append(self._arriving.without_page(action, time.time()))
        self._let_go(action.host)

    def _settle_page(self, action: SettlePage) -> None:
        self._ends.append(self._arriving.of_page(action, self._settings.redirects_max))
        self._let_go(action.host)

    def _let_go(self, host: HostWork) -> None:
        """Its result needs no further journey, so its lease can be given back."""
        self._tell(Sending([(host, 1)]))
        self._tell(Answered([(host, 1)]))

    def _heed(self, report: HostReport) -> None:
        before = self._hosts.get(report.host, (0.0, b""))[1]
        note = before if report.note is None else report.note
        self._hosts[report.host] = (monotonic() + report.next_contact_s, note)
        task = self._task
        if report.release and not self._ends and task is not None and report.host == task.host:
            self._ends.append(self._arriving.without_page(_out_of_reach(task, note), time.time()))


def _out_of_reach(task: Assignment, note: bytes) -> Settle:
    """The end of a URL whose host could not be asked. A crawl would come back to it later."""
    backoff = read_note(note).backoff.get(task.url.partition(":")[0])
    kind, error = (backoff.kind, backoff.error) if backoff is not None else (FailureKind.CONNECT, "no answer")
    lease = WorkLease("", task.host, 0.0, 0.0, [])
    return Settle(HostWork(lease, 0.0, 0.0, 0.0, NAME), task, Outcome.FAILED, kind, error)
