"""The law of contact as one object: events in, actions out.

`Contacts.handle(event, now)` is all there is. It reads no clock, draws no chance of its own, opens no connection and
calls nobody back. Whoever owns it performs the actions and tells what came of them: the node's loop with real sites,
`drumlin fetch` with one page, tests and simulators with whatever they make up.

What it promises, whatever order events come in
- A host is contacted only under a live lease, and a request is to leave before `send_by`, while the lease surely lasts.
- Between two contacts of a host lies its delay at least (`hosts` says how that is counted).
- No URL is asked for that the host's robots.txt denies, or before that file is known. (Where the robots.txt of another
  host leads here, to a file of any name, that file is asked for unless the rules are known and deny it.)
- Nothing is asked of a host under the lease of another, whatever a lease says.
- A URL that was given with a lease ends in one of two ways: it is settled once, or it returns with its lease.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from drumlin.contact.actions import Action, FetchPage, FetchRobots
from drumlin.contact.backing_off import BackingOff
from drumlin.contact.desk import Chance, Desk
from drumlin.contact.events import (
    Answered,
    Event,
    Granted,
    IllegalEvent,
    PageArrived,
    RenewalEnded,
    Renewed,
    Revoked,
    RobotsArrived,
    Sending,
    SettingsChanged,
    StateChanged,
    Tick,
    TooLate,
    VisitEnded,
    WorkEnded,
)
from drumlin.contact.hosts import HostTable, HostWork, Phase, scheme_of
from drumlin.contact.leases import NEVER, Leases
from drumlin.contact.pages import Pages, may_be_sitemap
from drumlin.contact.robots_asking import RobotsAsking, expired
from drumlin.contact.rules import Stopwatch, standing_still
from drumlin.contact.steps import asked_url, cookie_for
from drumlin.contact.terms import ContactSettings, Moment
from drumlin.model import FailureKind, Outcome
from drumlin.protocol import Assignment, CrawlState
from drumlin.urls import canonical, host_of

HSTS_STATUS = 307
ASK_WAIT_S = 0.01
NOT_FROM_HERE = "it was given with the lease of another host, or in a form that no crawl of ours writes"
DECISIONS_MAX = 500
"""What one tick may decide: URLs that end without a request also have to be taken in, and only so many can be."""
CONTACTING_S_MAX = 0.25
"""What one tick may take: robots rules that are slow to match, of hundreds of hosts, would hold up whoever performs the
actions for longer than leases last."""


class Contacts:
    """The contacts of one node. `chance` spreads the probes of hosts out of reach; `stopwatch` measures what robots
    rules cost, and decides nothing else."""

    def __init__(self, settings: ContactSettings, chance: Chance, stopwatch: Stopwatch = standing_still) -> None:
        self._desk = Desk(settings, chance, stopwatch)
        self._stopwatch = stopwatch
        self._backing_off = BackingOff(self._desk)
        self._robots = RobotsAsking(self._desk, self._backing_off)
        self._pages = Pages(self._desk, self._backing_off)
        self._leases = Leases(self._desk)
        self._handlers: dict[type[Any], Callable[[Any, Moment], None]] = {
            Granted: self._granted,
            Renewed: self._renewed,
            RenewalEnded: self._renewal_ended,
            WorkEnded: lambda event, now: self._leases.asked(event.again_s, now),
            VisitEnded: lambda event, now: self._robots.visit_ended(event.host, event.note, now),
            Revoked: self._revoked,
            PageArrived: self._page_arrived,
            RobotsArrived: self._robots_arrived,
            TooLate: self._too_late,
            Sending: self._sending,
            Answered: self._answered,
            StateChanged: self._state_changed,
            SettingsChanged: self._settings_changed,
            Tick: self._tick,
        }

    @property
    def hosts(self) -> HostTable:
        """The hosts that are held, to look at."""
        return self._desk.hosts

    @property
    def state(self) -> CrawlState:
        return self._desk.state

    @property
    def under_way(self) -> int:
        """How many requests to sites have begun and not ended."""
        return len(self._desk.under_way)

    @property
    def asking(self) -> bool:
        """Whether a call for hosts is under way, whose answer may bring some."""
        return self._leases.asking

    def handle(self, event: Event, now: Moment) -> list[Action]:
        """What follows from an event: to be done at once, in this order."""
        self._handlers[type(event)](event, now)
        self._work_off(now)
        actions, self._desk.actions = self._desk.actions, []
        return actions

    def due(self, now: float, *, room: int, full: bool) -> float:
        """When the next `Tick` can begin or ask for something, by the boot clock, if nothing else happens before.
        Leases that run out are seen to by any tick, so there must be one every second or so all the same."""
        if full or room <= 0 or self._desk.state is not CrawlState.RUNNING:
            return NEVER
        return min(max(now, self._leases.ask_due(room, now)) + ASK_WAIT_S, self._desk.hosts.next_due())

    def tick_due(self, now: float, *, room: int, full: bool) -> float:
        """When the next `Tick` does anything at all, for those who tick only then. It looks at every lease, so it is
        for nodes that hold few."""
        look_at = self._leases.look_due()
        if full or self._desk.state is not CrawlState.RUNNING:
            return look_at
        tick_at = min(look_at, self._leases.renew_due(further=True))
        return min(tick_at, self._leases.ask_due(room, now), self._desk.hosts.next_due()) if room > 0 else tick_at

    def _work_off(self, now: Moment) -> None:
        """See to every host and query that the event has left something to do about."""
        desk = self._desk
        while desk.changed or desk.sent_away or desk.to_visit:
            if desk.to_visit:
                self._robots.visit(desk.to_visit.popleft(), now)
            elif desk.sent_away:
                self._robots.turned_away(desk.sent_away.popleft(), now)
            else:
                self._look_at(desk.changed.popleft(), now)

    def _look_at(self, host: HostWork, now: Moment) -> None:
        """Have a host wait for its next contact; give it back when there is nothing left to do."""
        if self._desk.hosts.by_name.get(host.host) is not host:
            return
        phase = host.phase(self._desk.settings.per_host)
        if phase is Phase.OVER:
            self._desk.release(host, now)
        elif (host.tasks or host.guests) and host.expired(now.boot):
            self._desk.begin_no_more(host)
        elif phase is Phase.TIME:
            self._desk.hosts.wait(host)

    # Leases

    def _granted(self, event: Granted, now: Moment) -> None:
        lease, desk = event.lease, self._desk
        before = desk.hosts.by_name.get(lease.host)
        if lease.lease_id in desk.given_back or (before is not None and before.lease_id == lease.lease_id):
            # Heard twice.
            return
        self._backing_off.begin_work(now)
        host = HostWork(lease, event.sent, now.boot, desk.settings.delay_s, desk.settings.agent)
        desk.hosts.by_name[lease.host] = host
        if before is not None:
            # Its lease ran out before we looked.
            desk.begin_no_more(before)
        if desk.state is not CrawlState.RUNNING:
            desk.begin_no_more(host)
        # One without URLs is for a visit: `VisitEnded` brings the guests, before the next tick gives it back.
        desk.hosts.wait(host)

    def _renewed(self, event: Renewed, now: Moment) -> None:
        host = self._desk.hosts.by_name.get(event.lease.host)
        if host is not None and host.lease_id == event.lease.lease_id:
            host.renew(event.lease, event.sent, now.boot, further=event.further)
            self._desk.changed.append(host)

    def _renewal_ended(self, event: RenewalEnded, now: Moment) -> None:
        not_renewed = set(event.not_renewed)
        for host in self._leases.renewed(event.again_s, now):
            if host.host in not_renewed:
                # Not even a redirect or a guest may lead there any more: somebody else may have it.
                host.expires = min(host.expires, now.boot)
                self._desk.begin_no_more(host)

    def _revoked(self, event: Revoked, now: Moment) -> None:
        revoked = set(event.leases)
        for host in self._desk.hosts.by_name.values():
            if host.lease_id in revoked:
                self._desk.begin_no_more(host)

    # Answers

    def _page_arrived(self, event: PageArrived, now: Moment) -> None:
        if self._is_open(event.fetch, FetchPage):
            self._pages.arrived(event.fetch, event.answer, now)

    def _robots_arrived(self, event: RobotsArrived, now: Moment) -> None:
        if self._is_open(event.fetch, FetchRobots):
            self._robots.arrived(event, now)

    def _too_late(self, event: TooLate, now: Moment) -> None:
        """The lease ended before the request could be sent, so it was not: its URLs return with the lease. If the lease
        was renewed meanwhile, it may be sent after all."""
        fetch, desk = event.fetch, self._desk
        if not self._is_open(fetch, FetchPage, FetchRobots):
            return
        desk.close(fetch)
        lease_over = fetch.host.expired(now.boot)
        if lease_over:
            desk.begin_no_more(fetch.host)
        if isinstance(fetch, FetchRobots):
            self._robots.too_late(fetch, lease_over=lease_over)
        elif not lease_over:
            desk.ask_again(fetch.host, fetch.task)

    def _is_open(self, fetch: FetchPage | FetchRobots, *kinds: type) -> bool:
        """Whether a request is still to end. One that has ended may be told of again."""
        if not isinstance(fetch, kinds) or not (fetch.over or fetch in self._desk.under_way):
            raise IllegalEvent(f"{fetch.url} was not asked for, or not like this")
        return not fetch.over

    def _sending(self, event: Sending, now: Moment) -> None:
        """A host whose results are all answered, or about to be sent, may be given back together with these."""
        for host, count in _added_up(event.results).items():
            if not 0 < count <= host.unsettled:
                raise IllegalEvent(f"{count} results of {host.host} are sent, of {host.unsettled}")
        for host, count in event.results:
            host.unsettled -= count
            self._look_at(host, now)
            host.unanswered += count

    def _answered(self, event: Answered, now: Moment) -> None:
        for host, count in _added_up(event.results).items():
            if not 0 < count <= host.unanswered:
                raise IllegalEvent(f"{count} results of {host.host} are answered, of {host.unanswered}")
        for host, count in event.results:
            host.unanswered -= count
            self._desk.changed.append(host)

    # The crawl, and time

    def _state_changed(self, event: StateChanged, now: Moment) -> None:
        """When the crawl wants no more, every URL that was not begun is given back."""
        if event.state is self._desk.state:
            return
        self._desk.state = event.state
        if event.state is not CrawlState.RUNNING:
            for host in self._desk.hosts.by_name.values():
                self._desk.begin_no_more(host)

    def _settings_changed(self, event: SettingsChanged, now: Moment) -> None:
        self._desk.settings = event.settings
        for host in self._desk.hosts.by_name.values():
            host.follow_delay(event.settings.delay_s)
            # It may have more requests at a time than before.
            self._desk.changed.append(host)
        self._desk.hosts.rearrange()

    def _tick(self, event: Tick, now: Moment) -> None:
        for host in self._leases.scan(now):
            self._desk.begin_no_more(host)
        if self._desk.state is not CrawlState.RUNNING:
            return
        if not event.full:
            self._leases.ask(event.room, now)
            self._contact_due(event.room, now)
        # Contacts show which hosts run out of URLs, so this comes last.
        self._leases.renew(now, further=not event.full)

    def _contact_due(self, room: int, now: Moment) -> None:
        desk, began = self._desk, self._stopwatch()
        most = len(desk.under_way) + room
        for host in desk.hosts.take_due(now.boot, room):
            self._advance(host, most, now)
            self._work_off(now)
            if len(desk.under_way) >= most or len(desk.actions) >= DECISIONS_MAX:
                return
            if self._stopwatch() > began + CONTACTING_S_MAX:
                return

    def _advance(self, host: HostWork, most: int, now: Moment) -> None:
        """Contact a host as often as it may be contacted now; then it waits, or is given back."""
        desk = self._desk
        desk.changed.append(host)
        while (host.tasks or host.guests) and len(desk.under_way) < most and len(desk.actions) < DECISIONS_MAX:
            if not host.may_contact(now.boot, desk.settings.per_host):
                return
            self._contact(host, now)

    def _contact(self, host: HostWork, now: Moment) -> None:
        """Let a guest in, or take the next URL as far as it goes: to robots.txt, to a decision without contact, or to
        the site."""
        if host.guests:
            self._robots.let_in(host.guests.popleft(), host, now)
            return
        task = host.tasks[0]
        if not is_asked_for_here(task, host.host):
            host.tasks.popleft()
            self._desk.settle(host, task, Outcome.FAILED, kind=FailureKind.TRAP, error=NOT_FROM_HERE)
            return
        scheme = scheme_of(task.url)
        if wait_s := self._backing_off.wait_s(host, scheme, now):
            self._backing_off.put_off(host, scheme, wait_s, now)
            return
        robots = host.robots.get(scheme)
        if robots is None or expired(robots, now):
            self._robots.start(host, scheme, now)
            return
        line = self._desk.robots_line
        if not line.admits(host, robots, now.boot):
            return
        host.tasks.popleft()
        if scheme == "http" and host.hsts_until > now.wall:
            target = "https:" + task.url.partition(":")[2]
            self._desk.settle(host, task, Outcome.REDIRECTED, status=HSTS_STATUS, redirect_to=target)
        elif not line.allows(robots, asked_url(task), now.boot):
            error = robots.denial(asked_url(task))
            self._desk.settle(host, task, Outcome.DENIED, kind="robots", error=error)
        else:
            self._desk.begin(self._page(host, task), now)
        self._leases.check(host, now)

    def _page(self, host: HostWork, task: Assignment) -> FetchPage:
        settings = self._desk.settings
        # A sitemap may be larger than the crawl's pages, and may be an archive.
        sitemap = may_be_sitemap(task)
        return FetchPage(
            host,
            task,
            asked_url(task),
            host.send_by,
            cookie_for(task, self._desk.cookies),
            settings.sitemap_bytes_max if sitemap else 0,
            None if sitemap else settings.types,
        )


def _added_up(results: Sequence[tuple[HostWork, int]]) -> Counter[HostWork]:
    counts: Counter[HostWork] = Counter()
    for host, count in results:
        counts[host] += count
    return counts


def is_asked_for_here(task: Assignment, host: str) -> bool:
    """Whether a URL belongs to the host of its lease, in the form in which drumlin writes URLs. A coordinator that was
    lied to may give out others: they would be asked for at another host's pace and by its rules, or end the process."""
    url = task.url
    return canonical(url) == url and host_of(url) == host and all(canonical(one) == one for one in task.redirects)
