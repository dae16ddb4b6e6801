"""Exact and near-duplicate contents, kept on Redis and shared by any number of coordinators.

A content is known by its registrable domain and the first 12 bytes of its sha256: two different ones are taken for the
same once in 10^28 pairs. Redis keeps the sketches of a domain's texts as a log. Each coordinator searches
near-duplicates in its own copy of that log. Redis records a content only if that copy was complete; otherwise it
answers with what others have recorded meanwhile, and the coordinator searches again. So all coordinators agree.

The key of the log names the format of sketches: logs of earlier versions of drumlin are never read, and what those
versions called near-duplicates is ignored. `adopt` fills the new log. Exact duplicates stay known.

Limits: a domain keeps its first `DOMAIN_CONTENTS_MAX` contents. Redis takes about 350 bytes a page (the URL and record
id of the first capture among them); the copies here take 120 to 230 bytes a page of the domains in use, up to
`dedupe.memory_bytes_max`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from drumlin.dedupe.near import memory_bytes_max
from drumlin.dedupe.overlap import OVERLAP_MIN
from drumlin.dedupe.runs import DomainSketches
from drumlin.dedupe.search import as_words, nearest
from drumlin.dedupe.sketches import WORDS, readable
from drumlin.engines.redis.address import Duplicates
from drumlin.engines.redis.records import as_string, encode
from drumlin.model import Content, Duplicate

DIGEST_BYTES = 12
DOMAIN_CONTENTS_MAX = 1 << 18
ATTEMPTS_MAX = 4
"""A content is recorded at this attempt even if others have recorded more meanwhile, so busy domains make progress."""

_LOGGED = np.dtype([("sketch", "<u8", WORDS), ("digest", f"V{DIGEST_BYTES}")])
"""One content in the log of its domain."""

Functions = Callable[[Sequence[tuple[str, str, bytes]]], Awaitable[list[Any]]]
"""Runs functions of `lua/contents.lua`: each is named, with the domain and its encoded arguments."""
Lookups = Callable[
    [Sequence[tuple[str, Sequence[bytes], int | None]]], Awaitable[list[tuple[list[bytes | None], bytes]]]
]
"""Reads, for each domain, the entries with these digests, and its log from an offset on unless that is None."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """The first capture of a content in its domain, and how much it overlapped with the nearest content before it.
    `older` keeps the place of a value that versions without sketches wrote; it is not read."""

    url: str
    fetched: float
    record_id: str
    older: int = 0
    overlap: float = 0.0
    near: Duplicate | None = None
    """That nearest content, where another engine told of it, which names it by its capture and not by its digest."""


_decode = msgspec.msgpack.Decoder(_Entry).decode


class _Match(NamedTuple):
    """The nearest earlier content."""

    overlap: float
    digest: bytes


class _Domain:
    """A copy of a domain's log."""

    def __init__(self) -> None:
        self.sketches = DomainSketches()
        self._digests = bytearray()
        self.log_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self.sketches.size_bytes + len(self._digests)

    def extend(self, log: bytes, begin: int) -> None:
        """Append what the log has from `begin` on, unless another call has done so meanwhile."""
        if begin != self.log_bytes or not log:
            return
        entries = np.frombuffer(log, _LOGGED)
        self.sketches.extend(entries["sketch"])
        self._digests += entries["digest"].tobytes()
        self.log_bytes += len(log)

    def digest(self, ordinal: int) -> bytes:
        at = ordinal * DIGEST_BYTES
        return bytes(self._digests[at : at + DIGEST_BYTES])


