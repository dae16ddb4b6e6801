"""The hosts a node holds leases of, and when each may be contacted.

The law of this file: between two contacts of a host lie at least `delay_s`, counted from the moment the answer to the
first began to arrive (its request must have reached the server by then). So the server can never see them closer,
however the network delays either. With `per_host` > 1 there is no answer to wait for: the delay counts from sending.

A host that is held waits for one thing at a time:

    phase          what it waits for                                        what ends that
    TIME           the moment of its next contact, or room for one          Tick
    ROBOTS         robots.txt; none of its URLs may be asked for before     RobotsArrived, VisitEnded, TooLate
    ANSWERS        answers: as many requests as allowed are under way       PageArrived, RobotsArrived, TooLate
    COORDINATOR    nothing is left to ask for; results are on their way     Sending, Answered, Renewed (further URLs)
    OVER           nothing: its lease is given back before the event ends

OVER is the last phase; all other changes are possible. (A lease that came for a visit has nothing to do until its
guests come, with the next event.)
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from drumlin.contact.rules import robots_of
from drumlin.contact.terms import Silence
from drumlin.frontier import recovered_s, slowed_s
from drumlin.protocol import Assignment, HostNote, WorkLease, read_note, write_note
from drumlin.robots import as_noted

LEASE_MARGIN_S = 0.5
RENEW_SHARE = 0.5
RENEW_ALONG_SHARE = 0.7
"""A lease is renewed when less than so much of its time is left: the first by itself, the second in a call that is made
for another lease. So the leases of a node are soon renewed together, in one call where there were many."""
EMPTY_WAIT_S, EMPTY_WAIT_MAX_S = 0.5, 8.0
"""After an answer without further URLs the next question for them waits so long, and twice as long each time that there
are none again. Nodes with slow pages would otherwise ask more often than they fetch."""
STALE_MAX = 3
"""Requests in a row that may be lost with their connections before it counts as a failure."""


class Phase(StrEnum):
    """What a host waits for."""

    TIME = "time"
    ROBOTS = "robots"
    ANSWERS = "answers"
    COORDINATOR = "coordinator"
    OVER = "over"


def scheme_of(url: str) -> str:
    return url.partition(":")[0]


class Suspect(msgspec.Struct):
    """A URL that was asked for and not answered, which may be the host's fault: its end, should it be its own."""

    task: Assignment
    answer: Silence
    wall: float


