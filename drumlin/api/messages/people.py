"""What a coordinator says to people and to workers that take one URL at a time; `drumlin.protocol` has the nodes' side.

The field names are those of docs/reference/http-api.md. Times are seconds since the epoch unless a name says otherwise;
a time that will never come is null. Every text, list and number that comes in has a limit.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from drumlin.access.audit import READ_MAX, AuditEntry
from drumlin.api.intake.forms import BASE64_PATTERN, WEB_URL_PATTERN, EpochOrMs, HashText, Moment, check_moment
from drumlin.api.intake.telling import Head, TextURL
from drumlin.coordinator.health import Trouble
from drumlin.model import PRIORITY_DEFAULT, DeadLetter
from drumlin.protocol import (
    LATEST_BOOT,
    Count,
    CrawlState,
    Effort,
    HostText,
    LeaseId,
    NodeId,
    NodeRecord,
    NodeStatus,
    Priority,
    ShortText,
    URLText,
)

ENQUEUE_MAX = 5_000
"""URLs in one batch of `POST /api/v1/urls`."""
LIST_DEFAULT = 100
LIST_MAX = 1_000
DELAY_S_MAX = 86_400.0
PAGES_MAX = 10**12
ROBOTS_CHARS_MAX = 512 * 1024

WEB_URL_CHARS_MAX = 7_600
"""A little less than a canonical URL may have, since making it canonical escapes some characters."""
WebURL = Annotated[str, msgspec.Meta(max_length=WEB_URL_CHARS_MAX, pattern=WEB_URL_PATTERN)]
HostStandingName = Literal["ready", "waiting", "leased", "idle", "blocked"]
Limit = Annotated[int, msgspec.Meta(ge=1, le=LIST_MAX)]
LetterCursor = Annotated[str, msgspec.Meta(max_length=400, pattern=r"^([^ ]+ [^ ]+ [0-9]{1,14})?\Z")]
"""The place of a dead letter: kind, host, and the number of its task."""
GroupCursor = Annotated[str, msgspec.Meta(max_length=400, pattern=r"^(-[0-9]{1,14} [^ ]+ [^ ]+)?\Z")]
"""The place of a group of them: minus how many there are, kind, host."""
RESULT_LINKS_MAX = 2_000
"""How many links of a page a simple worker may return; nodes may send more in their batches."""
RESULT_BODY_CHARS_MAX = 6 * 1024 * 1024


# Workers that take one URL at a time


class Enqueue(msgspec.Struct, rename="camel"):
    url: WebURL
    priority: Priority = PRIORITY_DEFAULT
    discovered_from: URLText = ""


class Enqueued(msgspec.Struct, rename="camel"):
    queue_shard: int


class NextQuery(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    worker_id: NodeId


class HeadersPolicy(msgspec.Struct, rename="camel"):
    """The headers that a worker must send, so all workers look like one crawler to a site."""

    user_agent: str
    accept_encoding: str


class RobotsRules(msgspec.Struct, rename="camel"):
    """What is known about a host's robots.txt: the file itself, or `allowAll` or `denyAll` if there is none."""

    rules_blob: str
    expires_at: float
    product_token: str
    allow_all: bool = False
    deny_all: bool = False
    reason: str = ""


class NextURL(msgspec.Struct, rename="camel"):
    """One URL to fetch, no sooner than `allowedAfterEpochMs` and no later than `leaseEndsEpochMs`.

    `robots` are the host's rules; they permit this URL. Null means that they are not known: then the worker must
    fetch `robotsUrl` first and obey it, and may report what it said. A result with `assignmentId` proves that the
    worker was given the URL, even after the lease is over. `keepsResults` says whether returned pages are stored.
    """

    url: str
    allowed_after_epoch_ms: int
    headers_policy: HeadersPolicy
    lease_ends_epoch_ms: int
    min_delay_ms: int
    robots: RobotsRules | None
    robots_url: str
    depth: int
    attempts: int
    assignment_id: str
    keeps_results: bool


class RobotsAnswer(msgspec.Struct, rename="camel"):
    """What a host answered when it was asked for robots.txt."""

    status_code: Annotated[int, msgspec.Meta(ge=100, le=599)]
    body: Annotated[str, msgspec.Meta(max_length=ROBOTS_CHARS_MAX)] = ""


