"""All that an engine keeps of a crawl, as records that every engine can tell and take in: how a frontier is moved.

`Engine.read_kept` tells a frontier section by section, in pages; `Engine.fill` writes the same into another engine, in
the order of `Section`, since a task needs its host. Both hold one page in memory and no more.

Nobody has a lease in what is told: the tasks of a lease are told as queued, in their old places, and its host waits as
if the lease had run out (`after_lease`). Claims are not told either; both are rights of processes, and none of them
goes on in another engine.

A URL that is done is told as a mark, a part of the hash of its identity, because no engine keeps its text. `SHORT_BITS`
says how the marks of Redis follow from those of the others.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec
from xxhash import xxh3_128_digest

from drumlin.lines import one_line
from drumlin.model import Content, Duplicate, FailureKind, Task, TaskState
from drumlin.urls import identity

PAGE = 1_000
"""How many URLs or hosts are told at a time; fewer if they are large (`weight_of`)."""
HEAVY_BYTES = 256
"""So many bytes of a note or of a value weigh as much as a URL."""

MARK_BYTES = 16
SHORT_BITS = 52
"""A short mark is the last 52 bits of a mark. An engine that keeps short ones (redis) can take in both; which URLs a
short mark stands for is still known to an engine that keeps whole ones, but less surely (`redis.records.SEEN_BITS`)."""
SHORT_BYTES = 7
_SHORT_MASK = (1 << SHORT_BITS) - 1

CLOSED_KEY = "closed"
"""Under this key an engine that must not be used says why: see `drumlin.engines.open_engine`."""
FILLED_KEY = "filled"
"""Under this key an engine that was filled keeps the name of what it was filled from."""
OWN_KEYS = frozenset({CLOSED_KEY, FILLED_KEY, "check"})
"""Values that belong to an engine and not to its crawl. They are not told."""


class Closed(msgspec.Struct, frozen=True):
    """Why an engine must not be used, and what to do. Of one that is half filled, `name` is the source it is filled
    from, at one moment, and `origin` what people call that source. Of one that was moved, `name` is where to."""

    sentence: str
    hint: str
    name: str = ""
    origin: str = ""

    @classmethod
    def read(cls, value: bytes | None) -> Closed | None:
        """None if the engine may be used."""
        return cls(*value.decode().split("\n")) if value else None

    def written(self) -> bytes:
        """For the value under `CLOSED_KEY`. A name of a file may have a line feed in it, which would part it."""
        return "\n".join(map(one_line, (self.sentence, self.hint, self.name, self.origin))).encode()

    @property
    def is_half(self) -> bool:
        """Whether it is being filled, and so was not moved."""
        return bool(self.origin)


class Section(StrEnum):
    """The parts of what an engine keeps, in the order in which they are told and written."""

    COUNTERS = "counters"
    HOSTS = "hosts"
    QUEUED = "queued"
    SCHEDULED = "scheduled"
    DEAD = "dead"
    DONE = "done"
    CONTENTS = "contents"
    SKETCHES = "sketches"
    VALUES = "values"


class KeptCounters(msgspec.Struct, frozen=True, array_like=True):
    """The counters of one shard."""

    shard: int
    counters: dict[str, int]


class KeptHost(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A host; one that was only ever visited has no `urls`."""

    host: str
    next_contact: float
    delay_s: float | None
    slow_s: float
    in_backoff: bool
    note: builtins.bytes
    urls: int
    pages: int
    bytes: int


class KeptTask(msgspec.Struct, frozen=True, array_like=True):
    """A URL that is not done. `shard` is the one that gave the task its id. Those of a host that are queued follow one
    another in the order of its queue. `kind`, `error` and `last_failed` are of dead letters."""

    host: str
    shard: int
    state: TaskState
    task: Task
    attempt_id: bytes = b""
    first_failed: float = 0.0
    retry_at: float = 0.0
    kind: FailureKind | None = None
    error: str = ""
    last_failed: float = 0.0