class RedisContents:
    """`base.Contents` on Redis."""

    def __init__(self, functions: Functions, lookups: Lookups, duplicates: Duplicates = Duplicates.NEAR) -> None:
        self._functions = functions
        self._lookups = lookups
        self._duplicates = duplicates
        self._domains: dict[str, _Domain] = {}  # The least recently used first.
        self._memory_bytes, self._memory_bytes_max = 0, memory_bytes_max()

    async def known(self, items: Sequence[tuple[str, bytes]]) -> list[Duplicate | None]:
        """For each domain and digest, the first capture of exactly this content there, if any.

        The caller is about to record the contents that are new, so the copies of their domains' logs are brought up to
        date in the same round trip.
        """
        if self._duplicates is Duplicates.OFF:
            return [None] * len(items)
        by_domain = _places_by_domain([domain for domain, _ in items])
        near = self._duplicates is Duplicates.NEAR
        wanted = [
            (
                domain,
                [items[place][1][:DIGEST_BYTES] for place in places],
                self._domain(domain).log_bytes if near else None,
            )
            for domain, places in by_domain.items()
        ]
        answers: list[Duplicate | None] = [None] * len(items)
        for (domain, _, begin), (entries, log) in zip(wanted, await self._lookups(wanted), strict=True):
            for place, raw in zip(by_domain[domain], entries, strict=True):
                answers[place] = None if raw is None else _duplicate(_read(raw), None)
            if begin is not None:
                self._extend(domain, log, begin)
        self._forget_oldest()
        return answers

    async def record(self, contents: Sequence[Content], overlap_min: float) -> list[Duplicate | None]:
        """See `base.Contents.record`."""
        return await self._record(contents, overlap_min)

    async def adopt(self, contents: Sequence[Content]) -> None:
        """See `base.Contents.adopt`."""
        judged = [content for content in contents if self._judges(content)]
        await self._record(judged, OVERLAP_MIN, adopting=True)

    async def _record(
        self, contents: Sequence[Content], overlap_min: float, *, adopting: bool = False
    ) -> list[Duplicate | None]:
        answers: list[Duplicate | None] = [None] * len(contents)
        if self._duplicates is Duplicates.OFF:
            return answers
        left = _places_by_domain([content.domain for content in contents])
        judged = [self._judges(content) for content in contents]
        for attempt in range(ATTEMPTS_MAX + 1):
            if not left:
                break
            copies = {domain: self._domain(domain) for domain in left}
            begins = [copy.log_bytes for copy in copies.values()]
            sketched = [place for places in left.values() for place in places if judged[place]]
            matches = _nearest(contents, copies, sketched, overlap_min)
            calls: list[tuple[str, str, bytes]] = []
            logs: dict[str, bytes] = {}
            for (domain, places), begin in zip(left.items(), begins, strict=True):
                if attempt == 0 and not adopting and _are_apart(contents, places, matches):
                    # This costs a fraction, and does for nearly all domains. The next attempt is for the others.
                    logs[domain] = _log_of([contents[at] for at in places if judged[at]])
                    calls.append(("record_new", domain, _written_new(domain, begin, contents, places, logs[domain])))
                    continue
                written = [_written_content(contents[at], matches.get(at), judged=judged[at]) for at in places]
                known_bytes = begin if attempt < ATTEMPTS_MAX else -1
                message = encode((domain, known_bytes, DOMAIN_CONTENTS_MAX, written, adopting))
                calls.append(("record_contents", domain, message))
            for domain, begin, reply in zip(list(left), begins, await self._functions(calls), strict=True):
                if domain in logs:
                    if reply:
                        self._extend(domain, logs[domain], begin)
                        del left[domain]
                    continue
                recorded = len(reply) > 1
                if recorded and attempt == ATTEMPTS_MAX:
                    # The copy lacks what others recorded in between. Drop it; it is read again when needed.
                    self._forget(domain)
                else:
                    self._extend(domain, reply[1] if recorded else reply[0], begin)
                if recorded:
                    for place, answer in zip(left.pop(domain), reply[2], strict=True):
                        answers[place] = _answer(contents[place], answer)
        self._forget_oldest()
        return answers

    def _judges(self, content: Content) -> bool:
        """Whether a content's text is compared with others."""
        return self._duplicates is Duplicates.NEAR and readable(content.sketch)

    def _extend(self, name: str, log: bytes, begin: int) -> None:
        domain = self._domain(name)
        before = domain.size_bytes
        domain.extend(log, begin)
        self._memory_bytes += domain.size_bytes - before

    def _forget(self, name: str) -> None:
        domain = self._domains.pop(name, None)
        self._memory_bytes -= domain.size_bytes if domain is not None else 0

    def _domain(self, name: str) -> _Domain:
        """The copy of a domain, marked as the most recently used."""
        domain = self._domains.pop(name, None)
        if domain is None:
            domain = _Domain()
            self._memory_bytes += domain.size_bytes
        self._domains[name] = domain
        return domain

    def _forget_oldest(self) -> None:
        while self._memory_bytes > self._memory_bytes_max and self._domains:
            self._forget(next(iter(self._domains)))


def _nearest(
    contents: Sequence[Content], copies: dict[str, _Domain], places: list[int], overlap_min: float
) -> dict[int, _Match]:
    """For each place whose text is near another's, the nearest one: in the copies, or earlier in the batch."""
    if not places:
        return {}
    domains = [copies[contents[place].domain] for place in places]
    sketches = as_words([contents[place].sketch or b"" for place in places])
    found = nearest([domain.sketches for domain in domains], sketches, overlap_min)
    return {
        place: _Match(
            match.overlap,
            domain.digest(match.ordinal) if match.ordinal >= 0 else contents[places[match.place]].digest[:DIGEST_BYTES],
        )
        for place, domain, match in zip(places, domains, found, strict=True)
        if match is not None
    }


