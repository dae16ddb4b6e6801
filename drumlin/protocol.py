"""What nodes and coordinators say to each other, over HTTP on a Unix socket or TLS, as JSON or MessagePack.

A node registers, asks for work, asks which contents are known, sends results and heartbeats, leaves. Every message is
safe to send again: tokens guard leases, capture ids guard results. Waits are sent as durations, never as clock times,
so that no two clocks need agree; the clock times in an assignment are for people and simple nodes.

An assignment is one URL of a lease. Its id says all that a coordinator needs to know of it again, so that none need
remember it: `NODE:REQUEST.SHARD.N.SEAL/TASK.DEPTH.ATTEMPTS.SEAL`, where the part before the slash is the lease's id.
The first seal binds the lease to its host, the second the assignment to its URL: only coordinators can make either
(`coordinator/seals.py`), and nodes send both back as they are.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec

from drumlin.model import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN, Duplicate

MEDIA_TYPE = "application/msgpack"
BODY_BYTES_MAX = 64 * 1024 * 1024
URL_CHARS_MAX = 8_200
"""Somewhat more than a canonical URL may have. A list of the longest does not fit into a body: nodes cut it before."""
RESULTS_MAX = 5_000
LINKS_MAX = 20_000
LINKS_BATCH_MAX = 120_000
"""Links of all results of a batch: a node closes a parcel at half as many, and no page has more than the other half."""
LINK_CHARS_MIN = len("http://a/")
HOSTS_MAX = 10_000
HOST_REPORTS_MAX = 2_500
SITEMAPS_MAX = 100
SITEMAPS_ELSEWHERE_MAX = 100
"""Sitemaps out of scope that a host may name, and parts out of scope that one of them may have: each is a request to
somebody who is not crawled, on that host's word alone."""
NAMED_BY_ROBOTS = "robots.txt"
"""Where sitemaps were found, and whatever they redirect to: a page's URL is never called so."""
RENEWALS_MAX = 10_000
VISITS_MAX = 16
NOTE_BYTES_MAX = (2 << 20) + (1 << 16)
"""Room for the robots rules of both schemes of a host, which have up to a MiB each."""
SKETCH_BYTES_MAX = 128
NODE_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z"

THROUGH_COORDINATOR = "through a coordinator"
"""What a node that sends bundles says of its `store` when it registers."""

