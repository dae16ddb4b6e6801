"""What a coordinator says to people about hosts and single URLs. The rules of `drumlin.api.messages.people` apply here
too."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from drumlin.api.messages.people import (
    DELAY_S_MAX,
    LIST_DEFAULT,
    PAGES_MAX,
    DeadLetterView,
    HostStandingName,
    Limit,
    RobotsRules,
)
from drumlin.protocol import HostText, URLText

NOT_FOLLOWED: Final = "not_followed"
URLState = Literal["queued", "scheduled", "leased", "done", "dead", "not_followed"]
"""A `TaskState`, or `not_followed`: pages link to the URL, but the frontier never accepted it."""


class HostsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Hosts of one state, or with `all` those of any state in the order of their names. Only these can be chosen by
    `prefix`, how their names begin, and read on by `after`, which is `next` of the answer before."""

    state: Literal["ready", "waiting", "leased", "blocked", "backoff", "all"] = "ready"
    limit: Limit = LIST_DEFAULT
    prefix: HostText = ""
    after: HostText = ""


class BackOffView(msgspec.Struct):
    """Why a host is in back-off on one scheme: the kind of failure and its message, since when, after how many tries in
    vain, and when it is tried next. `asked` says that the site asked for this pause."""

    kind: str
    error: str
    since: float
    tries: int
    next_try: float
    asked: bool


class FetchView(msgspec.Struct):
    """One attempt on a URL as the tables of the store have it. Its rows are in the files named `segment`; its page, if
    there is one, may also be a record in a WARC file."""

    crawl_time: float
    node_id: str
    outcome: str
    status_code: int
    kind: str
    error: str
    result_id: str
    segment: str
    page: bool
    warc_filename: str
    warc_record_offset: int | None
    redirect_to: str = ""
    duplicate_of: str = ""
    duplicate_kind: str = ""
    attempt: int = 0
    unshown: bool = False
    """Whether it is in a node's journal only: tables show it within a minute."""
    unsettled: bool = False
    """Whether no coordinator has said yet that it counts."""
    url: str = ""


StoreSearch = Literal["none", "partly", "whole"]
"""How much of the store was searched for a URL: there is none here, some of it, or all that readers can see."""


class HostView(msgspec.Struct):
    """One host: its queue, pace and lease, and why it is in this state; `delay_why` says who asked for its delay.
    `rate_limit` is in contacts a second, null without one. `last_crawled_by` is the node that holds it now; earlier
    holders are not remembered. The call about one host also tells its `last_fetches`, newest first, as the store has
    them, and in `store` how much of them was searched; other calls do not, and there `store` is null. `time` is when
    all this was told, by the clock of the coordinator: its other times are to be compared with that."""

    host: str
    domain: str
    shard: int
    state: HostStandingName
    why: str
    queued: int
    urls: int
    pages: int
    bytes: int
    next_contact: float
    delay_s: float
    lease_node: str
    lease_until: float | None
    blocked: bool
    budget: int | None
    robots: dict[str, RobotsRules]
    max_concurrent: int
    min_delay_ms: int
    rate_limit: float | None
    last_crawled_by: str | None
    last_crawled_at: float | None = None
    backoff: dict[str, BackOffView] = {}
    delay_why: str = ""
    pages_left: int | None = None
    last_fetches: list[FetchView] = []
    store: StoreSearch | None = None
    time: float = 0.0


class HostsView(msgspec.Struct):
    """`next` is where to go on in the list of all hosts; empty at its end, and for hosts of one state."""

    hosts: list[HostView]
    next: str = ""


class HostChange(msgspec.Struct, forbid_unknown_fields=True):
    """What to change for a host; fields left out stay as they are. With a null `delay_s` the crawl's delay applies.
    `budget` is how many pages to fetch of it at most, null for no limit."""

    delay_s: Annotated[float, msgspec.Meta(ge=0, le=DELAY_S_MAX)] | msgspec.UnsetType | None = msgspec.UNSET
    blocked: bool | msgspec.UnsetType = msgspec.UNSET
    budget: Annotated[int, msgspec.Meta(ge=0, le=PAGES_MAX)] | msgspec.UnsetType | None = msgspec.UNSET


class URLQuery(msgspec.Struct, forbid_unknown_fields=True):
    url: URLText


class PriorityParts(msgspec.Struct):
    """What a URL's priority is the sum of: what all begin with, what its depth takes away, and what a sitemap's hint or
    a person's order added or took."""

    default: int
    depth: int
    hint_or_order: int


StepName = Literal[
    "found",
    "queued",
    "fetched",
    "not_modified",
    "redirected",
    "denied",
    "skipped",
    "failed",
    "leased",
    "put_off",
    "retry",
    "dead",
    "done",
    "waits",
    "refused",
    "store",
]


class StoryStep(msgspec.Struct):
    """One thing that happened to a URL, or how it stands: a name for programs, a sentence for people, when it was, and
    the node that did it. `store` says what could not be found out."""

    what: StepName
    told: str
    time: float | None = None
    node: str = ""


class URLStory(msgspec.Struct):
    """What the frontier and the store know about one URL: `steps` in the order in which they happened, and their
    sentences alone in `story`. `store` says how much of the store was searched. `discovered_from`,
    `next_fetch_after` and `status` are `found_on`, `retry_at` and `state` under the names that other crawlers use. A
    URL in state `not_followed` was never queued although pages link to it; its story says why.
    `change_frequency_score` is always null, because it is not measured yet."""

    url: str
    host: str
    state: URLState
    found_on: str
    redirects: list[str]
    priority: int | None
    depth: int | None
    attempts: int | None
    first_seen: float | None
    retry_at: float | None
    capture_id: str
    lease_node: str
    lease_until: float | None
    dead_letter: DeadLetterView | None
    story: list[str]
    host_state: HostView | None
    path: str
    discovered_from: str
    next_fetch_after: float | None
    status: URLState
    last_crawled: float | None
    fetches: list[FetchView]
    change_frequency_score: float | None = None
    steps: list[StoryStep] = []
    priority_parts: PriorityParts | None = None
    store: StoreSearch = "whole"
