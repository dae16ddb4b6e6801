"""The law of contact under arbitrary events: no contact closer than the delay, none without a live lease, none of a
denied URL, every URL ends once, and what cannot have happened changes nothing."""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from drumlin.contact.actions import AskVisit, FetchPage, FetchRobots, Renew, Report, Settle, SettlePage
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
from drumlin.contact.hosts import HostWork, Phase
from drumlin.model import Outcome
from drumlin.protocol import CrawlState, WorkLease
from tests.harness.contacts import SETTINGS, Driver, Heard, heard, lease_of

DELAY_S = 1.0
TTL_S = 20.0
RULES = b"User-agent: *\nDisallow: /private\n"
DENY_ALL = b"User-agent: *\nDisallow: /\n"
# What each host's robots.txt is: rules, none, elsewhere, not to be had, and "go away".
ROBOTS = {"rules.test": RULES, "open.test": b"", "elsewhere.test": b"", "broken.test": b"", "closed.test": DENY_ALL}
HOSTS = sorted(ROBOTS)
FORBIDDEN = {"broken.test": "/", "closed.test": "/", "rules.test": "/private", "elsewhere.test": "/private"}
PATHS = ["/", "/1", "/2", "/private/1", "/private/2"]

hosts = st.sampled_from(HOSTS)
short_s = st.sampled_from([0.0, 0.01, 0.4, 1.0, 2.5])


class Lease:
    """A lease as the coordinator knows it."""

    def __init__(self, made: WorkLease, expires: float) -> None:
        self.made = made
        self.expires = expires
        self.over = False


