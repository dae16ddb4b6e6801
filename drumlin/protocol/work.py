"""What a node asks for and is given: leases of hosts, and the URLs to fetch under them.

An assignment is one URL of a lease. Its id carries everything that a coordinator will need to know about it later, so
no coordinator has to remember it: `NODE:REQUEST.SHARD.N.SEAL/TASK.DEPTH.ATTEMPTS.SEAL`. The part before the slash is
the lease's id. The first seal binds the lease to its host, the second binds the assignment to its URL. Only
coordinators can make seals (`access/seals.py`); nodes send them back unchanged.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from drumlin.protocol.limits import (
    HOSTS_MAX,
    RENEWALS_MAX,
    VISITS_MAX,
    Count,
    HostText,
    LeaseId,
    Sponsor,
    TraceParent,
)
from drumlin.protocol.states import CrawlState


class WorkRequest(msgspec.Struct):
    """A node has room for `max_hosts` further hosts and `max_tasks` URLs. `renew` names leases, with their hosts, that
    need more time and URLs. `hosts` is how many hosts the node holds, `unstarted` how many of their URLs it has not
    begun. `scope_version` is how many of the seeds that joined the scope during the crawl the node knows. `flat` asks
    for `assignments` beside `leases`. `visits` names hosts that the node must contact although it wants none of their
    URLs; `visits_for` names, in the same order, the leases for whose sake it must."""

    max_tasks: Annotated[int, msgspec.Meta(ge=0, le=100_000)]
    preferred_domains: Annotated[list[HostText], msgspec.Meta(max_length=100)] = []
    max_hosts: Annotated[int, msgspec.Meta(ge=0, le=HOSTS_MAX)] | None = None
    request_id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{0,64}\Z")] = ""
    renew: Annotated[list[tuple[LeaseId, HostText]], msgspec.Meta(max_length=RENEWALS_MAX)] = []
    scope_version: Count = 0
    flat: bool = True
    unstarted: Count = 0
    hosts: Count | None = None
    visits: Annotated[list[HostText], msgspec.Meta(max_length=VISITS_MAX)] = []
    visits_for: Annotated[list[Sponsor], msgspec.Meta(max_length=VISITS_MAX)] = []


class Assignment(msgspec.Struct):
    """One URL to fetch, no sooner than `not_before` and no later than `deadline` (seconds since the epoch)."""

    assignment_id: str
    url: str
    priority: int
    deadline: float
    host: str
    not_before: float
    depth: int = 0
    attempts: int = 0
    found_on: str = ""
    redirects: tuple[str, ...] = ()

    @property
    def number(self) -> str:
        """The task's number within its shard."""
        return self.assignment_id.rpartition("/")[2].partition(".")[0]


class FlatAssignment(Assignment):
    """An assignment with all that a node needs that does not understand leases. `status` is the assignment's state as
    the coordinator sees it; `retry_count` equals `attempts`."""

    lease_id: str = ""
    node_id: str = ""
    domain: str = ""
    assigned_at: float = 0.0
    status: str = "in_progress"
    retry_count: int = 0


class WorkLease(msgspec.Struct):
    """The right to contact one host for `ttl_s`, counted from the moment the node sent its request. The first contact
    may happen `wait_s` after the node got the answer, further ones at least `min_delay_s` apart. `rate` is how many
    contacts a second that allows. `host_delay_s` is the delay that this host itself asked for, which stays even if the
    crawl's delay changes. `note` is what earlier leases learnt about the host; `robots` is for people to read."""

    lease_id: str
    host: str
    ttl_s: float
    min_delay_s: float
    assignments: list[Assignment]
    wait_s: float = 0.0
    rate: float | None = None
    robots: str | None = None
    note: bytes = b""
    host_delay_s: float = 0.0

    def __repr__(self) -> str:
        """Without the seal, and without the URLs, of which there may be thousands."""
        return (
            f"<WorkLease {shown_lease(self.lease_id)} of {self.host}: {self.ttl_s:g} s, {len(self.assignments)} URLs>"
        )


class Work(msgspec.Struct):
    """`lost` names the hosts whose leases could not be renewed. `scope_seeds` is set when the node does not know all
    seeds that joined the scope during the crawl. A host that may be visited has a lease without assignments. If another
    node holds it, or its next contact is not due, `notes` has what earlier leases learnt about it instead. A changed
    `lost_at` means that the frontier has lost data: the node must send again the links that it sent before. `traces`
    has the W3C `traceparent` of assignments that are traced, by their ids."""

    leases: list[WorkLease]
    assignments: list[FlatAssignment]
    retry_after_s: float
    state: CrawlState = CrawlState.RUNNING
    lost: list[str] = []
    scope_seeds: list[str] = []
    scope_version: int = 0
    notes: dict[str, bytes] = {}
    lost_at: float = 0.0
    traces: dict[str, TraceParent] = {}


class AssignmentKey(msgspec.Struct, frozen=True, gc=False):
    """What an assignment's id says. Only checking its seal shows whether it is true."""

    node: str
    lease_id: str
    task_id: int
    depth: int
    attempts: int
    seal: str


def shown_lease(text: str) -> str:
    """The id of a lease, or that of an assignment's lease, as logs show it: without the seal that makes it valid."""
    return text.partition("/")[0].rpartition(".")[0]


def read_assignment_id(text: str) -> AssignmentKey | None:
    """The parts of an assignment's id; None when it cannot be one."""
    lease_id, _, rest = text.rpartition("/")
    node, colon, _ = lease_id.partition(":")
    parts = rest.split(".")
    if not colon or len(parts) != 4:
        return None
    task_id, depth, attempts, seal = parts
    if not (task_id + depth + attempts).isdecimal():
        return None
    try:
        return AssignmentKey(node, lease_id, int(task_id), int(depth), int(attempts), seal)
    except ValueError:
        return None
