"""What nodes and coordinators say to each other, over HTTP on a Unix socket or TLS, as JSON or MessagePack.

This package is the vocabulary of both sides: whatever they must agree on stands here, once. A node registers, asks for
work, asks which contents are known, sends results and heartbeats, leaves. Read `work.py` first: it says what a lease
and an assignment are.

- `work`: asking for leases, and what a lease and an assignment's id are
- `results`: what became of URLs and hosts, and which results count
- `nodes`: joining, heartbeats, failing; a node's record
- `states`: the states of a crawl and of a node, and which may follow which
- `host_notes`: what is remembered of a host between leases
- `statuses`: what a site's status code means
- `refusals`: the codes of refusals that a node acts on
- `paths`: where each call of the API is, and the names of our headers
- `limits`: how much may be said at once, and in what characters

Invariants: every message can be sent again without harm, because lease ids and capture ids let a coordinator recognise
what it has seen before. Waits are sent as durations, never as clock times, so clocks need not agree; the clock times in
an assignment are for people and for simple nodes. Fields are only ever added, with a default, so versions can meet.

Limits: this package knows nouns (`drumlin.model`) and nothing else. How a message is signed, sent and judged is not
here but in `access`, `node/calling/client.py` and `coordinator`.
"""

from drumlin.protocol.host_notes import (
    UNREADABLE,
    BackOff,
    HostNote,
    read_note,
    read_strangers_note,
    write_note,
)
from drumlin.protocol.limits import (
    BASE64,
    BODY_BYTES_MAX,
    COUNT_MAX,
    HOST_REPORTS_MAX,
    HOSTS_MAX,
    LATEST_BOOT,
    LINKS_BATCH_MAX,
    LINKS_MAX,
    NODE_ID_PATTERN,
    NODE_NAME,
    NOTE_BYTES_MAX,
    RENEWALS_MAX,
    RESULTS_MAX,
    SITEMAPS_ELSEWHERE_MAX,
    SITEMAPS_MAX,
    SKETCH_BYTES_MAX,
    URL_CHARS_MAX,
    VISITS_MAX,
    Count,
    HostText,
    LeaseId,
    LinkText,
    MetadataText,
    NodeId,
    Priority,
    RecordId,
    Seconds,
    ShortText,
    Sponsor,
    URLText,
)
from drumlin.protocol.nodes import (
    THROUGH_COORDINATOR,
    TO_BUCKET,
    ChangedSettings,
    Done,
    Effort,
    EventsBeat,
    Failure,
    Heartbeat,
    HeartbeatReply,
    NodeRecord,
    Register,
    Registered,
)
from drumlin.protocol.results import (
    KILLED,
    KILLS_MAX,
    NAMED_BY_ROBOTS,
    Accepted,
    BundleOffer,
    BundlePlace,
    BundleStored,
    HostReport,
    Known,
    KnownPage,
    KnownRequest,
    Rejected,
    Rejection,
    Result,
    Results,
    is_hexadecimal,
)
from drumlin.protocol.states import (
    CRAWL_MOVES,
    ENDED,
    GONE,
    NODE_MOVES,
    ORDERS,
    PRESENT,
    CrawlEvent,
    CrawlState,
    NodeEvent,
    NodeStatus,
)
from drumlin.protocol.statuses import (
    failure_of_status,
    is_redirect,
    kind_of_status,
    outcome_of_status,
    refusal_by_status,
)
from drumlin.protocol.work import (
    Assignment,
    AssignmentKey,
    FlatAssignment,
    Work,
    WorkLease,
    WorkRequest,
    read_assignment_id,
    shown_lease,
)

MEDIA_TYPE = "application/msgpack"

__all__ = [
    "BASE64",
    "BODY_BYTES_MAX",
    "COUNT_MAX",
    "CRAWL_MOVES",
    "ENDED",
    "GONE",
    "HOSTS_MAX",
    "HOST_REPORTS_MAX",
    "KILLED",
    "KILLS_MAX",
    "LATEST_BOOT",
    "LINKS_BATCH_MAX",
    "LINKS_MAX",
    "MEDIA_TYPE",
    "NAMED_BY_ROBOTS",
    "NODE_ID_PATTERN",
    "NODE_MOVES",
    "NODE_NAME",
    "NOTE_BYTES_MAX",
    "ORDERS",
    "PRESENT",
    "RENEWALS_MAX",
    "RESULTS_MAX",
    "SITEMAPS_ELSEWHERE_MAX",
    "SITEMAPS_MAX",
    "SKETCH_BYTES_MAX",
    "THROUGH_COORDINATOR",
    "TO_BUCKET",
    "UNREADABLE",
    "URL_CHARS_MAX",
    "VISITS_MAX",
    "Accepted",
    "Assignment",
    "AssignmentKey",
    "BackOff",
    "BundleOffer",
    "BundlePlace",
    "BundleStored",
    "ChangedSettings",
    "Count",
    "CrawlEvent",
    "CrawlState",
    "Done",
    "Effort",
    "EventsBeat",
    "Failure",
    "FlatAssignment",
    "Heartbeat",
    "HeartbeatReply",
    "HostNote",
    "HostReport",
    "HostText",
    "Known",
    "KnownPage",
    "KnownRequest",
    "LeaseId",
    "LinkText",
    "MetadataText",
    "NodeEvent",
    "NodeId",
    "NodeRecord",
    "NodeStatus",
    "Priority",
    "RecordId",
    "Register",
    "Registered",
    "Rejected",
    "Rejection",
    "Result",
    "Results",
    "Seconds",
    "ShortText",
    "Sponsor",
    "URLText",
    "Work",
    "WorkLease",
    "WorkRequest",
    "failure_of_status",
    "is_hexadecimal",
    "is_redirect",
    "kind_of_status",
    "outcome_of_status",
    "read_assignment_id",
    "read_note",
    "read_strangers_note",
    "refusal_by_status",
    "shown_lease",
    "write_note",
]
