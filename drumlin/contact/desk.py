"""What all parts of the law of contact share while they work on one event: the hosts, the settings, and two lists, of
what was decided and of what still has to be looked at.

Parts do not call each other in circles. A part that changes a host puts it on the list of hosts to look at, and a query
that has to go elsewhere, or was sent away, goes on a list too. `law.Contacts` works these lists off before the event
is done. So a chain of a thousand hosts whose robots.txt lead to each other is a loop and no deep recursion.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from drumlin.contact.actions import Action, FetchPage, FetchRobots, Report, Settle
from drumlin.contact.cookies import Cookies
from drumlin.contact.hosts import HostTable, HostWork, RobotsQuery
from drumlin.contact.robots_line import RobotsLine
from drumlin.contact.rules import Stopwatch
from drumlin.contact.terms import Answer, ContactSettings, Moment
from drumlin.model import Outcome
from drumlin.protocol import Assignment, CrawlState, HostReport

Chance = Callable[[], float]
"""A number from 0 to 1, drawn by chance."""


class Desk:
    """The state of a node's contacts, and what is decided while one event is handled."""

    def __init__(self, settings: ContactSettings, chance: Chance, stopwatch: Stopwatch) -> None:
        self.settings = settings
        self.chance = chance
        self.hosts = HostTable()
        self.cookies = Cookies(settings.cookies)
        self.robots_line = RobotsLine(stopwatch)
        self.state = CrawlState.RUNNING
        self.under_way: set[FetchPage | FetchRobots] = set()
        """Requests to sites that have begun and not ended."""
        self.given_back: dict[str, float] = {}
        """Leases that were given back, and when each would have run out: until then a grant may be heard again."""
        self.actions: list[Action] = []
        self.changed: deque[HostWork] = deque()
        self.to_visit: deque[RobotsQuery] = deque()
        self.sent_away: deque[RobotsQuery] = deque()

    # Contacts

    def begin(self, fetch: FetchPage | FetchRobots, now: Moment) -> None:
        """Contact a host: the delay counts from now, and again from when the answer begins to arrive."""
        host = fetch.host
        self.under_way.add(fetch)
        host.in_flight += 1
        host.contacted = now.boot
        host.next_contact = now.boot + host.delay_s
        self.actions.append(fetch)

    def end(self, fetch: FetchPage | FetchRobots, answer: Answer) -> None:
        """A contact has ended. The next is allowed a delay after the answer began to arrive: by then the request must
        have reached the server. With several requests at a time there is no such order, so the time of sending counts.
        """
        host = fetch.host
        self.close(fetch)
        host.last_contact_answered = not answer.failure or bool(answer.header_lines)
        reached = answer.first_byte if self.settings.per_host == 1 else answer.started
        host.contacted = max(host.contacted, reached)
        host.next_contact = max(host.next_contact, reached + host.delay_s)

    def close(self, fetch: FetchPage | FetchRobots) -> None:
        """A request is over, sent or not."""
        fetch.over = True
        self.under_way.discard(fetch)
        fetch.host.in_flight -= 1
        self.changed.append(fetch.host)

    # URLs

    def ask_again(self, host: HostWork, task: Assignment) -> None:
        """Take a URL once more under the same lease. If nothing more is to be begun, it returns with the lease."""
        if self.state is CrawlState.RUNNING and not host.ending:
            host.tasks.appendleft(task)

    def settle(self, host: HostWork, task: Assignment, outcome: Outcome, **more: Any) -> None:
        """End a URL without a request; `more` are further fields of `Settle`."""
        host.unsettled += 1
        self.actions.append(Settle(host, task, outcome, **more))

    def begin_no_more(self, host: HostWork) -> None:
        """Leave the URLs that were not begun to the lease, with which they return to the queue. Guests must go."""
        host.ending = True
        host.tasks.clear()
        host.suspects.clear()
        self.sent_away.extend(host.guests)
        host.guests.clear()
        self.changed.append(host)

    # The coordinator

    def report_note(
        self, host: HostWork, now: Moment, sitemaps: list[str] | None = None, own_delay_s: float | None = None
    ) -> None:
        """Have the coordinator remember what was learnt about a host and the pace that it wishes, and queue its
        sitemaps."""
        host.note_changed = False
        wait_s = max(0.0, host.next_contact - now.boot)
        report = HostReport(host.lease_id, host.host, False, wait_s, own_delay_s, host.note(), sitemaps or [])
        self.actions.append(Report(report))

    def release(self, host: HostWork, now: Moment) -> None:
        """Give a lease back."""
        del self.hosts.by_name[host.host]
        self.given_back[host.lease_id] = host.expires
        wait_s = max(0.0, host.next_contact - now.boot)
        note = host.note() if host.note_changed else None
        self.actions.append(Report(HostReport(host.lease_id, host.host, True, wait_s, note=note)))
