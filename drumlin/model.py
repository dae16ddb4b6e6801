"""The nouns that travel between drumlin's parts, each defined once.

Times are seconds since the epoch as floats unless a name says otherwise. URLs are canonical (`drumlin.urls`)
wherever a field is called `url`; a raw string from a page is an `href`. A `host` is the scheme-less authority of
a URL: lower-case, with the port only where it is not the scheme's default.
"""

from __future__ import annotations

import builtins
from enum import StrEnum

import msgspec

PRIORITY_MIN = 0
PRIORITY_MAX = 9
PRIORITY_DEFAULT = 5


class Outcome(StrEnum):
    """What became of one leased URL."""

    FETCHED = "fetched"
    NOT_MODIFIED = "not_modified"
    REDIRECTED = "redirected"
    DENIED = "denied"
    FAILED = "failed"


class FailureKind(StrEnum):
    """Why a fetch failed, and so how it is retried (`drumlin.frontier.backoff`)."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    RESET = "reset"
    PROTOCOL = "protocol"
    HTTP_4XX = "http_4xx"
    RATE_LIMITED = "rate_limited"
    HTTP_5XX = "http_5xx"
    ROBOTS_UNREACHABLE = "robots_unreachable"
    TOO_LARGE = "too_large"
    DECODE = "decode"
    REDIRECT_LOOP = "redirect_loop"
    REDIRECT_LIMIT = "redirect_limit"
    BAD_REDIRECT = "bad_redirect"
    FORBIDDEN_ADDRESS = "forbidden_address"
    TRAP = "trap"
    CRASH = "crash"


class NewURLs(msgspec.Struct, frozen=True, array_like=True):
    """URLs of one host, found in one place and offered to the frontier: seeds, the links of a page, or the target of a
    redirect."""

    host: str
    urls: list[str]
    priority: int = PRIORITY_DEFAULT
    depth: int = 0
    found_on: str = ""
    redirects: tuple[str, ...] = ()


class Task(msgspec.Struct, frozen=True, array_like=True):
    """A URL as the frontier keeps it. `id` is unique within its shard and grows in order of arrival."""

    id: int
    url: str
    priority: int
    depth: int
    attempts: int
    found_on: str
    redirects: tuple[str, ...]
    crashes: int = 0
    added: float = 0.0


class Lease(msgspec.Struct, frozen=True):
    """The exclusive right of one node to contact one host until `deadline`, and the URLs to fetch.

    The first contact is allowed at `not_before`; further ones at least `delay_s` apart. `note` is what earlier
    leases learnt about the host, opaque to the engine (robots.txt among it).
    """

    shard: int
    host: str
    token: str
    node: str
    deadline: float
    not_before: float
    delay_s: float | None
    tasks: list[Task]
    note: bytes


class TaskState(StrEnum):
    """The one state that every accepted URL is in."""

    QUEUED = "queued"
    SCHEDULED = "scheduled"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"


class Settled(msgspec.Struct, frozen=True, array_like=True):
    """What a settlement says about one task: done, to be retried at `retry_at`, or dead.

    `capture_id` identifies the attempt: settling the same task again with the same id repeats, with another id is
    stale. `counts` are added to the shard's counters if, and only if, this changes the task's state. A task that is
    scheduled and was not `attempted` is merely put off: no attempt is held against it.
    """

    task_id: int
    url: str
    state: TaskState
    capture_id: bytes
    retry_at: float = 0.0
    kind: str = ""
    error: str = ""
    size: int = 0
    counts: dict[str, int] = {}
    attempted: bool = True

    @property
    def put_off(self) -> bool:
        return not self.attempted and self.state is TaskState.SCHEDULED


class Settlement(msgspec.Struct, frozen=True):
    """One node's report on one lease: some of its tasks, whether the lease ends, and what was learnt. `in_backoff` says
    whether the host is in back-off from now on, and so left alone for longer than politeness asks; None: as before."""

    host: str
    token: str
    settled: list[Settled]
    release: bool = False
    next_contact: float = 0.0
    delay_s: float | None = None
    note: bytes | None = None
    in_backoff: bool | None = None


class Verdict(StrEnum):
    """The engine's answer to one `Settled`."""

    SETTLED = "settled"
    REPEATED = "repeated"
    STALE = "stale"


class Preview(msgspec.Struct, frozen=True, array_like=True):
    """What a `Settlement` would come to: whether its token is that of the host's live lease, and the verdicts."""

    live: bool
    verdicts: list[Verdict]


class DeadLetter(msgspec.Struct, frozen=True):
    """A URL that used up its retries or looks like a trap; waits for a person."""

    url: str
    host: str
    kind: str
    attempts: int
    last_error: str
    first_failed: float
    last_failed: float
    found_on: str
    task: Task