class LawUnderArbitraryEvents(RuleBasedStateMachine):
    """Plays coordinator, network and sites, and remembers all that a server would have seen."""

    @initialize(per_host=st.sampled_from([1, 1, 2]))
    def begin(self, per_host: int) -> None:
        self.driver = Driver(delay_s=DELAY_S, per_host=per_host, cookies="chain")
        self.per_host = per_host
        self.delay_s = DELAY_S
        self.leases: dict[str, Lease] = {}
        self.due: dict[str, float] = {}
        """When the coordinator would have each host contacted next."""
        self.notes: dict[str, bytes] = {}
        self.last_contact: dict[str, tuple[float, str]] = {}
        """When each host was contacted last, and under which lease."""
        self.pending: list[FetchPage | FetchRobots] = []
        self.ended: list[Event] = []
        self.renewals: list[Renew] = []
        self.visits: list[AskVisit] = []
        self.unsent: list[HostWork] = []
        self.unanswered: list[HostWork] = []
        self.settled: set[str] = set()
        self.serial = 0

    # What the law decides is checked as it comes

    def tell(self, event: Event) -> None:
        held = [host for host in self.driver.hosts.values() if not is_for_a_visit(host)]
        before = {host: host.phase(self.per_host) for host in held}
        for action in self.driver.tell(event):
            self.check(action)
        for host, phase in before.items():
            assert phase is not Phase.OVER or host.phase(self.per_host) is Phase.OVER, (host.host, event)

    def check(self, action: object) -> None:
        match action:
            case FetchPage() | FetchRobots():
                self.check_contact(action)
            case Settle() | SettlePage():
                self.check_end(action)
            case Renew():
                self.renewals.append(action)
            case AskVisit():
                assert action.host not in {visit.host for visit in self.visits}, "one call for a host at a time"
                self.visits.append(action)
            case Report(report):
                if report.note is not None:
                    self.notes[report.host] = report.note
                self.due[report.host] = self.driver.now + report.next_contact_s
                if report.release:
                    self.give_back(report.lease_id, report.host)

    def check_contact(self, fetch: FetchPage | FetchRobots) -> None:
        host, now = fetch.host.host, self.driver.now
        lease = self.leases[host]
        assert lease.made.lease_id == fetch.host.lease_id, "not under an older lease"
        assert not lease.over
        assert now < fetch.send_by < lease.expires
        last, _ = self.last_contact.get(host, (float("-inf"), ""))
        if self.per_host == 1:
            assert now >= last + self.delay_s - 1e-6, (now, last)
            assert sum(other.host is fetch.host for other in self.pending) == 0, "one at a time"
        self.last_contact[host] = (now, lease.made.lease_id)
        if isinstance(fetch, FetchPage):
            denied = FORBIDDEN.get(host)
            assert denied is None or not fetch.url.partition(".test")[2].startswith(denied), fetch.url
        self.pending.append(fetch)

    def check_end(self, action: Settle | SettlePage) -> None:
        assert action.task.assignment_id not in self.settled, "a URL ends once"
        self.settled.add(action.task.assignment_id)
        self.unsent.append(action.host)
        if isinstance(action, Settle) and action.outcome is Outcome.DENIED:
            assert FORBIDDEN[action.host.host] in action.task.url

    def give_back(self, lease_id: str, host: str) -> None:
        lease = self.leases.get(host)
        if lease is not None and lease.made.lease_id == lease_id:
            lease.over = True

    # Leases

    def lease(self, host: str, paths: list[str]) -> WorkLease | None:
        """A lease, if the coordinator may give one: no other is live, and the host's time has come or will."""
        now, before = self.driver.now, self.leases.get(host)
        if before is not None and not before.over and now < before.expires:
            return None
        due = self.due.get(host, 0.0)
        if before is not None and not before.over:
            due = max(due, before.expires + self.delay_s)
        self.serial += 1
        lease_id = f"n0:{self.serial}"
        wait_s = max(0.0, due - now)
        made = lease_of(
            host,
            *paths,
            lease_id=lease_id,
            note=self.notes.get(host, b""),
            ttl_s=TTL_S,
            min_delay_s=self.delay_s,
            wait_s=wait_s,
        )
        self.leases[host] = Lease(made, now + TTL_S)
        return made

    @rule(host=hosts, paths=st.lists(st.sampled_from(PATHS), min_size=0, max_size=3, unique=True))
    def grant(self, host: str, paths: list[str]) -> None:
        lease = self.lease(host, paths)
        if lease is not None:
            sent = self.driver.now
            self.tell(Granted(lease, sent))
            self.ended.append(Granted(lease, sent))

    @precondition(lambda self: self.renewals)
    @rule(how=st.sampled_from(["renew", "lose", "fail"]), path=st.sampled_from(PATHS))
    def answer_renewal(self, how: str, path: str) -> None:
        renewal, lost = self.renewals.pop(0), []
        if how == "fail":
            self.tell(RenewalEnded(again_s=1.0))
            return
        for lease_id, host in renewal.leases:
            lease = self.leases[host]
            live = lease.made.lease_id == lease_id and not lease.over and self.driver.now < lease.expires
            if how == "lose" or not live:
                lost.append(host)
                if lease.made.lease_id == lease_id and not lease.over:
                    lease.over = True
                    self.due[host] = max(self.due.get(host, 0.0), lease.expires + self.delay_s)
                continue
            self.serial += 1
            lease.expires = self.driver.now + TTL_S
            more = lease_of(host, path, lease_id=f"{lease_id}+{self.serial}").assignments
            self.tell(Renewed(replace(lease.made, assignments=more), self.driver.now))
        self.tell(RenewalEnded(lost))

    @precondition(lambda self: self.visits)
    @rule(grants=st.booleans())
    def answer_visit(self, grants: bool) -> None:
        visit = self.visits.pop(0)
        lease = self.lease(visit.host, []) if grants else None
        if lease is not None:
            self.tell(Granted(lease, self.driver.now))
        self.tell(VisitEnded(visit.host, b"" if lease is not None else self.notes.get(visit.host, b"")))

    @rule(host=hosts)
    def revoke(self, host: str) -> None:
        if host in self.leases:
            self.tell(Revoked([self.leases[host].made.lease_id, "n0:unknown"]))

    # Time and the crawl

    @rule(passed_s=short_s, room=st.integers(0, 5), full=st.booleans())
    def tick(self, passed_s: float, room: int, full: bool) -> None:
        self.driver.now += passed_s
        before = len(self.pending)
        self.tell(Tick(room, full))
        assert len(self.pending) - before <= (0 if full else room)
        self.tell(WorkEnded(0.0))

    @rule(passed_s=st.sampled_from([5.0, 30.0]))
    def freeze(self, passed_s: float) -> None:
        self.driver.now += passed_s

    @rule(state=st.sampled_from([CrawlState.RUNNING, CrawlState.RUNNING, CrawlState.PAUSED]))
    def follow(self, state: CrawlState) -> None:
        self.tell(StateChanged(state))

    @rule(delay_s=st.sampled_from([DELAY_S, 3.0]))
    def change_delay(self, delay_s: float) -> None:
        # Nor does the coordinator give a host out before the delay that holds now has passed.
        longer_s = max(0.0, delay_s - self.delay_s)
        self.due = {host: at + longer_s for host, at in self.due.items()}
        self.delay_s = delay_s
        changed = replace(SETTINGS, delay_s=delay_s, per_host=self.per_host, cookies="chain")
        self.tell(SettingsChanged(changed))

    # Answers

    def take(self, place: int) -> FetchPage | FetchRobots:
        return self.pending.pop(place % len(self.pending))

    def end(self, fetch: FetchPage | FetchRobots, answer: Heard, body: bytes = b"") -> None:
        event: Event = (
            PageArrived(fetch, answer) if isinstance(fetch, FetchPage) else RobotsArrived(fetch, answer, body)
        )
        _, lease_id = self.last_contact[fetch.host.host]
        if lease_id == fetch.host.lease_id:
            # By now the request has reached the server, not before.
            self.last_contact[fetch.host.host] = (answer.first_byte, lease_id)
        self.tell(event)
        self.ended.append(event)

    @precondition(lambda self: self.pending)
    @rule(place=st.integers(0, 9), status=st.sampled_from([200, 200, 200, 302, 404, 429, 500, 503]), told=st.booleans())
    def answer(self, place: int, status: int, told: bool) -> None:
        fetch, now = self.take(place), self.driver.now
        if isinstance(fetch, FetchRobots):
            self.answer_robots(fetch)
        elif status == 302:
            cookie = "a=1" if told else ""
            self.end(fetch, heard(302, now, Location="/1" if told else fetch.url, Set_Cookie=cookie))
        else:
            self.end(fetch, heard(status, now, Retry_After="7" if told and status in (429, 503) else ""))

    def answer_robots(self, fetch: FetchRobots) -> None:
        place, now = fetch.host.host, self.driver.now
        if place == "elsewhere.test":
            self.end(fetch, heard(301, now, Location="http://rules.test/robots.txt"))
        elif place == "broken.test":
            self.end(fetch, heard(503, now))
        else:
            self.end(fetch, heard(200 if ROBOTS[place] else 404, now), ROBOTS[place])

    @precondition(lambda self: self.pending)
    @rule(place=st.integers(0, 9), kind=st.sampled_from(["reset", "timeout", "connect", "dns"]), stale=st.booleans())
    def fail(self, place: int, kind: str, stale: bool) -> None:
        fetch, now = self.take(place), self.driver.now
        sent = int(kind in ("reset", "timeout"))
        self.end(fetch, Heard(0, kind, "made up", sent, bool(stale and sent), [], "", now, now, now))

    @precondition(lambda self: self.pending)
    @rule(place=st.integers(0, 9))
    def come_too_late(self, place: int) -> None:
        fetch = self.take(place)
        self.tell(TooLate(fetch))
        self.ended.append(TooLate(fetch))

    # Results

    @precondition(lambda self: self.unsent)
    @rule()
    def send(self) -> None:
        counted = {host: self.unsent.count(host) for host in self.unsent}
        self.unanswered += self.unsent
        self.unsent = []
        self.tell(Sending(list(counted.items())))

    @precondition(lambda self: self.unanswered)
    @rule()
    def answer_results(self) -> None:
        counted = {host: self.unanswered.count(host) for host in self.unanswered}
        self.unanswered = []
        self.tell(Answered(list(counted.items())))

    # What was told before, and what cannot be

    @precondition(lambda self: self.ended)
    @rule(place=st.integers(0, 99))
    def tell_again(self, place: int) -> None:
        event = self.ended[place % len(self.ended)]
        held = isinstance(event, Granted) and self.driver.hosts.get(event.lease.host)
        if isinstance(event, Granted) and (not held or held.lease_id != event.lease.lease_id):
            return
        before = self.snapshot()
        assert self.driver.tell(event) == []
        assert self.snapshot() == before

    @rule(host=hosts, what=st.integers(0, 3))
    def tell_the_impossible(self, host: str, what: int) -> None:
        stranger = HostWork(lease_of(host, "/1"), 0.0, 0.0, DELAY_S, "drumlin")
        held = self.driver.hosts.get(host, stranger)
        task = lease_of(host, "/1").assignments[0]
        page = FetchPage(stranger, task, task.url, 0.0, "", 0, None)
        impossible: list[Event] = [
            PageArrived(page, heard(200, self.driver.now)),
            RobotsArrived(page, heard(200, self.driver.now)),  # type: ignore[arg-type]
            Sending([(held, held.unsettled + 1)]),
            Answered([(held, held.unanswered + 1)]),
        ]
        before = self.snapshot()
        with pytest.raises(IllegalEvent):
            self.driver.contacts.handle(impossible[what], self.driver.moment)
        assert self.snapshot() == before

    def snapshot(self) -> Any:
        contacts = self.driver.contacts
        return contacts.state, contacts.under_way, {name: _fields(host) for name, host in self.driver.hosts.items()}

    @invariant()
    def nothing_is_held_for_nothing(self) -> None:
        for host in self.driver.hosts.values() if hasattr(self, "driver") else ():
            assert host.phase(self.per_host) is not Phase.OVER or is_for_a_visit(host), host.host

    def teardown(self) -> None:
        """Whatever has happened: once everything is answered and the crawl ends, every lease is given back."""
        if not hasattr(self, "driver"):
            return
        self.tell(StateChanged(CrawlState.DRAINING))
        while self.pending:
            self.tell(TooLate(self.pending.pop()))
        while self.visits:
            self.answer_visit(grants=False)
        self.send()
        self.answer_results()
        self.tell(Tick(5))
        assert (self.driver.hosts, self.pending, self.driver.contacts.under_way) == ({}, [], 0)


def is_for_a_visit(host: HostWork) -> bool:
    """Whether its lease came without URLs: the next event brings a guest, or the next tick gives it back."""
    return not host.tasks and not host.guests and host.waiting


def _fields(host: HostWork) -> dict[str, Any]:
    """Everything about a host, with copies of what can change in place."""
    values = {name: getattr(host, name) for name in HostWork.__slots__}
    return {name: copy(value) if isinstance(value, dict | deque) else value for name, value in values.items()}


LawUnderArbitraryEvents.TestCase.settings = hypothesis_settings(max_examples=150, stateful_step_count=60, deadline=None)
TestTheLawHoldsUnderArbitraryEvents = LawUnderArbitraryEvents.TestCase