class KeptDone(msgspec.Struct, frozen=True, array_like=True):
    """URLs of one host that are done: the mark of each, all of them whole or all of them short. `ids` and `attempts`
    are their tasks' ids and last attempts, by which a result that comes again is recognised; an engine that does not
    know them tells none."""

    host: str
    shard: int
    size: int
    marks: bytes
    ids: list[int] = []
    attempts: list[bytes] = []

    def __post_init__(self) -> None:
        if self.size not in (SHORT_BYTES, MARK_BYTES) or len(self.marks) % self.size:
            raise ValueError(f"marks have {SHORT_BYTES} or {MARK_BYTES} bytes each")
        if self.ids and not len(self.ids) == len(self.attempts) == self.urls:
            raise ValueError("every mark has an id and an attempt, or none has")

    @property
    def urls(self) -> int:
        return len(self.marks) // self.size

    def each(self) -> Iterator[tuple[bytes, int, bytes]]:
        """The mark, id and attempt of each URL; 0 and nothing where they are not known."""
        for place, at in enumerate(range(0, len(self.marks), self.size)):
            known = (self.ids[place], self.attempts[place]) if self.ids else (0, b"")
            yield (self.marks[at : at + self.size], *known)


class KeptContent(msgspec.Struct, frozen=True, array_like=True):
    """A content (without its sketch) and what was answered when it was recorded."""

    content: Content
    near: Duplicate | None


class KeptSketch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The sketch of a content that was told before. Those of a domain are in the order of their arrival. `digest` has
    12 bytes or more."""

    domain: str
    digest: bytes
    sketch: bytes


class KeptValue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value of the crawl's own (`table` is empty) or an entry of a table."""

    table: str
    key: str
    value: bytes


Kept = KeptCounters | KeptHost | KeptTask | KeptDone | KeptContent | KeptSketch | KeptValue

TYPES: dict[Section, type] = {
    Section.COUNTERS: KeptCounters,
    Section.HOSTS: KeptHost,
    Section.QUEUED: KeptTask,
    Section.SCHEDULED: KeptTask,
    Section.DEAD: KeptTask,
    Section.DONE: KeptDone,
    Section.CONTENTS: KeptContent,
    Section.SKETCHES: KeptSketch,
    Section.VALUES: KeptValue,
}


class Paged:
    """Collects records until they are a page, so no page takes much memory."""

    def __init__(self) -> None:
        self._records: list[Kept] = []
        self._weight = 0

    def add(self, record: Kept) -> list[Kept]:
        """The page, if this record makes it full; otherwise nothing yet."""
        self._records.append(record)
        self._weight += weight_of(record)
        return self.rest() if self._weight >= PAGE else []

    def rest(self) -> list[Kept]:
        page, self._records, self._weight = self._records, [], 0
        return page


def pages(records: Iterable[Kept]) -> Iterator[list[Kept]]:
    """The records in pages."""
    paged = Paged()
    for record in records:
        if page := paged.add(record):
            yield page
    if page := paged.rest():
        yield page


def number_of_records(page: Iterable[Kept]) -> int:
    """How many there are; each URL that is done counts."""
    return sum(one.urls if isinstance(one, KeptDone) else 1 for one in page)


def weight_of(record: Kept) -> int:
    """How many URLs or hosts a record stands for, or as how many it counts because it is large."""
    if isinstance(record, KeptDone):
        return record.urls
    if isinstance(record, KeptHost | KeptValue):
        return 1 + len(record.note if isinstance(record, KeptHost) else record.value) // HEAVY_BYTES
    return 1


def mark_of(url: str) -> bytes:
    """The mark of a URL: a hash of its identity, so all spellings of a page have the same."""
    return xxh3_128_digest(identity(url).encode())


def short_mark(mark: bytes) -> bytes:
    """The short mark that follows from a whole one; a short one stays as it is."""
    return (int.from_bytes(mark[-SHORT_BYTES:], "big") & _SHORT_MASK).to_bytes(SHORT_BYTES, "big")


def after_lease(next_contact: float, deadline: float, delay_s: float) -> float:
    """When a leased host may next be contacted if its node is never heard of again, as `Engine.expire_all` decides it:
    the node may have contacted it until the deadline."""
    return max(next_contact, deadline) + delay_s


def is_blank(host: KeptHost) -> bool:
    """Whether nothing is known of a host. An engine may have made such a one to look at it; it is not told."""
    known = host.urls or host.next_contact or host.note or host.in_backoff or host.slow_s
    return not known and host.delay_s is None


def is_told(value: KeptValue) -> bool:
    return bool(value.table) or value.key not in OWN_KEYS