class FetchResult(msgspec.Struct, rename="camel"):
    """What became of a URL; whatever is unknown may be null or left out. A `statusCode` of 0 means that there was no
    answer; an `outcome` of "denied" means that robots.txt did not permit the fetch.

    `fetchedAt` is in ISO 8601, or in seconds since the epoch; a number that is too large for that is taken as
    milliseconds. `contentSha256` is the hash of the body, in hexadecimal or base64. The page itself is `body` (a
    string) or `bodyBase64`, as it was received, with `responseHead` (status line and headers) or at least
    `contentType`. If only the text is known, it can be sent as `textDataUrl`, a `data:` URL. Without `links` they are
    taken from the body."""

    url: WebURL
    status_code: Annotated[int, msgspec.Meta(ge=0, le=999)] | None = None
    content_sha256: HashText | None = None
    fetched_at: EpochOrMs | Moment | None = None
    links: Annotated[list[URLText], msgspec.Meta(max_length=RESULT_LINKS_MAX)] | None = None
    worker_id: NodeId | None = None
    assignment_id: LeaseId | None = None
    outcome: Literal["fetched", "denied", "failed"] | None = None
    size: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] | None = None
    redirect_to: URLText | None = None
    retry_after_s: Annotated[float, msgspec.Meta(ge=0, le=DELAY_S_MAX)] | None = None
    error: ShortText | None = None
    robots: RobotsAnswer | None = None
    body: Annotated[str, msgspec.Meta(max_length=RESULT_BODY_CHARS_MAX)] | None = None
    body_base64: Annotated[str, msgspec.Meta(max_length=RESULT_BODY_CHARS_MAX, pattern=BASE64_PATTERN)] | None = None
    content_type: ShortText | None = None
    response_head: Head | None = None
    text_data_url: TextURL | None = None
    etag: ShortText | None = None
    last_modified: ShortText | None = None

    def __post_init__(self) -> None:
        check_moment(self.fetched_at)


class RobotsQuery(msgspec.Struct, forbid_unknown_fields=True):
    host: HostText


class Reprioritize(msgspec.Struct, rename="camel"):
    url: WebURL
    new_priority: Priority
    reason: ShortText


class Reprioritized(msgspec.Struct):
    accepted: bool


# People


class Budgets(msgspec.Struct):
    """The crawl's budgets (null where there is no limit), and how much of each is used."""

    pages_max: int | None
    bytes_max: int | None
    time_max_s: float | None
    pages: int
    bytes: int
    elapsed_s: float


class TotalsView(msgspec.Struct):
    """The frontier in figures. `next_event` is when the next host or retry becomes due. Hosts in back-off are out of
    reach, or their robots.txt is; most of them are also counted as waiting."""

    known: int
    pending: int
    queued: int
    scheduled: int
    leased: int
    done: int
    dead: int
    hosts_ready: int
    hosts_waiting: int
    hosts_leased: int
    hosts_in_backoff: int
    next_event: float | None


class CrawlView(msgspec.Struct):
    """`complete` says that the crawl has ended and its store has its merged index and its report. `config_version` is
    how often its settings have changed."""

    state: CrawlState
    stop_reason: str
    config: dict[str, Any]
    config_hash: str
    seeds: int
    budgets: Budgets
    totals: TotalsView
    troubles: list[Trouble] = []
    complete: bool = False
    config_version: int = 0


class Stats(msgspec.Struct):
    """The figures of a dashboard. Rates are averages over the last seconds. `lag_s` is how far settling is behind
    fetching, at the node where that is longest. `stopped` says that a crawl in state `draining` has nothing left to
    wait for: its nodes have left."""

    time: float
    state: CrawlState
    totals: TotalsView
    pages: int
    bytes: int
    pages_per_s: float
    bytes_per_s: float
    in_flight: float
    unanswered: int
    lag_s: float
    nodes: dict[str, int]
    statuses: dict[str, int]
    outcomes: dict[str, int]
    retries: dict[str, int]
    dead_letters: dict[str, int]
    duplicates: dict[str, int]
    refused: dict[str, int]
    troubles: list[Trouble] = []
    stopped: bool = False


class NodesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`prefix` is how their names begin; `after` is `next` of the answer before."""

    status: Literal["", "active", "inactive", "failed", "quiet", "quarantined", "draining"] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 100_000
    prefix: ShortText = ""
    after: ShortText = ""


class LeaveQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`boot` is that of the process that leaves; the call has no effect if a successor has registered already. If left
    out, the latest process is meant."""

    boot: Count = LATEST_BOOT


class NodeView(msgspec.Struct):
    """A node as people see it. Times are seconds since the epoch; `registered_at` is 0 for a worker that never
    registered. `capacity` is in pages a second. `unanswered` is how many URLs are fetched but not settled yet; the
    oldest of them has waited for `lag_s`. `config_version` is the version of the settings that the node follows, null
    if it does not say. `lately` is what its time went into in the last ten seconds or so, null if it does not say.
    `ordered` is the status that a person has ordered for it, also after it has left, null if none."""

    node_id: str
    ip_address: str
    last_seen: float
    status: NodeStatus
    capacity: float
    current_load: float
    total_crawled: int
    registered_at: float
    metadata: dict[str, str]
    leases: int
    unstarted: int
    total_bytes: int
    pages_per_s: float
    unanswered: int
    lag_s: float
    config_version: int | None
    lately: Effort | None
    ordered: NodeStatus | None = None