BASE64 = {"pattern": "^(?:[A-Za-z0-9+/]{4})*$"}
NodeId = Annotated[str, msgspec.Meta(pattern=NODE_ID_PATTERN)]
URLText = Annotated[str, msgspec.Meta(max_length=URL_CHARS_MAX)]
LinkText = Annotated[str, msgspec.Meta(min_length=LINK_CHARS_MIN, max_length=URL_CHARS_MAX)]
"""A canonical URL has a scheme and a host; a body full of shorter ones would be millions of objects."""
HostText = Annotated[str, msgspec.Meta(max_length=300)]
ShortText = Annotated[str, msgspec.Meta(max_length=1_000)]
MetadataText = Annotated[str, msgspec.Meta(max_length=255)]
"""A name of a host fits; every look at the nodes reads all of it, of thousands of nodes."""
LeaseId = Annotated[str, msgspec.Meta(max_length=300)]
Priority = Annotated[int, msgspec.Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)]
COUNT_MAX = 1 << 50
"""So little that the sum over ten thousand nodes can still be written down: MessagePack has 64 bits."""
Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
LATEST_BOOT = COUNT_MAX
"""Stands for the latest process of a node, whichever that is."""
RecordId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9:._-]{0,200}\Z")]
"""Other nodes write it into the headers of their own WARC records, where it must not begin another header."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]


class CrawlState(StrEnum):
    """What a coordinator wants of its nodes: go on, wait, finish what is in flight and leave, or leave since all is
    done."""

    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"
    FINISHED = "finished"


class NodeStatus(StrEnum):
    ACTIVE = "active"
    INACTIVE = "inactive"
    FAILED = "failed"
    QUARANTINED = "quarantined"
    DRAINING = "draining"


class Register(msgspec.Struct):
    """A node begins. With `recovering` it first sends what it left unsent, and keeps its leases until it registers
    again without. `instance` is made up once per spool folder and kept in it: a node of the same id and instance can
    only be the successor of one that is gone, since the folder is locked by whoever lives. `boot` counts the processes
    that held that folder: a message of an earlier one that arrives late changes nothing."""

    capacity: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    node_id: NodeId | None = None
    ip_address: Annotated[str, msgspec.Meta(max_length=100)] = ""
    metadata: Annotated[dict[MetadataText, MetadataText], msgspec.Meta(max_length=16)] = {}
    recovering: bool = False
    instance: Annotated[str, msgspec.Meta(max_length=64)] = ""
    boot: Count = 0


class Registered(msgspec.Struct):
    """What a node needs to know: `config` is the crawl's configuration, the seeds are those its scope is made of.
    `token` and `key` (to sign results with) are set where access is controlled. `keeps_results` says whether this
    coordinator stores what a node returns that stores nothing itself. `config_version` counts the changes of the
    configuration since the crawl was founded."""

    node_id: str
    status: str
    heartbeat_interval: float
    c2_endpoint: str
    config: dict[str, Any]
    config_hash: str
    seeds: list[str]
    scope_seeds: list[str]
    token: str | None = None
    key: str | None = None
    keeps_results: bool = False
    config_version: int = 0


class WorkRequest(msgspec.Struct):
    """Room for `max_hosts` further hosts and `max_tasks` URLs. `renew` names leases, and their hosts, that want more
    time and URLs. `hosts` is how many hosts the node has, `unstarted` how many of their URLs it has not begun.
    `scope_version` is how many of the seeds that joined the scope on the way the node knows. `flat` asks for
    `assignments` beside `leases`. `visits` names hosts that the node has to contact although it wants none of their
    URLs."""

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
        """What tells the URL from others of its shard."""
        return self.assignment_id.rpartition("/")[2].partition(".")[0]


class FlatAssignment(Assignment):
    """An assignment with all that a node needs which knows nothing of leases. `status` is what it is to the coordinator
    that gives it out; `retry_count` is `attempts`."""

    lease_id: str = ""
    node_id: str = ""
    domain: str = ""
    assigned_at: float = 0.0
    status: str = "in_progress"
    retry_count: int = 0


class WorkLease(msgspec.Struct):
    """The right to contact one host for `ttl_s`, counted from the moment that the node sent its request; first after
    `wait_s`, counted from the moment it got the answer, and then every `min_delay_s`. `rate` is how many contacts a
    second that allows. `host_delay_s` is the part of `min_delay_s` that is this host's own wish, which holds whatever
    the crawl's delay becomes. `note` is what earlier leases learnt of the host; `robots` is for people to read."""

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


class Work(msgspec.Struct):
    """`lost` names the hosts whose leases could not be renewed. `scope_seeds` are all seeds that joined the scope on
    the way, when the node does not know them all. A host to be visited has a lease without assignments; where others
    hold it, or its next contact is not due, `notes` has what earlier leases learnt of it. When `lost_at` changes, the
    frontier has lost something: links that were told before have to be told again."""

    leases: list[WorkLease]
    assignments: list[FlatAssignment]
    retry_after_s: float
    state: CrawlState = CrawlState.RUNNING
    lost: list[str] = []
    scope_seeds: list[str] = []
    scope_version: int = 0
    notes: dict[str, bytes] = {}
    lost_at: float = 0.0


