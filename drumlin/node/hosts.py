"""The hosts a node holds leases of, and when each may be contacted.

The law of this file: between two contacts of a host lie at least `delay_s`, counted from the moment the answer to the
first began to arrive (its request must have reached the server by then), so that the server can never see them closer,
however the network delays either. With `per_host` > 1 there is no answer to wait for: it is counted from sending.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from drumlin.clock import monotonic
from drumlin.fetch import Transfer
from drumlin.frontier import recovered_s, slowed_s
from drumlin.protocol import Assignment, HostNote, WorkLease
from drumlin.robots import CRAWL_DELAY_MAX_S, Decision, PreparedFiles, Rules, product_token

if TYPE_CHECKING:
    from drumlin.node.archive import Arrival
    from drumlin.node.contact import RobotsContact

LEASE_MARGIN_S = 0.5
RENEW_SHARE = 0.5
RENEW_EMPTY_WAIT_S = 0.5
STALE_MAX = 3
"""Requests in a row that may be lost with their connections before it counts as a failure."""

_note_encoder = msgspec.msgpack.Encoder()
_note_decoder = msgspec.msgpack.Decoder(HostNote)
_decision_decoder = msgspec.msgpack.Decoder(Decision)
_files = PreparedFiles()


class Robots:
    """What robots.txt of one scheme of a host lets us do, until it expires. Leases come with the rules of hundreds of
    hosts at once: a file is parsed when the first URL is asked about."""

    __slots__ = ("_agent", "crawl_delay_s", "decision")

    def __init__(self, decision: Decision, agent: str) -> None:
        self._agent = agent
        self.decision = decision
        self.crawl_delay_s = self._known_delay_s()
        if self.crawl_delay_s < 0.0:
            self.crawl_delay_s = self.rules.crawl_delay(agent) or 0.0
            delay = (product_token(agent), self.crawl_delay_s)
            self.decision = msgspec.structs.replace(decision, asked_delay=delay)

    def _known_delay_s(self) -> float:
        """The delay that was found when the file was read; less than 0 when it was read for somebody else."""
        if self.decision.rules_body is None:
            return 0.0
        reader, delay_s = self.decision.asked_delay or ("", -1.0)
        return delay_s if reader == product_token(self._agent) and 0.0 <= delay_s <= CRAWL_DELAY_MAX_S else -1.0

    @property
    def rules(self) -> Rules:
        return _files.of(self.decision.rules_body or b"")

    def allows(self, url: str) -> bool:
        if self.decision.deny_all:
            return False
        return self.decision.allow_all or self.rules.allowed(self._agent, url)


def scheme_of(url: str) -> str:
    return url.partition(":")[0]


def read_note(raw: bytes) -> HostNote:
    return _note_decoder.decode(raw) if raw else HostNote()


def robots_of(note: HostNote, agent: str) -> dict[str, Robots]:
    """What robots.txt of each scheme says to `agent`, as far as the host's note knows. The note may be
    about an agent that the crawl was called by before."""
    decisions = {scheme: _decision_decoder.decode(raw) for scheme, raw in note.robots.items()}
    known = {scheme: one for scheme, one in decisions.items() if one.agent in ("", product_token(agent))}
    return {scheme: Robots(decision, agent) for scheme, decision in known.items()}


class HostWork:
    """One leased host: its URLs to fetch, its pace, its robots rules."""

    __slots__ = (
        "answered",
        "backoff",
        "contacted",
        "crawl_delay_s",
        "delay_s",
        "exhausted_until",
        "expires",
        "guests",
        "host",
        "host_delay_s",
        "hsts_until",
        "in_flight",
        "lease_delay_s",
        "lease_id",
        "next_contact",
        "note_changed",
        "renewing",
        "robots",
        "robots_contact",
        "robots_in_flight",
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
        self.expires = sent + lease.ttl_s
        self.next_contact = now + lease.wait_s
        self.contacted = float("-inf")
        """When the last contact under this lease reached the host, from which the delay counts."""
        self.crawl_delay_s = delay_s
        self.lease_delay_s = lease.min_delay_s
        self.host_delay_s = lease.host_delay_s
        self.tasks: deque[Assignment] = deque(lease.assignments)
        self.in_flight = 0
        self.unsettled = 0
        """Results that have arrived and are not archived yet."""
        self.unanswered = 0
        """Results that are archived and on their way to the coordinator."""
        self.answered = False
        """Whether the last contact under this lease was answered."""
        self.suspects: dict[str, Arrival] = {}
        """URLs whose failure may be the host's, which its robots.txt is asked for to know."""
        self.renewing = False
        self.waiting = False
        self.exhausted_until = 0.0
        self.note_changed = False
        self.guests: deque[RobotsContact] = deque()
        self.robots_contact: RobotsContact | None = None
        self.robots_in_flight = False
        self.stale = 0
        """How many requests in a row were lost on connections that were not new."""
        note = read_note(lease.note)
        self.hsts_until = note.hsts_until
        self.backoff = note.backoff
        self.slow_s = note.slow_s
        self.slowed_at = float("-inf")
        self.robots = robots_of(note, agent)
        self.delay_s = self._least_delay_s()

    def _least_delay_s(self) -> float:
        return max(self._usual_delay_s(), self.slow_s)

    def _usual_delay_s(self) -> float:
        asked_s = max((robots.crawl_delay_s for robots in self.robots.values()), default=0.0)
        return max(self.crawl_delay_s, self.lease_delay_s, self.host_delay_s, asked_s)

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

    def follow_delay(self, crawl_delay_s: float) -> None:
        """The crawl has another delay: what the lease said counts only as far as it is the host's own wish."""
        self.crawl_delay_s, self.lease_delay_s = crawl_delay_s, self.host_delay_s
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
        robots = {scheme: _note_encoder.encode(known.decision) for scheme, known in self.robots.items()}
        return _note_encoder.encode(HostNote(robots, self.hsts_until, self.backoff, self.slow_s))

    @property
    def idle(self) -> bool:
        """Nothing to fetch, no guest, and nothing on its way to the coordinator: the lease can be given back."""
        return not (self.tasks or self.guests or self.in_flight or self.unsettled or self.unanswered)

    @property
    def wanted(self) -> bool:
        """Whether the lease must not run out: there is work left, or results that surely count only while it lasts."""
        return bool(self.tasks or self.guests or self.unsettled or self.unanswered)

    def may_contact(self, now: float, per_host: int) -> bool:
        if self.in_flight >= per_host or self.waits_for_robots:
            return False
        return self.next_contact <= now and not self.expired(now)

    @property
    def waits_for_robots(self) -> bool:
        """Its URLs must wait until robots.txt has come. Guests need not, or hosts could wait for each other."""
        return self.robots_in_flight and not self.guests

    def expired(self, now: float) -> bool:
        """Whether somebody else may have the host by now, or very soon."""
        return now >= self.expires - LEASE_MARGIN_S

    def lost_request(self, transfer: Transfer, per_host: int) -> bool:
        """Whether a request was lost on a connection that its server, or a neighbour on it, had just closed: no
        attempt, but a contact, since the server may have seen it. It is sent again when the next contact is due, a few
        times."""
        self.stale = self.stale + 1 if transfer.stale else 0
        return 0 < self.stale <= STALE_MAX * per_host

    def may_send(self) -> bool:
        """Whether the lease still lasts, at the very moment when a request is about to be sent: a process can freeze,
        and connecting takes time."""
        return not self.expired(monotonic())

    def wants_renewal(self, now: float, tasks_low: int) -> bool:
        """Its time or its URLs run out, and asking lately did not say that there are no more."""
        if self.renewing or now < self.exhausted_until:
            return False
        return self.expires - now < self.ttl_s * RENEW_SHARE or 0 < len(self.tasks) <= tasks_low

    def renew(self, lease: WorkLease, sent: float, now: float) -> None:
        self.renewing = False
        self.expires = sent + lease.ttl_s
        if (lease.min_delay_s, lease.host_delay_s) != (self.lease_delay_s, self.host_delay_s):
            self.lease_delay_s, self.host_delay_s = lease.min_delay_s, lease.host_delay_s
            self._change_pace()
        self.tasks.extend(lease.assignments)
        if not lease.assignments:
            self.exhausted_until = now + RENEW_EMPTY_WAIT_S


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

    def last_leases(self, most: int) -> list[str]:
        """Some leases with URLs not begun, those that are contacted last first."""
        unstarted = (work for work in self.by_name.values() if work.tasks)
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
