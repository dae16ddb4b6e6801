"""The index of contents: which content each registrable domain has, in a key-value store.

For every new content one entry is kept under its domain and digest: where and when it was captured, and what `record`
answered then. Because the answer is kept, `record` can be repeated after a crash and gives the same answer. A near
match refers to such an entry. The sketches for near matches are in `drumlin.dedupe.near`.

Keys: `c` + domain (8 bytes of hash) + first 8 bytes of the digest: an entry, which holds the whole digest;
      `n` + domain (8 bytes of hash) + format of sketches + number: a chunk of the domain's sketches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec
from xxhash import xxh3_64_digest

from drumlin.dedupe.near import (
    DOMAIN_KEY_BYTES,
    REFERENCE_BYTES,
    KeyValue,
    Near,
    NearIndex,
    Scan,
    Sketched,
    memory_bytes_max,
)
from drumlin.dedupe.overlap import OVERLAP_MIN
from drumlin.dedupe.sketches import readable
from drumlin.errors import EngineError
from drumlin.model import Content, Duplicate
from drumlin.urls import domain_of, host_of

RECORD_BATCH_MAX = 128
"""How many contents are worked on and written at a time. It bounds the memory and the size of one write."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """The first capture of a content in its domain; `near` is what `record` answered for it. `older` is the answer of
    versions that had another measure than sketches; it is not read."""

    digest: bytes
    url: str
    fetched: float
    record_id: str
    older: object = None
    near: Duplicate | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Entry).decode


class Forgotten(NamedTuple):
    """The changes by which contents are forgotten, and how many contents and sketches that are."""

    written: dict[bytes, bytes]
    deleted: list[bytes]
    contents: int
    sketches: int


class ContentIndex:
    """Finds earlier captures with the same or nearly the same content. One writer, and one instance, per store."""

    def __init__(self, kv: KeyValue, memory_bytes: int | None = None) -> None:
        """The copies of sketches may take so many bytes, or `memory_bytes_max()`."""
        self._kv = kv
        self._near = NearIndex(kv, memory_bytes_max() if memory_bytes is None else memory_bytes)

    def known(self, items: Sequence[tuple[str, bytes]]) -> list[Duplicate | None]:
        """For each domain and digest, the first capture of exactly this content in the domain, if there is one."""
        stored = self._kv.get_many([_content_key(_domain_key(domain), digest) for domain, digest in items])
        return [_exact(value, digest) for value, (_, digest) in zip(stored, items, strict=True)]

    def record(self, contents: Sequence[Content], overlap_min: float = OVERLAP_MIN) -> list[Duplicate | None]:
        """For each content the earlier capture that it duplicates, if any. From now on the content is known itself.

        A capture with the same content (`overlap` None) is preferred to one whose text overlaps by `overlap_min` or
        more. Recording a URL and digest again gives the same answer as the first time and changes nothing.
        """
        answers: list[Duplicate | None] = []
        for start in range(0, len(contents), RECORD_BATCH_MAX):
            answers += self._record(contents[start : start + RECORD_BATCH_MAX], overlap_min)
        return answers

    def adopt(self, contents: Sequence[Content]) -> None:
        """Add the sketches of contents that are known already but have no sketch in the present format, so they are
        found as near-duplicates from now on. Doing it again changes nothing."""
        for start in range(0, len(contents), RECORD_BATCH_MAX):
            batch = [content for content in contents[start : start + RECORD_BATCH_MAX] if readable(content.sketch)]
            keys = [_content_key(_domain_key(content.domain), content.digest) for content in batch]
            known = self._entries(keys)
            self._place_sketches({key: one for key, one in zip(keys, batch, strict=True) if key in known})

    # Removing

    def without(self, domain: str, is_removed: Callable[[str], bool], scan: Scan) -> Forgotten:
        """What to write and what to delete, so the contents of a domain with such URLs, and their sketches, are gone.
        Call `forget` once it is written."""
        key = _domain_key(domain)
        written: dict[bytes, bytes] = {}
        deleted: list[bytes] = []
        for place, value in scan(b"c" + key[1:]):
            entry = _decode(value)
            if is_removed(entry.url):
                deleted.append(place)
            elif entry.near is not None and is_removed(entry.near.url):
                written[place] = _encode(msgspec.structs.replace(entry, near=None))
        contents = len(deleted)
        chunks, emptied, sketches = self._near.without(key, {one[DOMAIN_KEY_BYTES:] for one in deleted}, scan)
        return Forgotten(written | chunks, deleted + emptied, contents, sketches)

    def forget(self) -> None:
        """Drop the copies in memory, because the store was changed."""
        self._near.forget()

    # Moving

    def contents(self, scan: Scan) -> Iterator[tuple[Content, Duplicate | None]]:
        """All contents, each without its sketch, and what `record` answered for it."""
        for key, value in scan(b"c"):
            entry = _decode(value)
            domain = _domain_of(entry.url, key[1:DOMAIN_KEY_BYTES])
            yield Content(domain, entry.url, entry.digest, None, entry.fetched, entry.record_id), entry.near

    def sketches(self, scan: Scan) -> Iterator[tuple[str, bytes, bytes]]:
        """The domain, digest and sketch of each content that has a sketch, in order of arrival in its domain."""
        told = self._near.told(scan)
        while batch := list(islice(told, RECORD_BATCH_MAX)):
            keys = [_content_key(one.domain, one.reference) for one in batch]
            for one, value in zip(batch, self._kv.get_many(keys), strict=True):
                if value is None:
                    raise EngineError("The index of contents has lost a part.", "Was it written by two processes?")
                entry = _decode(value)
                yield _domain_of(entry.url, one.domain[1:]), entry.digest, one.sketch

    def written(self, contents: Sequence[tuple[Content, Duplicate | None]]) -> list[tuple[bytes, bytes]]:
        """What to write, so contents that another index told are known here too."""
        return [
            (_content_key(_domain_key(content.domain), content.digest), _encode(_entry(content, near)))
            for content, near in contents
        ]

    def written_sketches(self, sketches: Sequence[tuple[str, bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The same for sketches. The caller must write it before it calls anything else here."""
        batch = [Sketched(_domain_key(domain), sketch, digest[:REFERENCE_BYTES]) for domain, digest, sketch in sketches]
        return list(self._near.append(batch).items())

    def _place_sketches(self, contents: dict[bytes, Content]) -> None:
        sketched = [Sketched(b"n" + key[1:9], content.sketch or b"", key[9:]) for key, content in contents.items()]
        if sketched:
            _, changes = self._near.place(sketched, OVERLAP_MIN)
            self._write(list(changes.items()))

    def _record(self, contents: Sequence[Content], overlap_min: float) -> list[Duplicate | None]:
        domains = [_domain_key(content.domain) for content in contents]
        keys = [_content_key(domain, content.digest) for domain, content in zip(domains, contents, strict=True)]
        entries = self._entries(keys)
        fresh = self._fresh(keys, contents, entries)
        entries |= self._place(fresh, overlap_min)
        return [_answer(content, entries[key]) for key, content in zip(keys, contents, strict=True)]

    def _entries(self, keys: list[bytes]) -> dict[bytes, _Entry]:
        stored = zip(keys, self._kv.get_many(keys), strict=True)
        return {key: _decode(value) for key, value in stored if value is not None}

    @staticmethod
    def _fresh(keys: list[bytes], contents: Sequence[Content], entries: dict[bytes, _Entry]) -> dict[bytes, Content]:
        """The contents that have no entry yet, in order; the first of those with the same key."""
        fresh: dict[bytes, Content] = {}
        for key, content in zip(keys, contents, strict=True):
            if key not in entries:
                fresh.setdefault(key, content)
        return fresh

    def _place(self, fresh: dict[bytes, Content], overlap_min: float) -> dict[bytes, _Entry]:
        """Write an entry for each new content, and its sketch, in one atomic write."""
        if not fresh:
            return {}
        sketched = {
            key: Sketched(b"n" + key[1:9], content.sketch, key[9:])
            for key, content in fresh.items()
            if content.sketch is not None and readable(content.sketch)
        }
        matches, changes = self._near.place(list(sketched.values()), overlap_min) if sketched else ([], {})
        nearest = self._resolve({key: match for key, match in zip(sketched, matches, strict=True) if match}, fresh)
        entries = {key: _entry(content, nearest.get(key)) for key, content in fresh.items()}
        self._write([*changes.items(), *((key, _encode(entry)) for key, entry in entries.items())])
        return entries

    def _write(self, pairs: list[tuple[bytes, bytes]]) -> None:
        try:
            self._kv.put_many(pairs)
        except BaseException:
            self._near.forget()
            raise

    def _resolve(self, matches: dict[bytes, Near], fresh: dict[bytes, Content]) -> dict[bytes, Duplicate]:
        """The captures that matches refer to, which are in this batch or were stored before."""
        if not matches:
            return {}
        targets = {key: _content_key(b"n" + key[1:9], match.reference) for key, match in matches.items()}
        wanted = [target for target in set(targets.values()) if target not in fresh]
        captures: dict[bytes, Content | _Entry] = {**fresh, **self._entries(wanted)}
        return {
            key: _duplicate(captures[target], matches[key].overlap)
            for key, target in targets.items()
            if target in captures
        }