class Result(msgspec.Struct, omit_defaults=True):
    """What became of one URL. `links` are canonical, in scope and new to the node's own filter where a drumlin node
    sends them; others may send what they found. `content_hash` is the sha256 of the body in hexadecimal. `capture_id`
    tells this attempt from others. Without an `outcome` the status code decides. A URL that failed without having been
    tried, since its host is in back-off, is put off for `put_off_s`, and has no attempt held against it; with `gave_up`
    the host was out of reach for too long, and the URL is dead."""

    assignment_id: LeaseId
    url: URLText
    status_code: Annotated[int, msgspec.Meta(ge=0, le=999)]
    content_hash: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")]
    links: Annotated[list[LinkText], msgspec.Meta(max_length=LINKS_MAX)]
    crawl_time: Seconds
    outcome: Annotated[str, msgspec.Meta(max_length=20)] = ""
    text_data_url: Annotated[str, msgspec.Meta(max_length=URL_CHARS_MAX)] | None = None
    redirect_chain: Annotated[list[URLText], msgspec.Meta(max_length=50)] = []
    size: Count = 0
    sketch: Annotated[bytes, msgspec.Meta(max_length=SKETCH_BYTES_MAX, extra_json_schema=BASE64)] | None = None
    error: ShortText = ""
    etag: ShortText = ""
    last_modified: ShortText = ""
    capture_id: Annotated[str, msgspec.Meta(max_length=200)] = ""
    kind: Annotated[str, msgspec.Meta(max_length=40)] = ""
    retry_after_s: Seconds = 0.0
    redirect_to: URLText = ""
    link_hints: Annotated[list[float], msgspec.Meta(max_length=LINKS_MAX)] = []
    record_id: RecordId = ""
    mime: Annotated[str, msgspec.Meta(max_length=200)] = ""
    traps: Annotated[dict[ShortText, Count], msgspec.Meta(max_length=100)] = {}
    put_off_s: Seconds = 0.0
    gave_up: bool = False


class HostReport(msgspec.Struct, omit_defaults=True):
    """What a node says of a leased host: whether it gives the lease back, when the next contact is due, its note."""

    lease_id: LeaseId
    host: HostText
    release: bool = False
    next_contact_s: Seconds = 0.0
    delay_s: Seconds | None = None
    note: Annotated[bytes, msgspec.Meta(max_length=NOTE_BYTES_MAX, extra_json_schema=BASE64)] | None = None
    sitemaps: Annotated[list[LinkText], msgspec.Meta(max_length=SITEMAPS_MAX)] = []


class Results(msgspec.Struct):
    """`canonical_links` says that links are canonical, in scope and within the crawl's depth already. `stored` says
    that the sender puts its captures into the store itself, as drumlin's own nodes do. `segment` is set when they will
    come in a bundle: then each result that counts gets a receipt, which the bundle of that segment must hold."""

    results: Annotated[list[Result], msgspec.Meta(max_length=RESULTS_MAX)]
    hosts: Annotated[list[HostReport], msgspec.Meta(max_length=HOST_REPORTS_MAX)] = []
    canonical_links: bool = False
    stored: bool = False
    segment: Annotated[str, msgspec.Meta(max_length=128)] = ""


class Rejected(msgspec.Struct):
    """A result that did not count: `stale` (another attempt settled the URL, or somebody else holds it), `not_yours`
    (the lease is another node's, which is at work), `malformed`, `made_up` (no coordinator gave this URL out under this
    id) or `foreign_links` (a link of the batch is out of scope or not canonical, so that none of the batch counts)."""

    assignment_id: str
    reason: str


class KnownPage(msgspec.Struct, array_like=True):
    """The earlier capture that result number `index` repeats."""

    index: int
    duplicate: Duplicate


class Accepted(msgspec.Struct):
    """What counted. Results that counted before count again, so that the same batch gives the same answer.
    `rejected_at` are the places of the rejected in the batch. `receipts`, if a segment was named, has one for each
    result, empty for those that did not count."""

    accepted_count: int
    rejected_count: int
    rejected: list[Rejected]
    status: str = "accepted"
    rejected_at: list[int] = []
    duplicates: list[KnownPage] = []
    receipts: list[str] = []


class KnownRequest(msgspec.Struct):
    """Pairs of registrable domain and content hash."""

    contents: Annotated[
        list[tuple[HostText, Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]]],
        msgspec.Meta(max_length=RESULTS_MAX),
    ]


