"""What the messages say. `docs/reference/events.md` is made from these structs.

The format is JSON: every tool for Kafka reads it, and librdkafka compresses whole batches, so the names of fields cost
little. `v` is the version of the schema: fields may be added without changing it, so readers must ignore those that
they do not know; it changes if the meaning of a field does.

The fields of `page`, `fetch` and `links` are columns of the tables of the same name (docs/reference/tables.md), with
times in microseconds since 1970. A field that does not apply is left out.
"""

from __future__ import annotations

import functools
import hashlib
import operator
from typing import Final

import msgspec

VERSION: Final = 1
RESULTS: Final = "results"
LINKS: Final = "links"
NODES: Final = "nodes"
WORK: Final = "work"
TOPICS: Final = {
    RESULTS: "`page`, `fetch` and `removal` events, keyed by host",
    LINKS: "`links` events, keyed by the host of the page",
    NODES: "`node` events, keyed by the node's name",
    WORK: "`lease` events, keyed by host, and `crawl` events, keyed by the crawl's id",
}
"""The ends of the topics' names, which begin with the prefix of `--events`."""

ID_CHARS: Final = 32
RECORD_ID_CHARS_MAX: Final = 200
TITLE_CHARS_MAX: Final = 1_000
TEXT_CHARS_MAX: Final = 2_000
EVENT_BYTES_MAX: Final = 900_000
"""Brokers and clients refuse messages of more than a million bytes unless told otherwise."""
KEY_CHARS_MAX: Final = 300
CUT_CHARS_MIN: Final = 200
"""What is not longer than this is never cut to make an event smaller."""


class Event(msgspec.Struct, omit_defaults=True, tag_field="type", kw_only=True):
    """What all events have. `id` is the same if the event is produced again; `crawl` is the id of the crawl.
    `cut` says that something in it was shortened so that a broker takes it."""

    id: str
    crawl: str
    v: int
    cut: bool = False


class Page(Event, tag="page"):
    """A page was stored: a row of `pages`, without its text and sketch.
    Of a long title the first 1,000 characters are here."""

    url: str
    host: str
    fetch_time_us: int
    fetch_status: int = 0
    fetch_redirect: str = ""
    content_digest: str = ""
    content_mime_detected: str = ""
    content_charset: str = ""
    content_languages: str = ""
    content_truncated: str = ""
    warc_filename: str = ""
    warc_record_offset: int = -1
    warc_record_length: int = -1
    title: str = ""
    canonical: str = ""
    depth: int = -1
    found_on: str = ""
    redirects: list[str] = []
    duplicate_of: str = ""
    duplicate_kind: str = ""
    noindex: bool = False
    nofollow: bool = False
    soft_404: bool = False
    body_bytes: int = -1
    node: str = ""


class Fetch(Event, tag="fetch"):
    """An attempt at a URL has ended, or a URL was settled without one: a row of `fetches`. Where a page was stored, its
    `page` event has the same id."""

    url: str
    host: str
    fetch_time_us: int
    outcome: str
    fetch_status: int = 0
    kind: str = ""
    error: str = ""
    duration_s: float = 0.0
    attempt: int = 0
    wire_bytes: int = -1
    redirect_to: str = ""
    protocol: str = ""
    ip: str = ""
    node: str = ""


class Links(Event, tag="links"):
    """Links of a page, in its order: rows of `links`. `targets`, `kinds`, `rels` and `texts` have one entry for each
    link. `id` is that of the page. A page with many links has several such events: `first` is the number of the first
    link in each, from 0."""

    url: str
    host: str
    fetch_time_us: int
    first: int
    targets: list[str]
    kinds: list[str]
    rels: list[str]
    texts: list[str]


class Removal(Event, tag="removal"):
    """What was stored of a URL, a host or a domain has been removed: whoever keeps copies removes them too. `what` is
    `url`, `host` or `domain`, and `name` which. `drumlin remove --events` produces it; that of a domain is keyed by the
    domain."""

    what: str
    name: str
    time_us: int