def _domain_key(domain: str) -> bytes:
    """The beginning of the keys of a domain's sketches. The hash in it is part of all keys of the domain."""
    return b"n" + xxh3_64_digest(domain.encode())


def _content_key(domain_key: bytes, digest: bytes) -> bytes:
    return b"c" + domain_key[1:] + digest[:REFERENCE_BYTES]


def _entry(content: Content, near: Duplicate | None) -> _Entry:
    return _Entry(content.digest, content.url, content.fetched, content.record_id, None, near)


def _duplicate(capture: Content | _Entry, overlap: float | None) -> Duplicate:
    return Duplicate(capture.url, capture.fetched, capture.record_id, overlap=overlap)


def _same(entry: _Entry, digest: bytes) -> bool:
    """Whether an entry is of this digest. One that came from Redis has only the beginning of it, of 12 bytes."""
    return digest.startswith(entry.digest)


def _domain_of(url: str, hashed: bytes) -> str:
    """The domain of a captured URL; its hash is a part of the keys, and the domain itself is not. If it was recorded
    with an older list of public suffixes, it is another part of the host's name than it would be now."""
    host = host_of(url)
    name, domain = host.partition(":")[0], domain_of(host)
    parts = name.split(".")
    for candidate in (domain, *(".".join(parts[at:]) for at in range(len(parts)))):
        if xxh3_64_digest(candidate.encode()) == hashed:
            return candidate
    raise EngineError(f"The index of contents is damaged: {url} is under another site.")


def _exact(value: bytes | None, digest: bytes) -> Duplicate | None:
    entry = None if value is None else _decode(value)
    return _duplicate(entry, None) if entry is not None and _same(entry, digest) else None


def _answer(content: Content, entry: _Entry) -> Duplicate | None:
    # If another digest is under the same key, the first 8 bytes collide: then the later content is not remembered.
    if not _same(entry, content.digest):
        return None
    return entry.near if entry.url == content.url else _duplicate(entry, None)
