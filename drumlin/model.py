"""The nouns that travel between drumlin's parts, each defined once.

Times are seconds since the epoch as floats unless a name says otherwise. URLs are canonical (`drumlin.urls`)
wherever a field is called `url`; a raw string from a page is an `href`. A `host` is the scheme-less authority of
a URL: lower-case, with the port only where it is not the scheme's default.
"""

from __future__ import annotations

import builtins
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

PRIORITY_MIN = 0
PRIORITY_MAX = 9
PRIORITY_DEFAULT = 5

ScopeMode = Literal["page", "prefix", "host", "domain", "any"]
"""How far from its seeds a crawl goes (`drumlin.urls.Scope`)."""


class Outcome(StrEnum):
    """What became of one leased URL."""

    FETCHED = "fetched"
    NOT_MODIFIED = "not_modified"
    REDIRECTED = "redirected"
    DENIED = "denied"
    SKIPPED = "skipped"
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
    SCOPE_CHANGED = "scope_changed"


KINDS: dict[str, FailureKind] = {str(kind): kind for kind in FailureKind}
"""For kinds that strangers name, which may be anything."""


class NewURLs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """URLs of one host, found in one place and offered to the frontier: seeds, the links of a page, or the target of a
    redirect."""

    host: str
    urls: list[str]
    priority: int = PRIORITY_DEFAULT
    depth: int = 0
    found_on: str = ""
    redirects: tuple[str, ...] = ()


class Task(msgspec.Struct, frozen=True, array_like=True, gc=False):
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

    @property
    def failures(self) -> int:
        """How often it was tried in vain, including the times when reading it ended the process."""
        return self.attempts + self.crashes


class Lease(msgspec.Struct, frozen=True):
    """The exclusive right of one node to contact one host until `deadline`, and the URLs to fetch.

    The first contact is allowed at `not_before`; further ones at least `delay_s` apart. `note` is what earlier
    leases learnt about the host, opaque to the engine (robots.txt among it).
    """

    shard: int
    host: str
    lease_id: str
    node: str
    deadline: float
    not_before: float
    delay_s: float | None
    tasks: list[Task]
    note: bytes

    def __repr__(self) -> str:
        return f"<Lease {self.lease_id} of {self.host}: until {self.deadline:.3f}, {len(self.tasks)} URLs>"


class TaskState(StrEnum):
    """The one state that every accepted URL is in."""

    QUEUED = "queued"
    SCHEDULED = "scheduled"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"


