"""Hosts in back-off: a host that could not be asked is left alone for a while, and none of its URLs pays for it.

A host could not be asked if nothing was sent (no address, no connection, no TLS), or if robots.txt could not be had.
That counts for one scheme of the host: a bad certificate says nothing about `http:`. The one probe that ends a back-off
is robots.txt, since nothing may be fetched without it, and a site that was down may have other rules now.

A URL whose request was sent and never answered (`RESET`, `TIMEOUT`) is blamed at once if the contact before it was
answered. Otherwise it is a suspect: robots.txt is asked for next. If that is answered, the URL is to blame; if not, the
host is.

Back-offs are in the host's note, so they survive this node. The coordinator keeps when they began (`host_reports`).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from drumlin.config.quantities import show_duration
from drumlin.contact.actions import SettlePage
from drumlin.contact.desk import Desk
from drumlin.contact.hosts import HostWork, Suspect, scheme_of
from drumlin.contact.terms import Answer, Moment, silence_of
from drumlin.frontier import ASKED_MAX_S, pause_s
from drumlin.http.headers import header_fields
from drumlin.http.retry_after import SLOW_DOWN, retry_after_s
from drumlin.model import FailureKind, Outcome
from drumlin.protocol import Assignment, BackOff
from drumlin.protocol.statuses import TOO_MANY_REQUESTS

UNREACHED = frozenset({FailureKind.DNS, FailureKind.CONNECT, FailureKind.TLS, FailureKind.TIMEOUT, FailureKind.RESET})
SILENT = frozenset({FailureKind.RESET, FailureKind.TIMEOUT})
ERROR_CHARS_MAX = 200
PAUSE_HELD_MAX_S = 2.0
"""A host that is to be left alone for longer is given back: its lease would only keep others from it."""


def unreached(answer: Answer) -> bool:
    """Whether nothing could be asked: no connection stood, so no URL is to blame."""
    return answer.failure in UNREACHED and not answer.sends


def silent(answer: Answer) -> bool:
    """Whether something was asked and nothing came back: the fault may be the host's, or that URL's."""
    return answer.failure in SILENT and not answer.header_lines


class BackingOff:
    """Puts hosts into back-off, says how long they stay there, and keeps the URLs under suspicion."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._began: float | None = None

    def begin_work(self, now: Moment) -> None:
        """A lease has come. What was tried before this process began may be tried again when its host is given to us:
        whoever starts a crawl again wants that, and a fleet gives hosts out only when their pause is over."""
        if self._began is None:
            self._began = now.shared

    def wait_s(self, host: HostWork, scheme: str, now: Moment) -> float:
        """How long the host must still be left alone on this scheme; 0 when it may be tried."""
        backoff = host.backoff.get(scheme)
        if backoff is None or (not backoff.asked and backoff.tried < (self._began or 0.0)):
            return 0.0
        return max(0.0, min(backoff.until - now.shared, backoff.until_wall - now.wall))

    def begin(self, host: HostWork, scheme: str, kind: str, error: str, now: Moment, asked_s: float = 0.0) -> None:
        """The host could not be asked: leave it alone on this scheme for a while, which grows from try to try."""
        before = host.backoff.get(scheme)
        since, tries = (before.since, before.tries + 1) if before is not None else (now.shared, 1)
        wait_s = pause_s(tries, asked_s, self._desk.chance())
        until, until_wall = now.shared + wait_s, now.wall + wait_s
        host.backoff[scheme] = BackOff(
            kind, error[:ERROR_CHARS_MAX], since, tries, now.shared, until, until_wall, asked_s > 0, asked_s
        )
        host.robots.pop(scheme, None)
        self.put_off(host, scheme, wait_s, now)
        self._desk.report_note(host, now)

    def put_off(self, host: HostWork, scheme: str, wait_s: float, now: Moment) -> None:
        """Begin none of the URLs of this scheme. If there are no others, they return with the lease and the host waits.
        Otherwise they are put off one by one, out of the way of the others. No attempt is held against any of them,
        until the host has been out of reach for too long: then they are dead."""
        mine = [task for task in host.tasks if scheme_of(task.url) == scheme]
        others = [task for task in host.tasks if scheme_of(task.url) != scheme]
        for task in mine:
            host.suspects.pop(task.url, None)
        host.tasks = deque(others)
        self._desk.changed.append(host)
        backoff = host.backoff[scheme]
        gone_s = now.shared - backoff.since
        if gone_s >= self._desk.settings.host_patience_s:
            lasting = f", for {show_duration(gone_s)}" if gone_s >= 1.0 else ""
            self._fail(host, mine, backoff, error=backoff.error + lasting, gave_up=True)
        elif others:
            self._fail(host, mine, backoff, error=backoff.error, put_off_s=max(wait_s, 1.0))
        else:
            host.next_contact = max(host.next_contact, now.boot + wait_s)
            self._desk.begin_no_more(host)

    def _fail(self, host: HostWork, tasks: list[Assignment], backoff: BackOff, **more: Any) -> None:
        for task in tasks:
            self._desk.settle(host, task, Outcome.FAILED, kind=backoff.kind, **more)

    def slow_down(self, host: HostWork, answer: Answer, now: Moment) -> float:
        """The site is overloaded, or says 429. Leave the host alone for as long as it asks, and the URL for at least
        that long, which is returned. After a 429 ask the host half as often from then on."""
        if answer.status not in SLOW_DOWN:
            return 0.0
        asked_s, least_s = retry_after_s(header_fields(answer.response_headers()), now.wall), 2 * host.delay_s
        if answer.status == TOO_MANY_REQUESTS:
            host.slow_down(answer.started, answer.finished)
            least_s = host.delay_s
        wait_s = max(min(asked_s, ASKED_MAX_S), least_s)
        host.next_contact = max(host.next_contact, now.boot + wait_s)
        # From now on the frontier keeps the pause and the pace, so both survive this node.
        self._desk.report_note(host, now)
        if wait_s > PAUSE_HELD_MAX_S:
            self._desk.begin_no_more(host)
        return asked_s

    # Who is to blame

    def suspect(self, host: HostWork, task: Assignment, answer: Answer, now: Moment) -> None:
        """Ask the host for its robots.txt before this failure is held against the URL."""
        host.robots.pop(scheme_of(task.url), None)
        host.suspects[task.url] = Suspect(task, silence_of(answer), now.wall)
        self._desk.ask_again(host, task)

    def blame(self, host: HostWork, scheme: str) -> None:
        """The host has answered: what failed before was the fault of URLs."""
        guilty = [url for url in host.suspects if scheme_of(url) == scheme]
        if not guilty:
            return
        host.tasks = deque(task for task in host.tasks if task.url not in guilty)
        for url in guilty:
            suspect = host.suspects.pop(url)
            host.unsettled += 1
            self._desk.actions.append(SettlePage(host, suspect.task, suspect.answer, suspect.wall))