class HostWork:
    """One leased host: its URLs to fetch, its pace, its robots rules."""

    __slots__ = (
        "backoff",
        "contacted",
        "delay_s",
        "empty_wait_s",
        "ending",
        "exhausted_until",
        "expires",
        "granted",
        "guests",
        "host",
        "host_delay_s",
        "hsts_until",
        "in_flight",
        "last_contact_answered",
        "lease_delay_s",
        "lease_id",
        "next_contact",
        "note_changed",
        "renewing",
        "robots",
        "robots_in_flight",
        "robots_query",
        "robots_turn",
        "sent",
        "settings_delay_s",
        "slow_s",
        "slowed_at",
        "stale",
        "suspects",
        "tasks",
        "ttl_s",
        "unanswered",
        "unsettled",
        "waiting",
    )

    def __init__(self, lease: WorkLease, sent: float, now: float, delay_s: float, agent: str) -> None:
        self.host = lease.host
        self.lease_id = lease.lease_id
        self.ttl_s = lease.ttl_s
        self.granted = self.sent = sent
        """When the request left that its last grant or renewal answered."""
        self.expires = sent + lease.ttl_s
        self.ending = False
        """Nothing more is begun under this lease: it is given back as soon as what has begun is settled."""
        self.next_contact = now + lease.wait_s
        self.contacted = float("-inf")
        """When the last contact under this lease reached the host, from which the delay counts."""
        self.settings_delay_s = delay_s
        """--delay, as far as this node knows."""
        self.lease_delay_s = lease.min_delay_s
        """What the coordinator demanded with the lease: --delay as it knows it, or this host's own, if that is more."""
        self.host_delay_s = lease.host_delay_s
        """This host's own, without --delay: what it asked for under earlier leases, or an operator has set."""
        self.tasks: deque[Assignment] = deque(lease.assignments)
        self.in_flight = 0
        self.unsettled = 0
        """Results that have arrived and are not archived yet."""
        self.unanswered = 0
        """Results that are archived and on their way to the coordinator."""
        self.last_contact_answered = False
        """Whether the host answered the last contact under this lease."""
        self.suspects: dict[str, Suspect] = {}
        """URLs whose failure may be the host's, which its robots.txt is asked for to know."""
        self.renewing = False
        self.waiting = False
        self.exhausted_until = 0.0
        """Until then, asking for further URLs would hardly bring any."""
        self.empty_wait_s = EMPTY_WAIT_S
        self.note_changed = False
        self.guests: deque[RobotsQuery] = deque()
        """Queries of other hosts, whose robots.txt lead here."""
        self.robots_query: RobotsQuery | None = None
        """A query for its own robots.txt that is to go on at the next contact."""
        self.robots_in_flight = False
        self.robots_turn: float | None = None
        """When its rules may be asked, if they are so long that it has to wait for its turn."""
        self.stale = 0
        """How many requests in a row were lost on connections that were not new."""
        note = read_note(lease.note)
        self.hsts_until = note.hsts_until
        self.backoff = note.backoff
        self.slow_s = note.slow_s
        """The longer delay that holds for a while because the host said that it was asked too often."""
        self.slowed_at = float("-inf")
        self.robots = robots_of(note, agent)
        self.delay_s = self._least_delay_s()
        """The delay that counts: the longest of all these and of the Crawl-delay in its robots.txt."""

    def __repr__(self) -> str:
        work = f"{len(self.tasks)} URLs, {self.in_flight} under way, {self.unsettled + self.unanswered} to settle"
        return f"<HostWork {self.host} until {self.expires:.3f}: {work}, next contact at {self.next_contact:.3f}>"

    def _least_delay_s(self) -> float:
        return max(self._usual_delay_s(), self.slow_s)

    def _usual_delay_s(self) -> float:
        asked_s = max((robots.crawl_delay_s for robots in self.robots.values()), default=0.0)
        return max(self.settings_delay_s, self.lease_delay_s, self.host_delay_s, asked_s)

    def slow_down(self, asked_at: float, now: float) -> None:
        """The site wants to be asked less often: twice the delay from now on. Answers to what was asked before we knew
        say nothing new."""
        if asked_at >= self.slowed_at:
            self.slowed_at = now
            self._change_slowness(slowed_s(self.delay_s))

    def recover(self) -> None:
        """An answer came as it should: go a little faster again."""
        self._change_slowness(recovered_s(self.slow_s, self._usual_delay_s()))

    def _change_slowness(self, slow_s: float) -> None:
        self.slow_s = slow_s
        self.note_changed = True
        self._change_pace()

    def follow_delay(self, settings_delay_s: float) -> None:
        """The crawl has another delay: what the lease said counts only as far as it is the host's own wish."""
        self.settings_delay_s, self.lease_delay_s = settings_delay_s, self.host_delay_s
        self._change_pace()

    def _change_pace(self) -> None:
        """Count the delay that holds from now on from the last contact. Other reasons to wait stay as they are."""
        before, self.delay_s = self.delay_s, self._least_delay_s()
        if self.delay_s > before:
            self.next_contact += self.delay_s - before
        elif self.next_contact <= self.contacted + before:
            self.next_contact = self.contacted + self.delay_s

    def note(self) -> bytes:
        """What to remember of this host beyond the lease."""
        robots = as_noted({scheme: known.decision for scheme, known in self.robots.items()})
        return write_note(HostNote(robots, self.hsts_until, self.backoff, self.slow_s))

    @property
    def wanted(self) -> bool:
        """Whether the lease must not run out: there is work left or under way, or there are results. Both surely count
        only while it lasts: a page may take longer than a lease."""
        return bool(self.tasks or self.guests or self.in_flight or self.unsettled or self.unanswered)

    def phase(self, per_host: int) -> Phase:
        """What it waits for."""
        if self.tasks or self.guests:
            if self.waits_for_robots:
                return Phase.ROBOTS
            return Phase.ANSWERS if self.in_flight >= per_host else Phase.TIME
        if self.in_flight:
            return Phase.ANSWERS
        return Phase.COORDINATOR if self.unsettled or self.unanswered else Phase.OVER

    def may_contact(self, now: float, per_host: int) -> bool:
        return self.phase(per_host) is Phase.TIME and self.next_contact <= now and not self.expired(now)

    def may_begin(self, since: float, until: float) -> int:
        """How many of its URLs may be begun in this time if all answers are quick."""
        begin = max(since, self.next_contact)
        if begin > until or self.waits_for_robots:
            return 0
        return min(len(self.tasks), 1 + int((until - begin) / self.delay_s)) if self.delay_s else len(self.tasks)

    @property
    def waits_for_robots(self) -> bool:
        """Its URLs must wait until robots.txt has come. Guests need not, or hosts could wait for each other."""
        return self.robots_in_flight and not self.guests

    def expired(self, now: float) -> bool:
        """Whether somebody else may have the host by now, or very soon."""
        return now >= self.expires - LEASE_MARGIN_S

    def went_down_with_connection(self, stale: bool, per_host: int) -> bool:
        """Whether a request was lost on a connection that its server, or a neighbour on it, had just closed. Such a
        request counts as a contact, since the server may have seen it, but not as an attempt. It is sent again when the
        next contact is due, a few times."""
        self.stale = self.stale + 1 if stale else 0
        return 0 < self.stale <= STALE_MAX * per_host

    @property
    def send_by(self) -> float:
        """Until when a request of this lease may leave. Whoever sends it looks at the clock at the very moment of
        sending: a process can freeze, and connecting takes time."""
        return self.expires - LEASE_MARGIN_S

    def wants_renewal(self, now: float, tasks_low: int) -> bool:
        """Its time runs out, or its URLs do and asking lately did not say that there are no more."""
        if self.renewing:
            return False
        return self.runs_out(now) or (now >= self.exhausted_until and 0 < len(self.tasks) <= tasks_low)

    def look_due(self, tasks_low: int) -> float:
        """When a look at this lease will find something to do: to renew it, or that it has run out."""
        expires = self.expires
        if self.renewing or not self.wanted:
            return expires
        runs_out_at = expires - self.ttl_s * RENEW_SHARE
        if 0 < len(self.tasks) <= tasks_low and self.exhausted_until < runs_out_at:
            return self.exhausted_until
        return runs_out_at

    def runs_out(self, now: float) -> bool:
        """Whether much of the lease's time has passed."""
        return now >= self.expires - self.ttl_s * RENEW_SHARE

    def joins_renewal(self, now: float) -> bool:
        """Whether to renew this lease along with others, though it could wait for a while."""
        if self.renewing or not self.wanted:
            return False
        return 0.0 < self.expires - now < self.ttl_s * RENEW_ALONG_SHARE

    def renew(self, lease: WorkLease, sent: float, now: float, *, further: bool = True) -> None:
        """Take more time, and more URLs unless the lease is given back soon: then they return with it. `further` is
        whether any were asked for."""
        if sent <= self.sent:
            # Heard twice, or overtaken by a later one.
            return
        self.renewing = False
        self.sent = sent
        self.expires = sent + lease.ttl_s
        if (lease.min_delay_s, lease.host_delay_s) != (self.lease_delay_s, self.host_delay_s):
            self.lease_delay_s, self.host_delay_s = lease.min_delay_s, lease.host_delay_s
            self._change_pace()
        if not self.ending:
            self.tasks.extend(lease.assignments)
        if lease.assignments:
            self.empty_wait_s = EMPTY_WAIT_S
        elif further:
            self.exhausted_until = now + self.empty_wait_s
            self.empty_wait_s = min(2.0 * self.empty_wait_s, EMPTY_WAIT_MAX_S)