class ShardStats(msgspec.Struct, frozen=True):
    """One shard at one moment. `next_event` is when something there becomes due (infinity when nothing will). The hosts
    in back-off are among those that wait, are leased, or have nothing queued."""

    queued: int
    scheduled: int
    leased: int
    done: int
    dead: int
    hosts_ready: int
    hosts_waiting: int
    hosts_leased: int
    next_event: float
    counters: dict[str, int]
    hosts_in_backoff: int = 0


class HostSummary(msgspec.Struct, frozen=True):
    """What a report says of one host."""

    host: str
    pages: int
    bytes: int
    queued: int


class HostStanding(StrEnum):
    """Where a host with queued URLs stands: it may be contacted, it must wait, or a node holds its lease. Whichever of
    these, it may be in back-off."""

    READY = "ready"
    WAITING = "waiting"
    LEASED = "leased"
    BACKOFF = "backoff"


class HostState(msgspec.Struct, frozen=True):
    """One host as the frontier sees it. `token`, `node` and `deadline` are those of its lease, empty without one."""

    host: str
    next_contact: float
    delay_s: float | None
    queued: int
    urls: int
    pages: int
    bytes: int
    token: str = ""
    node: str = ""
    deadline: float = 0.0
    note: builtins.bytes = b""
    in_backoff: bool = False


class Visit(msgspec.Struct, frozen=True, array_like=True):
    """What a lease of one very host shall be, without URLs of it. `token` must be unlike that of any other lease; the
    host's next contact must come no later than `due_by`."""

    host: str
    node: str
    token: str
    until: float
    due_by: float
    delay_default_s: float = 0.0


class Renewal(msgspec.Struct, frozen=True, array_like=True):
    """A lease that wants more time, and up to `urls_max` further URLs."""

    shard: int
    host: str
    token: str
    urls_max: int


class TaskStory(msgspec.Struct, frozen=True):
    """What the frontier knows of one URL."""

    state: TaskState
    task: Task | None
    retry_at: float = 0.0
    capture_id: bytes = b""


class Content(msgspec.Struct, frozen=True, array_like=True):
    """The fingerprints of one fetched body: `digest` is its sha256, `sketch` that of its text (None: too little)."""

    domain: str
    url: str
    digest: bytes
    sketch: bytes | None
    fetched: float
    record_id: str


class Duplicate(msgspec.Struct, frozen=True, array_like=True):
    """An earlier capture of the same registrable domain with the same content, or with a text that nearly is the same:
    then `overlap` says how much of it, 0 to 1. `older` is what earlier versions measured of near ones."""

    url: str
    fetched: float
    record_id: str
    older: int | None = None
    overlap: float | None = None

    @property
    def exact(self) -> bool:
        return self.overlap is None and self.older is None


class LinkSet(msgspec.Struct, array_like=True):
    """The links of a page as parallel lists: resolved URL (None: not a web address), element kind, rel, anchor text."""

    urls: list[str | None] = []
    kinds: list[str] = []
    rels: list[str] = []
    texts: list[str] = []


class Told(msgspec.Struct, array_like=True):
    """What a worker says of a page that it fetched and a coordinator stores for it: `node` is the worker, `size` how
    long the body was. Without `has_text` nobody knows the text, unless `text_data_url` says where it is. A body that
    was `decoded` came as a text: it is in UTF-8, whatever the page says of itself."""

    node: str
    size: int
    has_text: bool = False
    text_data_url: str = ""
    decoded: bool = False


class Capture(msgspec.Struct):
    """One fetched response on its way through the pipeline; each stage fills in its part."""

    # the task
    url: str
    host: str
    domain: str
    depth: int
    found_on: str
    redirects: tuple[str, ...]
    # fetch
    fetched: float
    duration_s: float
    status: int
    protocol: str
    ip: str
    request_headers: bytes
    response_headers: bytes
    body_raw: bytes
    body: bytes
    headers: dict[str, str]
    truncated: str = ""
    """Why the body is not all there, in the words of WARC: `disconnect` or `unspecified`."""
    # parse
    mime: str = ""
    charset: str = ""
    title: str = ""
    description: str = ""
    languages: str = ""
    canonical: str = ""
    text: bytes = b""
    noindex: bool = False
    nofollow: bool = False
    soft_404: bool = False
    links: LinkSet = msgspec.field(default_factory=LinkSet)
    links_too_long: int = 0
    # fingerprints
    digest: bytes = b""
    sketch: bytes | None = None
    duplicate: Duplicate | None = None
    # store
    record_id: str = ""
    warc_filename: str = ""
    warc_offset: int = 0
    warc_length: int = 0
    # only of a page that somebody else fetched
    told: Told | None = None
