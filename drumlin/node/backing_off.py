"""Hosts in back-off: those that could not be asked are left alone for a while, and none of their URLs pays for it.

What counts as such: nothing could be asked (no address, no connection, no TLS), or robots.txt could not be had. It
counts for one scheme of the host: a bad certificate says nothing about `http:`. The one probe that ends it is
robots.txt, since nothing may be fetched without it and a site that was down may have other rules.

A URL whose request was sent and never answered (`RESET`, `TIMEOUT`) is blamed at once if the contact before it was
answered. Otherwise it is a suspect: robots.txt is asked for, and an answer puts the blame on the URL, none on the host.

Back-offs are in the host's note, and so survive this node; the coordinator keeps when they began (`host_reports`).
"""

from __future__ import annotations

import random
import time
from collections import deque
from typing import TYPE_CHECKING

from drumlin.clock import monotonic
from drumlin.fetch import Transfer
from drumlin.frontier import ASKED_MAX_S, pause_s
from drumlin.http.headers import header_fields
from drumlin.http.retry_after import SLOW_DOWN, retry_after_s
from drumlin.model import FailureKind, Outcome
from drumlin.node.hosts import HostWork, scheme_of
from drumlin.node.outcomes import TOO_MANY_REQUESTS
from drumlin.protocol import Assignment, BackOff

if TYPE_CHECKING:
    from drumlin.node.agent import Agent
    from drumlin.node.archive import Arrival

UNREACHED = frozenset({FailureKind.DNS, FailureKind.CONNECT, FailureKind.TLS, FailureKind.TIMEOUT, FailureKind.RESET})
SILENT = frozenset({FailureKind.RESET, FailureKind.TIMEOUT})
ERROR_CHARS_MAX = 200
PAUSE_HELD_MAX_S = 2.0


def unreached(transfer: Transfer) -> bool:
    """Whether nothing could be asked: no connection stood, so that no URL is to blame."""
    return transfer.failure in UNREACHED and not transfer.sends


def silent(transfer: Transfer) -> bool:
    """Whether something was asked and nothing came back: the host may be down, or it may be that URL."""
    return transfer.failure in SILENT and not transfer.header_lines


class BackingOff:
    """Puts hosts into back-off, says how long they stay there, and keeps the URLs under suspicion."""

    def __init__(self, agent: Agent, chance: random.Random) -> None:
        self._agent = agent
        self._chance = chance
        self._began: float | None = None

    def begin_work(self) -> None:
        """A lease has come. Whatever was tried before this process began may be tried again when its host is given to
        us: who starts a crawl again wants that, and a fleet gives hosts out only when their pause is over."""
        if self._began is None:
            self._began = self._agent.shared_time()

    def wait_s(self, host: HostWork, scheme: str) -> float:
        """How long the host must still be left alone on this scheme; 0 when it may be tried."""
        backoff = host.backoff.get(scheme)
        if backoff is None or (not backoff.asked and backoff.tried < (self._began or 0.0)):
            return 0.0
        return max(0.0, min(backoff.until - self._agent.shared_time(), backoff.until_wall - time.time()))

    def begin(self, host: HostWork, scheme: str, kind: str, error: str, asked_s: float = 0.0) -> None:
        """The host could not be asked: leave it alone on this scheme for a while, which grows from try to try."""
        before, now = host.backoff.get(scheme), self._agent.shared_time()
        since, tries = (before.since, before.tries + 1) if before is not None else (now, 1)
        wait_s = pause_s(tries, asked_s, self._chance.random())
        host.backoff[scheme] = BackOff(
            kind, error[:ERROR_CHARS_MAX], since, tries, now, now + wait_s, time.time() + wait_s, asked_s > 0
        )
        host.robots.pop(scheme, None)
        self.put_off(host, scheme, wait_s)
        self._agent.report_note(host, [], None)

    def put_off(self, host: HostWork, scheme: str, wait_s: float) -> None:
        """Begin none of the URLs of this scheme. With no others, they return with the lease, and the host waits; else
        they are put off one by one, out of the way of the others. None has an attempt held against it, until the host
        has been out of reach for too long: then they are dead."""
        mine = [task for task in host.tasks if scheme_of(task.url) == scheme]
        others = [task for task in host.tasks if scheme_of(task.url) != scheme]
        for task in mine:
            host.suspects.pop(task.url, None)
        host.tasks = deque(others)
        backoff = host.backoff[scheme]
        gone_s = self._agent.shared_time() - backoff.since
        if gone_s >= self._agent.settings.host_patience_s:
            self._end(host, mine, backoff, error=f"{backoff.error} (for {gone_s / 3600:,.0f} hours)", gave_up=True)
        elif others:
            self._end(host, mine, backoff, error=backoff.error, put_off_s=max(wait_s, 1.0))
        else:
            host.next_contact = max(host.next_contact, monotonic() + wait_s)
            self._agent.begin_no_more(host)

    def _end(self, host: HostWork, tasks: list[Assignment], backoff: BackOff, **more: object) -> None:
        for task in tasks:
            self._agent.end(host, task, Outcome.FAILED, kind=backoff.kind, **more)

    def slow_down(self, host: HostWork, transfer: Transfer, wall: float) -> float:
        """A server error, or 429. Of an overloaded site leave the host alone for as long as it asks, and the URL for at
        least that long, which is returned; after a 429 ask it half as often from then on."""
        if transfer.status not in SLOW_DOWN:
            return 0.0
        asked_s, least_s = retry_after_s(header_fields(transfer.response_headers()), wall), 2 * host.delay_s
        if transfer.status == TOO_MANY_REQUESTS:
            host.slow_down(transfer.started, transfer.finished)
            least_s = host.delay_s
        wait_s = max(min(asked_s, ASKED_MAX_S), least_s)
        host.next_contact = max(host.next_contact, monotonic() + wait_s)
        if wait_s > PAUSE_HELD_MAX_S:
            # Given back with its lease, the pause is kept by the frontier and survives this node.
            self._agent.begin_no_more(host)
        return asked_s

    # Who is to blame

    def suspect(self, host: HostWork, task: Assignment, failed: Arrival) -> None:
        """Ask the host for its robots.txt before this failure is held against the URL."""
        host.robots.pop(scheme_of(task.url), None)
        host.suspects[task.url] = failed
        self._agent.ask_again(host, task)

    def blame(self, host: HostWork, scheme: str) -> None:
        """The host has answered: what failed before was the fault of URLs."""
        guilty = [url for url in host.suspects if scheme_of(url) == scheme]
        if not guilty:
            return
        host.tasks = deque(task for task in host.tasks if task.url not in guilty)
        for url in guilty:
            self._agent.failed(host, host.suspects.pop(url))
