"""What a coordinator says to people of hosts and of single URLs. The rules of `drumlin.coordinator.messages` hold here
too."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from drumlin.coordinator.messages import (
    DELAY_S_MAX,
    LIST_DEFAULT,
    PAGES_MAX,
    DeadLetterView,
    HostStandingName,
    Limit,
    RobotsRules,
)
from drumlin.model import TaskState
from drumlin.protocol import URLText


class HostsQuery(msgspec.Struct, forbid_unknown_fields=True):
    state: Literal["ready", "waiting", "leased", "blocked", "backoff"] = "ready"
    limit: Limit = LIST_DEFAULT


class BackOffView(msgspec.Struct):
    """Why a host is left alone on one scheme: a kind of failure and what was said, since when, after how many tries in
    vain, and when it is tried next. `asked` says that the site asked for this pause."""

    kind: str
    error: str
    since: float
    tries: int
    next_try: float
    asked: bool


class HostView(msgspec.Struct):
    """One host: how its queue, pace and lease stand, and why. `rate_limit` is in contacts a second, null without one.
    `last_crawled_by` is who holds it now: who had it before is not remembered, nor when."""

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


class HostsView(msgspec.Struct):
    hosts: list[HostView]


class HostChange(msgspec.Struct, forbid_unknown_fields=True):
    """What to change of a host; what is left out stays. A null `delay_s` leaves it to the crawl's own delay. `budget`
    is the most pages to take of it, null for no bound."""

    delay_s: Annotated[float, msgspec.Meta(ge=0, le=DELAY_S_MAX)] | msgspec.UnsetType | None = msgspec.UNSET
    blocked: bool | msgspec.UnsetType = msgspec.UNSET
    budget: Annotated[int, msgspec.Meta(ge=0, le=PAGES_MAX)] | msgspec.UnsetType | None = msgspec.UNSET


class URLQuery(msgspec.Struct, forbid_unknown_fields=True):
    url: URLText


class FetchView(msgspec.Struct):
    """One attempt on a URL as the tables of the store have it: its rows are in the files named `segment`, and its page,
    if there is one, may be a record in a WARC file too."""

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


class URLStory(msgspec.Struct):
    """What the frontier and the store know of one URL, and a sentence for each part of it. `discovered_from`,
    `next_fetch_after` and `status` are `found_on`, `retry_at` and `state` under the names that the tables of records in
    other places have. How often pages change is not measured yet."""

    url: str
    host: str
    state: TaskState
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
    status: TaskState
    last_crawled: float | None
    fetches: list[FetchView]
    change_frequency_score: float | None = None