class Settled(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a settlement says about one task: done, to be retried at `retry_at`, or dead.

    `attempt_id` identifies the attempt; nodes call it `capture_id`, also where nothing was captured. Settling the same
    task again with the same id is a harmless repetition; with another id it is stale. `counts` are added to the shard's
    counters if, and only if, this changes the task's state. A task that is scheduled and was not `attempted` is merely
    put off: no attempt is held against it. `kind` says why a task is dead or tried again. `size` is the page's length
    in bytes, possibly 0; None where there is no page. What a preview has called stale is to be `refused`: its links
    were not added, so it must not be settled although that may have become possible.
    """

    task_id: int
    url: str
    state: TaskState
    attempt_id: bytes
    retry_at: float = 0.0
    kind: FailureKind | None = None
    error: str = ""
    size: int | None = None
    counts: dict[str, int] = {}
    attempted: bool = True
    refused: bool = False

    @property
    def put_off(self) -> bool:
        return not self.attempted and self.state is TaskState.SCHEDULED

    @property
    def cause_of_death(self) -> FailureKind:
        """The kind of failure of a task that is dead, which every such task has."""
        if self.kind is None:
            raise ValueError(f"{self.url} is dead of nothing")
        return self.kind


class Settlement(msgspec.Struct, frozen=True):
    """One node's report on one lease: some of its tasks, whether the lease ends, and what was learnt. `in_backoff` says
    whether the host is in back-off from now on, and so left alone for longer than politeness requires. `slow_s` is the
    longer delay after a 429; if the lease is lost, the next one must wait that long too. None leaves either as it
    was."""

    host: str
    lease_id: str
    settled: list[Settled]
    release: bool = False
    next_contact: float = 0.0
    delay_s: float | None = None
    note: bytes | None = None
    in_backoff: bool | None = None
    slow_s: float | None = None


class Verdict(StrEnum):
    """The engine's answer to one `Settled`."""

    SETTLED = "settled"
    REPEATED = "repeated"
    STALE = "stale"
    OPEN = "open"
    """It was to be refused, but could be settled by now. Nothing was changed; ask for a preview again."""


class Preview(msgspec.Struct, frozen=True, array_like=True):
    """What would become of a `Settlement`: whether its lease is the host's live one, and the verdicts."""

    live: bool
    verdicts: list[Verdict]


LetterPlace = tuple[str, str, int]
"""The place of a dead letter in lists: kind, host, and the id of its task."""
GroupPlace = tuple[int, str, str]
"""The place of a group of dead letters in lists: minus its number of letters, kind, host."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A URL that used up its retries or looks like a trap; waits for a person."""

    url: str
    host: str
    kind: FailureKind
    attempts: int
    last_error: str
    first_failed: float
    last_failed: float
    found_on: str
    task: Task

    @property
    def place(self) -> LetterPlace:
        """Where it stands in a list of dead letters."""
        return (str(self.kind), self.host, self.task.id)


class DeadGroup(msgspec.Struct, frozen=True):
    """How many URLs of one host were given up for one cause."""

    kind: FailureKind
    host: str
    letters: int

    @property
    def place(self) -> GroupPlace:
        """Where it stands in a list of groups, the largest first."""
        return (-self.letters, str(self.kind), self.host)


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
    """Where a host with queued URLs stands: it may be contacted, it must wait, or a node holds its lease. In each of
    these states it may also be in back-off."""

    READY = "ready"
    WAITING = "waiting"
    LEASED = "leased"
    BACKOFF = "backoff"


class HostState(msgspec.Struct, frozen=True):
    """One host as the frontier sees it. `lease_id`, `node` and `deadline` are those of its lease, empty without
    one."""

    host: str
    next_contact: float
    delay_s: float | None
    queued: int
    urls: int
    pages: int
    bytes: int
    lease_id: str = ""
    node: str = ""
    deadline: float = 0.0
    note: builtins.bytes = b""
    in_backoff: bool = False


class Visit(msgspec.Struct, frozen=True, array_like=True):
    """A request to lease one named host without taking any of its URLs, for example to fetch its robots.txt.
    `lease_id` must differ from that of every other lease. The lease is granted only if the host's next contact is due
    by `due_by`."""

    host: str
    node: str
    lease_id: str
    until: float
    due_by: float
    delay_default_s: float = 0.0


class Renewal(msgspec.Struct, frozen=True, array_like=True):
    """A lease that wants more time, and up to `urls_max` further URLs."""

    shard: int
    host: str
    lease_id: str
    urls_max: int


class RemovedURLs(NamedTuple):
    """How many URLs an engine has removed, by their states; leased ones count as queued. `hosts` is how many hosts it
    does not know any more."""

    queued: int = 0
    scheduled: int = 0
    dead: int = 0
    done: int = 0
    hosts: int = 0


class TaskStory(msgspec.Struct, frozen=True):
    """What the frontier knows of one URL. `letter` is for one that was given up."""

    state: TaskState
    task: Task | None
    retry_at: float = 0.0
    attempt_id: bytes = b""
    letter: DeadLetter | None = None


class Content(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The fingerprints of one fetched body: `digest` is its sha256, `sketch` summarises its text (None: the text is too
    short)."""

    domain: str
    url: str
    digest: bytes
    sketch: bytes | None
    fetched: float
    record_id: str


class Duplicate(msgspec.Struct, frozen=True, array_like=True):
    """An earlier capture of the same registrable domain with the same content, or with nearly the same text: then
    `overlap` says how much of the text is the same, from 0 to 1. `older` is the measure of near-duplicates that earlier
    versions of drumlin recorded."""

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
    """What a worker says about a page that it fetched and that a coordinator stores for it. `node` is the worker,
    `size` the length of the body. Without `has_text` the text is unknown, unless `text_data_url` says where it is. A
    body that is marked as `decoded` arrived as text: it is in UTF-8, whatever charset the page declares."""

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
    links_left_out: int = 0
    """How many links were dropped because the URLs of one page may have only so many characters together."""
    links_bytes: int = 0
    """Roughly how much memory the links take."""
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
