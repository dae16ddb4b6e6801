"""Same and nearly the same content, remembered on Redis and shared by any number of coordinators.

A content is known by its registrable domain and the first 12 bytes of its sha256: two different ones are taken for the
same once in 10^28 pairs. Near-duplicates (SimHashes that differ in at most 3 bits) are searched in this process, in
copies of the domains' SimHashes; Redis keeps these as a log per domain. A content is recorded only if the copy was
complete: otherwise Redis says what others have recorded since, and the search is made again. So all agree.

Limits: a domain keeps its first `DOMAIN_CONTENTS_MAX` contents. Redis takes about 220 bytes a page (the URL and record
id of the first capture among them); the copies here take about 40 bytes a page of the domains in use, up to
`MEMORY_BYTES_MAX`. Recording a page alone in its domain costs 14 µs of CPU here and 10 in Redis, `known` 5 and 1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from drumlin.dedupe import DISTANCE_BITS_MAX
from drumlin.dedupe.runs import DomainFingerprints
from drumlin.engines.redis_address import Duplicates
from drumlin.engines.redis_records import as_string, encode
from drumlin.model import Content, Duplicate

DIGEST_BYTES = 12
DOMAIN_CONTENTS_MAX = 1 << 18
MEMORY_BYTES_MAX = 128 << 20
ATTEMPTS_MAX = 4
"""After so many searches that others have overtaken, a content is recorded all the same."""

_SIMHASH_BYTES = 8
_ENTRY_BYTES = _SIMHASH_BYTES + DIGEST_BYTES

Functions = Callable[[Sequence[tuple[str, bytes]]], Awaitable[list[Any]]]
"""Runs `record_contents` for each domain, with these arguments."""
Lookups = Callable[
    [Sequence[tuple[str, Sequence[bytes], int | None]]], Awaitable[list[tuple[list[bytes | None], bytes]]]
]
"""Reads entries of each domain by their digests, and its log from some place on, where one is given."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """The first capture of a content in its domain, and how far it was from the nearest before it."""

    url: str
    fetched: float
    record_id: str
    distance: int


_decode = msgspec.msgpack.Decoder(_Entry).decode


class _Match(NamedTuple):
    """The nearest earlier content."""

    distance: int
    digest: bytes


class _Domain:
    """A copy of a domain's log."""

    def __init__(self) -> None:
        self.fingerprints = DomainFingerprints(np.empty(0, np.uint64))
        self._digests = bytearray()
        self.log_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self.fingerprints.size_bytes + len(self._digests)

    def extend(self, log: bytes, begin: int) -> None:
        """Append what the log has from `begin` on, unless another call has done so meanwhile."""
        if begin != self.log_bytes:
            return
        for at in range(0, len(log), _ENTRY_BYTES):
            self.fingerprints.append(int.from_bytes(log[at : at + _SIMHASH_BYTES], "big"))
            self._digests += log[at + _SIMHASH_BYTES : at + _ENTRY_BYTES]
        self.log_bytes += len(log)

    def nearest_all(self, simhashes: list[int]) -> list[_Match | None]:
        """For each SimHash the nearest in the log. A small domain is searched for all of them at once."""
        if self.fingerprints.arranged:
            return [self.nearest(simhash) for simhash in simhashes]
        if not self.fingerprints.count or not simhashes:
            return [None] * len(simhashes)
        (together,) = self.fingerprints.candidates(0)
        distances = np.bitwise_count(together[np.newaxis, :] ^ np.array(simhashes, np.uint64)[:, np.newaxis])
        places = distances.argmin(axis=1)
        least = distances[np.arange(len(simhashes)), places].tolist()
        return [
            self._match(int(place), distance) if distance <= DISTANCE_BITS_MAX else None
            for place, distance in zip(places, least, strict=True)
        ]

    def _match(self, ordinal: int, distance: int) -> _Match:
        at = ordinal * DIGEST_BYTES
        return _Match(distance, bytes(self._digests[at : at + DIGEST_BYTES]))

    def nearest(self, simhash: int) -> _Match | None:
        candidates = self.fingerprints.candidates(simhash)
        together = np.concatenate(candidates) if len(candidates) > 1 else candidates[0]
        if not len(together):
            return None
        distances = np.bitwise_count(together ^ np.uint64(simhash))
        place = int(distances.argmin())
        if distances[place] > DISTANCE_BITS_MAX:
            return None
        return self._match(self.fingerprints.ordinal(simhash, place), int(distances[place]))


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

    async def record(self, contents: Sequence[Content]) -> list[Duplicate | None]:
        """For each content the earlier capture that it repeats, exactly or nearly; from now on it is known itself."""
        answers: list[Duplicate | None] = [None] * len(contents)
        if self._duplicates is Duplicates.OFF:
            return answers
        left = _places_by_domain([content.domain for content in contents])
        for attempt in range(ATTEMPTS_MAX + 1):
            if not left:
                break
            begins = [self._domain(domain).log_bytes for domain in left]
            calls = [
                (domain, self._written(domain, [contents[place] for place in places], attempt))
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

    def _extend(self, name: str, log: bytes, begin: int) -> None:
        domain = self._domain(name)
        before = domain.size_bytes
        domain.extend(log, begin)
        self._memory_bytes += domain.size_bytes - before

    def _forget(self, name: str) -> None:
        domain = self._domains.pop(name, None)
        self._memory_bytes -= domain.size_bytes if domain is not None else 0

    def _written(self, name: str, contents: Sequence[Content], attempt: int) -> bytes:
        """Contents as `record_contents` takes them, each with the nearest before it."""
        near = self._duplicates is Duplicates.NEAR
        domain = self._domain(name)
        batch: list[tuple[int, bytes]] = []
        simhashes = [content.simhash for content in contents if near and content.simhash is not None]
        matches = iter(domain.nearest_all(simhashes))
        written = [
            _written_content(content, next(matches) if near and content.simhash is not None else None, batch, near=near)
            for content in contents
        ]
        known_bytes = domain.log_bytes if attempt < ATTEMPTS_MAX else -1
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


def _written_content(
    content: Content, match: _Match | None, batch: list[tuple[int, bytes]], *, near: bool
) -> list[Any]:
    """Digest, SimHash, whether it joins the log, and the entry; `match` is the nearest in the log, and `batch` what
    earlier ones of the call add."""
    digest, simhash = content.digest[:DIGEST_BYTES], content.simhash
    joins = False
    if near and simhash is not None:
        match = _nearest_in_batch(batch, simhash, match)
        joins = match is None or match.distance > 0
        if joins:
            batch.append((simhash, digest))
    entry = _Entry(content.url, content.fetched, content.record_id, match.distance if match else 0)
    reference = match.digest if match and match.digest != digest else b""
    written = bytes((len(reference),)) + reference + encode(entry)
    packed_simhash = (simhash or 0).to_bytes(_SIMHASH_BYTES, "big")
    return [as_string(digest), as_string(packed_simhash), joins, as_string(written)]


def _nearest_in_batch(batch: list[tuple[int, bytes]], simhash: int, best: _Match | None) -> _Match | None:
    for other, digest in batch:
        distance = (other ^ simhash).bit_count()
        if distance <= DISTANCE_BITS_MAX and (best is None or distance < best.distance):
            best = _Match(distance, digest)
    return best


def _places_by_domain(domains: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, domain in enumerate(domains):
        places.setdefault(domain, []).append(place)
    return places


def _read(raw: bytes) -> _Entry:
    return _decode(raw[1 + raw[0] :])


def _duplicate(entry: _Entry, distance: int | None) -> Duplicate:
    return Duplicate(entry.url, entry.fetched, entry.record_id, distance)


def _answer(content: Content, reply: Sequence[bytes]) -> Duplicate | None:
    if not reply:
        return None
    raw, raw_nearest = reply
    entry = _read(raw)
    if entry.url != content.url:
        return _duplicate(entry, None)
    return _duplicate(_read(raw_nearest), entry.distance) if raw_nearest else None