class Known(msgspec.Struct):
    duplicates: list[Duplicate | None]


class Heartbeat(msgspec.Struct):
    """`current_load` is how many requests are in flight, `hosts` how many hosts the node holds, `unstarted` how many of
    their URLs it has not begun. `leases` are some of those with such URLs, the ones it would come to last first: the
    coordinator may have it give them back. `unanswered` is how many URLs it is done with whose results no coordinator
    has answered yet, `lag_s` how long the first of them has waited. `config_version` is that of the configuration that
    the node follows; one that leaves it out is told of no changes."""

    status: Annotated[str, msgspec.Meta(max_length=40)]
    current_load: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    total_crawled: Count
    leases: Annotated[list[LeaseId], msgspec.Meta(max_length=256)] = []
    hosts: Count = 0
    unstarted: Count = 0
    total_bytes: Count = 0
    unanswered: Count = 0
    lag_s: Seconds = 0.0
    config_version: Count | None = None


class ChangedSettings(msgspec.Struct):
    """The crawl's configuration as it is since its last change, and the seeds that its scope is made of."""

    config_version: int
    config: dict[str, Any]
    seeds: list[str]


class HeartbeatReply(msgspec.Struct):
    """`revoke` names leases whose URLs not yet begun are to be given back, for a node that has nothing to do. `token`
    is to be used from now on, where the node's own ends soon. `settings` is what the node has to follow from now on,
    when it follows an older version."""

    status: str
    next_heartbeat: float
    config_hash: str
    revoke: list[str] = []
    state: CrawlState = CrawlState.RUNNING
    token: str | None = None
    settings: ChangedSettings | None = None


class Done(msgspec.Struct):
    status: str = "ok"


class Failure(msgspec.Struct):
    """A node cannot go on (no space left, say): the sentence for the person and the exit code. Which node it is, the
    coordinator fills in."""

    message: ShortText
    hint: ShortText
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)]
    node_id: ShortText = ""


class BackOff(msgspec.Struct):
    """Why a host is left alone for longer than politeness asks: a kind of failure and what was said of it, since when,
    how often it was tried in vain, when last, and until when. Times are the coordinators', `until_wall` is by the wall
    clock of the node; whichever comes first counts. `asked` says that the site itself asked for the pause."""

    kind: str
    error: str
    since: float
    tries: int
    tried: float
    until: float
    until_wall: float
    asked: bool = False


class HostNote(msgspec.Struct):
    """What a node remembers of a host between leases; the engine keeps it as opaque bytes. `backoff` is by scheme.
    `slow_s` is the delay that a 429 has brought about and answers since have not undone yet."""

    robots: dict[str, bytes] = {}
    hsts_until: float = 0.0
    backoff: dict[str, BackOff] = {}
    slow_s: float = 0.0


class NodeRecord(msgspec.Struct):
    """A node as all coordinators and people see it. Times are seconds since the epoch."""

    node_id: str
    ip_address: str
    last_seen: float
    status: NodeStatus
    capacity: float
    current_load: float
    total_crawled: int
    registered_at: float
    metadata: dict[str, str]
    leases: int = 0
    unstarted: int = 0
    total_bytes: int = 0
    pages_per_s: float = 0.0
    instance: str = ""
    boot: int = 0
    released: bool = False
    unanswered: int = 0
    lag_s: float = 0.0
    config_version: int | None = None
    last_beat: float = 0.0


class AssignmentKey(NamedTuple):
    """What an assignment's id says. Whether it is true, only its seal shows."""

    node: str
    lease_id: str
    task_id: int
    depth: int
    attempts: int
    seal: str


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


class Enqueue(msgspec.Struct):
    """`POST /v1/frontier/enqueue`."""

    url: URLText
    priority: Priority = PRIORITY_DEFAULT
    discovered_from: URLText = msgspec.field(default="", name="discoveredFrom")
