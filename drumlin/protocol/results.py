"""What a node says about the URLs it was given, and how a coordinator answers.

Every message may be sent again: a result is known by its `capture_id`, and one that counted before counts again without
changing anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import msgspec

from drumlin.model import Duplicate
from drumlin.protocol.limits import (
    BASE64,
    HOST_REPORTS_MAX,
    LINKS_MAX,
    NOTE_BYTES_MAX,
    RECORD_ID_CHARACTER,
    RECORD_ID_CHARS_MAX,
    RESULTS_MAX,
    SITEMAPS_MAX,
    SKETCH_BYTES_MAX,
    URL_CHARS_MAX,
    Count,
    HostText,
    LeaseId,
    LinkText,
    Seconds,
    ShortText,
    TraceParent,
    URLText,
)

NAMED_BY_ROBOTS = "robots.txt"
"""Stands in `found_on` for sitemaps that a robots.txt names, and for what they redirect to. No page's URL looks like
this."""
HASH_CHARS = 64
"""The length of a sha256 in hexadecimal."""
KILLED = "killed"
"""The kind of failure of a page during whose parsing the process was killed, by chance or because of the page."""
KILLS_MAX = 3
"""After this many kills the page is a dead letter: once or twice may be chance."""


ContentHash = Annotated[
    str, msgspec.Meta(min_length=HASH_CHARS, max_length=HASH_CHARS, extra_json_schema={"pattern": "^[0-9a-f]*$"})
]

_HEXADECIMAL = re.compile("[0-9a-f]*")
_RECORD_IDS = re.compile(f"{RECORD_ID_CHARACTER}*")


def is_hexadecimal(texts: Iterable[str]) -> bool:
    """Whether there is nothing but hexadecimal digits in any of these texts."""
    return _HEXADECIMAL.fullmatch("".join(texts)) is not None


class Result(msgspec.Struct, omit_defaults=True, gc=False):
    """What became of one URL. A drumlin node sends only `links` that are canonical, in scope and new to its own filter;
    other workers may send links as they found them. `content_hash` is the sha256 of the body in hexadecimal.
    `capture_id` distinguishes this attempt from others. If `outcome` is empty the status code decides. A URL that was
    not tried because its host is in back-off is put off for `put_off_s` and pays no attempt; with `gave_up` the host
    was out of reach for too long and the URL is dead. `page_url` is set if this URL redirected back to an earlier URL
    of its redirect chain, which then, with the cookie it had set, showed the page."""

    assignment_id: LeaseId
    url: URLText
    status_code: Annotated[int, msgspec.Meta(ge=0, le=999)]
    content_hash: Annotated[str, msgspec.Meta(max_length=HASH_CHARS)]
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
    record_id: Annotated[str, msgspec.Meta(max_length=RECORD_ID_CHARS_MAX)] = ""
    mime: Annotated[str, msgspec.Meta(max_length=200)] = ""
    traps: Annotated[dict[ShortText, Count], msgspec.Meta(max_length=100)] = {}
    put_off_s: Seconds = 0.0
    gave_up: bool = False
    page_url: URLText = ""

    @property
    def page(self) -> str:
        """The URL of the page that was fetched."""
        return self.page_url or self.url


class HostReport(msgspec.Struct, omit_defaults=True, gc=False):
    """What a node says about a leased host: whether it gives the lease back, when the next contact is due, and what it
    learnt (`note`)."""

    lease_id: LeaseId
    host: HostText
    release: bool = False
    next_contact_s: Seconds = 0.0
    delay_s: Seconds | None = None
    note: Annotated[bytes, msgspec.Meta(max_length=NOTE_BYTES_MAX, extra_json_schema=BASE64)] | None = None
    sitemaps: Annotated[list[LinkText], msgspec.Meta(max_length=SITEMAPS_MAX)] = []


class Results(msgspec.Struct):
    """`canonical_links` says that links are canonical, in scope and within the crawl's depth already. `stored` says
    that the sender stores its captures itself, as drumlin's own nodes do. `segment` is set if the captures will come in
    a bundle: each result that counts then gets a receipt, and the bundle of that segment must contain it. `traces` has
    the W3C `traceparent` of results whose URLs are traced, by the ids of their assignments."""

    results: Annotated[list[Result], msgspec.Meta(max_length=RESULTS_MAX)]
    hosts: Annotated[list[HostReport], msgspec.Meta(max_length=HOST_REPORTS_MAX)] = []
    canonical_links: bool = False
    stored: bool = False
    segment: Annotated[str, msgspec.Meta(max_length=128)] = ""
    traces: Annotated[dict[LeaseId, TraceParent], msgspec.Meta(max_length=RESULTS_MAX)] = {}

    @property
    def well_formed(self) -> bool:
        """Whether hashes and record ids are what they must be. Decoding does not check this: it would look at each of
        them with a pattern, which costs ten times as much as looking at all of them in one piece."""
        hashes = [result.content_hash for result in self.results]
        if any(len(one) not in (0, HASH_CHARS) for one in set(hashes)) or not is_hexadecimal(hashes):
            return False
        return _RECORD_IDS.fullmatch("".join([result.record_id for result in self.results])) is not None


class Rejection(StrEnum):
    """Why a result did not count."""

    STALE = "stale"
    """Another attempt settled the URL, or somebody else holds it."""
    NOT_YOURS = "not_yours"
    """The lease belongs to another node, which is at work."""
    MALFORMED = "malformed"
    MADE_UP = "made_up"
    """No coordinator gave this URL out under this id."""
    FOREIGN_LINKS = "foreign_links"
    """A link of the batch is out of scope or not canonical, so none of the batch counts."""


class Rejected(msgspec.Struct):
    """A result that did not count. `reason` is one of `Rejection`, or one that a newer version has added."""

    assignment_id: str
    reason: str


class KnownPage(msgspec.Struct, array_like=True):
    """The earlier capture that result number `index` repeats."""

    index: int
    duplicate: Duplicate


class Accepted(msgspec.Struct):
    """What counted. A result that was accepted before is accepted again, so the same batch always gets the same answer.
    `rejected_at` has the positions of the rejected results in the batch. If a segment was named, `receipts` has one
    entry for each result, empty for those that did not count."""

    accepted_count: int
    rejected_count: int
    rejected: list[Rejected]
    status: str = "accepted"
    rejected_at: list[int] = []
    duplicates: list[KnownPage] = []
    receipts: list[str] = []


class KnownRequest(msgspec.Struct):
    """Pairs of registrable domain and content hash. Decoding checks how long the hashes are, `is_hexadecimal` the
    rest."""

    contents: Annotated[
        list[tuple[HostText, ContentHash]],
        msgspec.Meta(max_length=RESULTS_MAX),
    ]


class Known(msgspec.Struct):
    duplicates: list[Duplicate | None]


class BundleOffer(msgspec.Struct):
    """A bundle that a node wants to put into the store, or has put where it was told: how many bytes it has, and their
    SHA-256 in hexadecimal."""

    bytes: Annotated[int, msgspec.Meta(ge=0, le=2**40)]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class BundlePlace(msgspec.Struct):
    """Where to put a bundle, by a PUT with these headers. Without a URL, the bundle goes to a coordinator."""

    url: str = ""
    headers: dict[str, str] = {}


class BundleStored(msgspec.Struct):
    """The answer to a bundle that is in the store, safe from power loss."""

    status: str = "stored"