class RobotsQuery(msgspec.Struct, eq=False):
    """One look for the robots.txt of a host, which may lead through redirects, to other hosts too."""

    host: HostWork
    scheme: str
    url: str
    cookie: str = ""
    chain: list[str] = []
    redirects: int = 0
    refusals: int = 0
    """How often the host that a redirect led to could not be had."""


class HostTable:
    """All leased hosts, with a heap of those that wait for their next contact."""

    def __init__(self) -> None:
        self.by_name: dict[str, HostWork] = {}
        self._due: list[tuple[float, int, HostWork]] = []
        self._tie = 0

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def unstarted(self) -> int:
        """How many URLs are not begun."""
        return sum(len(work.tasks) for work in self.by_name.values())

    def may_begin(self, since: float, until: float) -> int:
        """How many URLs may be begun in this time if all answers are quick."""
        return sum(work.may_begin(since, until) for work in self.by_name.values() if work.tasks)

    def ages_s(self, now: float) -> list[float]:
        """For how long each host is held."""
        return [now - work.granted for work in self.by_name.values()]

    def last_leases(self, most: int) -> list[str]:
        """Some leases with URLs not begun, those that are contacted last first."""
        unstarted = [work for work in self.by_name.values() if work.tasks]
        return [work.lease_id for work in heapq.nlargest(most, unstarted, key=lambda work: work.next_contact)]

    def wait(self, work: HostWork) -> None:
        """Have `take_due` offer this host when its next contact is allowed."""
        if work.waiting:
            return
        work.waiting = True
        self._tie += 1
        heapq.heappush(self._due, (work.next_contact, self._tie, work))

    def rearrange(self) -> None:
        """Sort the hosts that wait again, after their next contacts were changed."""
        self._due = [(work.next_contact, tie, work) for _, tie, work in self._due]
        heapq.heapify(self._due)

    def take_due(self, now: float, most: int) -> Iterator[HostWork]:
        due = self._due
        while due and most > 0 and due[0][0] <= now:
            work = heapq.heappop(due)[2]
            work.waiting = False
            if work.next_contact > now:
                self.wait(work)
            elif self.by_name.get(work.host) is work:
                most -= 1
                yield work

    def due_within(self, until: float) -> int:
        """How many hosts become due before `until`, counting no further than needed to see a few."""
        return sum(1 for entry in self._due[:256] if entry[0] <= until)

    def next_due(self) -> float:
        return self._due[0][0] if self._due else float("inf")
