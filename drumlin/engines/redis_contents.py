"""Same and nearly the same content, remembered on Redis and shared by any number of coordinators.

A content is known by its registrable domain and the first 12 bytes of its sha256: two different ones are taken for the
same once in 10^28 pairs. Near-duplicates (by the sketches of their texts) are searched in this process, in copies of
the domains' sketches; Redis keeps these as a log per domain. A content is recorded only if the copy was complete:
otherwise Redis says what others have recorded since, and the search is made again. So all agree.

The log has a key of its own for this format of sketches: what earlier versions of drumlin logged is not found, nor is
what they called near believed, and the index fills anew. Exact duplicates stay known.

Limits: a domain keeps its first `DOMAIN_CONTENTS_MAX` contents. Redis takes about 300 bytes a page (the URL and record
id of the first capture among them); the copies here take 120 to 230 bytes a page of the domains in use, up to
`MEMORY_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from drumlin.dedupe.runs import DomainSketches
from drumlin.dedupe.search import as_words, nearest
from drumlin.dedupe.sketches import SKETCH_BYTES, readable
from drumlin.engines.redis_address import Duplicates
from drumlin.engines.redis_records import as_string, encode
from drumlin.model import Content, Duplicate

DIGEST_BYTES = 12
DOMAIN_CONTENTS_MAX = 1 << 18
MEMORY_BYTES_MAX = 128 << 20
ATTEMPTS_MAX = 4
"""After so many searches that others have overtaken, a content is recorded all the same."""

_ENTRY_BYTES = SKETCH_BYTES + DIGEST_BYTES

Functions = Callable[[Sequence[tuple[str, bytes]]], Awaitable[list[Any]]]
"""Runs `record_contents` for each domain, with these arguments."""
Lookups = Callable[
    [Sequence[tuple[str, Sequence[bytes], int | None]]], Awaitable[list[tuple[list[bytes | None], bytes]]]
]
"""Reads entries of each domain by their digests, and its log from some place on, where one is given."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """The first capture of a content in its domain, and how much it overlapped with the nearest before it. `older` is
    what versions before sketches measured: it is not read."""

    url: str
    fetched: float
    record_id: str
    older: int = 0
    overlap: float = 0.0


_decode = msgspec.msgpack.Decoder(_Entry).decode


class _Match(NamedTuple):
    """The nearest earlier content."""

    overlap: float
    digest: bytes


class _Domain:
    """A copy of a domain's log."""

    def __init__(self) -> None:
        self.sketches = DomainSketches(as_words([]))
        self._digests = bytearray()
        self.log_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self.sketches.size_bytes + len(self._digests)

    def extend(self, log: bytes, begin: int) -> None:
        """Append what the log has from `begin` on, unless another call has done so meanwhile."""
        if begin != self.log_bytes or not log:
            return
        entries = [log[at : at + _ENTRY_BYTES] for at in range(0, len(log), _ENTRY_BYTES)]
        self.sketches.extend(as_words([entry[:SKETCH_BYTES] for entry in entries]))
        self._digests += b"".join([entry[SKETCH_BYTES:] for entry in entries])
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
        self._memory_bytes = 0

    async def known(self, items: Sequence[tuple[str, bytes]]) -> list[Duplicate | None]:
        """For each domain and digest, the first capture of exactly this content there, if any.

        Who asks will record the others soon. So what other engines have recorded is read on the way.
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
        """For each content the earlier capture that it repeats, exactly or with a text that overlaps by so much; from
        now on it is known itself."""
        answers: list[Duplicate | None] = [None] * len(contents)
        if self._duplicates is Duplicates.OFF:
            return answers
        left = _places_by_domain([content.domain for content in contents])
        for attempt in range(ATTEMPTS_MAX + 1):
            if not left:
                break
            begins = [self._domain(domain).log_bytes for domain in left]
            matches = self._nearest(contents, [place for places in left.values() for place in places], overlap_min)
            calls = [
                (domain, self._written(domain, [(contents[place], matches.get(place)) for place in places], attempt))
                for domain, places in left.items()
            ]
            for domain, begin, reply in zip(list(left), begins, await self._functions(calls), strict=True):
                recorded = len(reply) > 1
                if recorded and attempt == ATTEMPTS_MAX:
                    # The copy lacks what others recorded before this: it is read again at next need.
                    self._forget(domain)
                else:
                    self._extend(domain, reply[1] if recorded else reply[0], begin)
                if recorded:
                    for place, answer in zip(left.pop(domain), reply[2], strict=True):
                        answers[place] = _answer(contents[place], answer)
        self._forget_oldest()
        return answers

    def _nearest(self, contents: Sequence[Content], places: list[int], overlap_min: float) -> dict[int, _Match]:
        """By place, the nearest of what is in the copies, or before it in the batch, for those that have one."""
        judged = [place for place in places if self._judges(contents[place])]
        if not judged:
            return {}
        domains = [self._domain(contents[place].domain) for place in judged]
        sketches = as_words([contents[place].sketch or b"" for place in judged])
        found = nearest([domain.sketches for domain in domains], sketches, overlap_min)
        return {
            place: _Match(
                match.overlap,
                domain.digest(match.ordinal)
                if match.ordinal >= 0
                else contents[judged[match.place]].digest[:DIGEST_BYTES],
            )
            for place, domain, match in zip(judged, domains, found, strict=True)
            if match is not None
        }

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

    def _written(self, name: str, contents: Sequence[tuple[Content, _Match | None]], attempt: int) -> bytes:
        """Contents as `record_contents` takes them, each with the nearest before it."""
        written = [_written_content(content, match, judged=self._judges(content)) for content, match in contents]
        known_bytes = self._domain(name).log_bytes if attempt < ATTEMPTS_MAX else -1
        return encode((name, known_bytes, DOMAIN_CONTENTS_MAX, written))

    def _domain(self, name: str) -> _Domain:
        """The copy of a domain, moved to the end of the order of use."""
        domain = self._domains.pop(name, None)
        if domain is None:
            domain = _Domain()
            self._memory_bytes += domain.size_bytes
        self._domains[name] = domain
        return domain

    def _forget_oldest(self) -> None:
        while self._memory_bytes > MEMORY_BYTES_MAX and self._domains:
            self._forget(next(iter(self._domains)))


def _written_content(content: Content, match: _Match | None, *, judged: bool) -> list[Any]:
    """Digest, sketch, whether it joins the log, and the entry. A sketch that is there already does not join again."""
    digest = content.digest[:DIGEST_BYTES]
    joins = judged and (match is None or match.overlap < 1)
    entry = _Entry(content.url, content.fetched, content.record_id, overlap=match.overlap if match else 0.0)
    reference = match.digest if match and match.digest != digest else b""
    written = bytes((len(reference),)) + reference + encode(entry)
    return [as_string(digest), as_string(content.sketch or b"" if joins else b""), joins, as_string(written)]


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
    return _duplicate(_read(raw_nearest), entry.overlap) if raw_nearest and entry.overlap else None