def _are_apart(contents: Sequence[Content], places: list[int], matches: dict[int, _Match]) -> bool:
    """Whether these contents are different from each other and near to no other."""
    if matches and not matches.keys().isdisjoint(places):
        return False
    return len({contents[place].digest[:DIGEST_BYTES] for place in places}) == len(places)


def _log_of(contents: Sequence[Content]) -> bytes:
    """What contents add to the log of their domain: their sketches, each with its digest."""
    return b"".join([(content.sketch or b"") + content.digest[:DIGEST_BYTES] for content in contents])


def _written_new(domain: str, known_bytes: int, contents: Sequence[Content], places: list[int], log: bytes) -> bytes:
    """Contents as `record_new` of `lua/contents.lua` takes them."""
    fields: list[msgspec.Raw] = []
    for place in places:
        content = contents[place]
        # No nearest content, and the fields of an `_Entry`.
        entry = b"\0" + encode((content.url, content.fetched, content.record_id, 0, 0.0))
        fields += (as_string(content.digest[:DIGEST_BYTES]), as_string(entry))
    return encode((domain, known_bytes, DOMAIN_CONTENTS_MAX, fields, as_string(log)))


def _written_content(content: Content, match: _Match | None, *, judged: bool) -> tuple[Any, ...]:
    """Digest, sketch, whether the sketch joins the log, and the entry. A sketch joins the log only once."""
    digest = content.digest[:DIGEST_BYTES]
    overlap, reference, joins = 0.0, b"", judged
    if match is not None:
        overlap, reference, joins = match.overlap, match.digest, judged and match.overlap < 1
        if reference == digest:
            reference = b""
    # The fields of an `_Entry`.
    entry = encode((content.url, content.fetched, content.record_id, 0, overlap))
    written = bytes((len(reference),)) + reference + entry
    return as_string(digest), as_string(content.sketch if joins and content.sketch else b""), joins, as_string(written)


def _places_by_domain(domains: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, domain in enumerate(domains):
        places.setdefault(domain, []).append(place)
    return places


def _read(raw: bytes) -> _Entry:
    return _decode(raw[1 + raw[0] :])


def _duplicate(entry: _Entry, overlap: float | None) -> Duplicate:
    return Duplicate(entry.url, entry.fetched, entry.record_id, overlap=overlap)


def _answer(content: Content, reply: Sequence[bytes]) -> Duplicate | None:
    if not reply:
        return None
    raw, raw_nearest = reply
    entry = _read(raw)
    if entry.url != content.url:
        return _duplicate(entry, None)
    return _nearest_of(entry, raw_nearest)


def _nearest_of(entry: _Entry, raw_nearest: bytes) -> Duplicate | None:
    """What was answered for a content when it was recorded, unless it was known already."""
    if entry.near is not None:
        return entry.near
    return _duplicate(_read(raw_nearest), entry.overlap) if raw_nearest and entry.overlap else None


# Moving


def write_entry(content: Content, near: Duplicate | None) -> bytes:
    """An entry that another engine told of."""
    overlap = near.overlap or 0.0 if near is not None else 0.0
    return b"\0" + encode((content.url, content.fetched, content.record_id, 0, overlap, near))


def nearest_digest(raw: bytes) -> bytes:
    """The digest of the content that an entry is near to; empty if there is none."""
    return raw[1 : 1 + raw[0]]


def read_entry(domain: str, digest: bytes, raw: bytes, raw_nearest: bytes) -> tuple[Content, Duplicate | None]:
    """An entry and the one that it is near to, as they are told to other engines."""
    entry = _read(raw)
    content = Content(domain, entry.url, digest, None, entry.fetched, entry.record_id)
    return content, _nearest_of(entry, raw_nearest)


def entry_url(raw: bytes) -> str:
    """The URL of the first capture of an entry's content."""
    return _read(raw).url


def nearest_url(raw: bytes) -> str:
    """The URL of the content that an entry is near to, where the entry itself names it; otherwise empty."""
    near = _read(raw).near
    return near.url if near is not None else ""


def without_nearest(raw: bytes) -> bytes:
    """The entry without the content that it is near to."""
    return b"\0" + encode(msgspec.structs.replace(_read(raw), overlap=0.0, near=None))


def read_log(log: bytes) -> list[tuple[bytes, bytes]]:
    """The digests and sketches in a part of a domain's log."""
    entries = np.frombuffer(log, _LOGGED)
    return [(one["digest"].tobytes(), one["sketch"].tobytes()) for one in entries]