class NodesView(msgspec.Struct):
    """In the order of their names. `next` is where to go on; empty at the end. `time` is when this was told, by the
    clock of the coordinator: the times of the nodes are to be compared with that."""

    nodes: list[NodeView]
    next: str = ""
    time: float = 0.0


class StateChange(msgspec.Struct):
    """The state of the crawl, or of a node, after a change."""

    status: str


class MakeCheckpoint(msgspec.Struct, forbid_unknown_fields=True):
    """The name of a checkpoint of the frontier."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")]


class CheckpointMade(msgspec.Struct):
    """Where a checkpoint is, on the machine of the coordinator."""

    name: str
    path: str


class NodeStatusChange(msgspec.Struct):
    node_id: str
    status: str


class AddURLs(msgspec.Struct):
    """A batch of URLs for the frontier."""

    urls: Annotated[list[URLText], msgspec.Meta(max_length=ENQUEUE_MAX)]
    priority: Priority = PRIORITY_DEFAULT


class AddedURLs(msgspec.Struct):
    """How many were new, known before, or too many for their host; which are not web addresses; and how many were
    removed from the crawl on request."""

    added: int
    seen: int
    capped: int
    invalid: list[str]
    removed: int = 0


class Reason(msgspec.Struct, frozen=True):
    """One reason why nothing is being fetched, or not more: a code for programs, a sentence for people, and the figures
    that show it."""

    code: str
    message: str
    figures: dict[str, float] = {}


class WhyIdle(msgspec.Struct):
    """Whether nothing is being fetched, and why. While pages are being fetched, `bound_by` says why not more, as far as
    that is known: several causes at once, if several hold."""

    idle: bool
    reasons: list[Reason]
    bound_by: list[Reason] = []


class DeadLetterView(msgspec.Struct):
    url: str
    host: str
    kind: str
    attempts: int
    last_error: str
    first_failed: float
    last_failed: float
    found_on: str


class DeadLettersQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`after` is `next` of the answer before; empty to begin."""

    kind: Annotated[str, msgspec.Meta(max_length=40)] = ""
    host: HostText = ""
    limit: Limit = LIST_DEFAULT
    after: LetterCursor = ""


class DeadLettersView(msgspec.Struct):
    """In the order of kind, host and arrival. `next` is where to go on; empty at the end."""

    dead_letters: list[DeadLetterView]
    next: str = ""


class GroupsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`by` says whether URLs of different hosts are one group. `limit` and `after` count only for groups by host."""

    by: Literal["kind", "host"] = "kind"
    kind: Annotated[str, msgspec.Meta(max_length=40)] = ""
    limit: Limit = LIST_DEFAULT
    after: GroupCursor = ""


class DeadLetterGroup(msgspec.Struct):
    """How many URLs were given up for one cause, and what it means in words; of one host, or of all where `host` is
    empty."""

    kind: str
    means: str
    urls: int
    host: str = ""


class DeadLetterGroups(msgspec.Struct):
    """That with most URLs first. `next` is where to go on; empty at the end."""

    groups: list[DeadLetterGroup]
    next: str = ""


class DeadLettersChange(msgspec.Struct, forbid_unknown_fields=True):
    """Selects dead letters: those of this `kind` and `host`, and among them these `urls`, or up to `limit` of them."""

    urls: Annotated[list[URLText], msgspec.Meta(max_length=LIST_MAX)] = []
    kind: Annotated[str, msgspec.Meta(max_length=40)] = ""
    host: HostText = ""
    limit: Limit = LIST_MAX


class Changed(msgspec.Struct, omit_defaults=True):
    """How many dead letters were changed, and some of the given URLs that are not web addresses."""

    changed: int
    invalid: list[str] = []


class AuditQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`before` is a time; 0 stands for now."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=READ_MAX)] = LIST_DEFAULT
    before: Annotated[float, msgspec.Meta(ge=0, le=1e11)] = 0.0


class AuditView(msgspec.Struct):
    entries: list[AuditEntry]


class Health(msgspec.Struct):
    status: str


class ErrorDetail(msgspec.Struct):
    code: str
    message: str
    hint: str


class Error(msgspec.Struct):
    """Every refusal and failure looks like this."""

    error: ErrorDetail


def dead_letter_view(letter: DeadLetter) -> DeadLetterView:
    return DeadLetterView(
        letter.url,
        letter.host,
        letter.kind,
        letter.attempts,
        letter.last_error,
        letter.first_failed,
        letter.last_failed,
        letter.found_on,
    )


def node_view(record: NodeRecord, ordered: NodeStatus | None) -> NodeView:
    """The part of a node's record that people may see. The instance is not: a node proves with it who it is."""
    own: dict[str, Any] = {name: getattr(record, name) for name in NodeView.__struct_fields__ if name != "ordered"}
    return NodeView(**own, ordered=ordered)