class Node(Event, tag="node"):
    """Something happened to a node: `joined`, `left`, `silent`, `back`, `failed`, `draining`, `quarantined` or
    `released`, as in the log (docs/how-to/read-logs.md)."""

    node: str
    event: str
    time_us: int
    coordinator: str


class Lease(Event, tag="lease"):
    """A node was given a host, or more of its URLs: so many. The lease ends when it is returned, or after `ttl_s`
    unless it is renewed; `lease` is its id, as logs show it. A host that is only visited, for its robots.txt, has 0
    URLs."""

    lease: str
    host: str
    node: str
    urls: int
    ttl_s: float
    time_us: int
    coordinator: str


class Crawl(Event, tag="crawl"):
    """Something happened to the crawl: `crawl_state` (`detail` has the new state), `settings_changed`, `leads` (a
    coordinator has begun to lead), or its engine or store was lost or is back."""

    event: str
    time_us: int
    coordinator: str
    detail: str = ""


EVENTS: Final[dict[str, tuple[type[Event], ...]]] = {
    RESULTS: (Page, Fetch, Removal),
    LINKS: (Links,),
    NODES: (Node,),
    WORK: (Lease, Crawl),
}


class Message(msgspec.Struct, array_like=True):
    """One message for the broker. `topic` is the end of the topic's name."""

    topic: str
    key: str
    value: bytes


encode: Final = msgspec.json.Encoder().encode


def fits(key: str, value: bytes) -> bool:
    """Whether a broker takes such a message: the key counts too, and each of its characters has 4 bytes at most."""
    return 4 * len(key) + len(value) <= EVENT_BYTES_MAX


def message_of(topic: str, event: Event, key: str = "host") -> Message:
    """The message of an event, keyed by this field. Websites and nodes decide how long many fields are, so whatever is
    longest is halved until a broker takes the message; the tables have all of it."""
    value = encode(event)
    while not fits(getattr(event, key), value) and _halve(event):
        value = encode(event)
    return Message(topic, getattr(event, key), value)


def smaller(message: Message) -> list[Message]:
    """The same in smaller messages, for a client that may not send so much; nothing if that cannot be."""
    try:
        event: Event = msgspec.json.decode(message.value, type=functools.reduce(operator.or_, EVENTS[message.topic]))
    except msgspec.DecodeError:
        return []
    if isinstance(event, Links) and len(event.targets) > 1:
        middle = len(event.targets) // 2
        halves = [_links_in(event, slice(0, middle)), _links_in(event, slice(middle, None))]
        return [Message(message.topic, message.key, encode(half)) for half in halves]
    return [Message(message.topic, message.key[:KEY_CHARS_MAX], encode(event))] if _halve(event) else []


def _links_in(event: Links, part: slice) -> Links:
    lists = {name: getattr(event, name)[part] for name in ("targets", "kinds", "rels", "texts")}
    return msgspec.structs.replace(event, first=event.first + (part.start or 0), **lists)


def _halve(event: Event) -> bool:
    """Cut the longest field of an event to half of it; False if none is long. Lists of links have one entry here."""
    sizes = {name: _chars(getattr(event, name)) for name in event.__struct_fields__}
    name = max(sizes, key=sizes.__getitem__)
    if sizes[name] <= CUT_CHARS_MIN:
        return False
    long = getattr(event, name)
    if isinstance(long, list) and len(long) == 1:
        setattr(event, name, [long[0][: len(long[0]) // 2]])
    else:
        setattr(event, name, long[: len(long) // 2])
    event.cut = True
    return True


def _chars(value: object) -> int:
    if isinstance(value, list):
        return sum(len(text) + 1 for text in value)
    return len(value) if isinstance(value, str) else 0


def row_id(record_id: str | None, url: str, time_us: int, outcome: str) -> str:
    """The id of a row: that of its record in the archive. A row without one gets the first 32 hexadecimal digits of a
    SHA-256, which SQL can make too: left(sha256(url || ' ' || epoch_us(fetch_time) || ' ' || outcome), 32)."""
    if record_id:
        return record_id[:RECORD_ID_CHARS_MAX]
    return hashlib.sha256(f"{url} {time_us} {outcome}".encode("utf-8", "replace")).hexdigest()[:ID_CHARS]
