"""What the embedded engines share. They live in one process without a network, so calls on several shards are loops.

The small tables are values under prefixed keys; each engine brings its own storage for them (`Values`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Protocol

import msgspec

from drumlin.dedupe import ContentIndex, KeyValue
from drumlin.engines.base import DEAD_LETTERS_LIMIT, EXPIRE_LIMIT, Added, shard_of
from drumlin.engines.kept import (
    MARK_BYTES,
    Kept,
    KeptContent,
    KeptSketch,
    KeptValue,
    Section,
    is_told,
    pages,
)
from drumlin.engines.paging import page_of
from drumlin.model import (
    Content,
    DeadGroup,
    DeadLetter,
    Duplicate,
    FailureKind,
    GroupPlace,
    HostState,
    LetterPlace,
    NewURLs,
    Preview,
    Settled,
    Settlement,
    ShardStats,
    Verdict,
)

_META, _ENTRY, _CLAIM = "meta.", "entry.", "claim."
_TIME = "time"
_TABLE_END = "\0"
CLAIMS_SWEPT_MAX = 2
CHECK_KEY = "check"


class Values(Protocol):
    """Values by key, beside the frontier."""

    def get(self, key: str) -> bytes | None:
        """The value, if there is one."""

    def change(self, put: Mapping[str, bytes], delete: Sequence[str] = ()) -> None:
        """Set and remove values, all or none."""

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Keys that begin with `prefix`, in order, with their values."""

    def scan_back(self, prefix: str, before: str) -> Iterator[tuple[str, bytes]]:
        """The same from the last to the first; if `before` is not empty, only keys before it."""


class ScannedKeyValue(KeyValue, Protocol):
    """`drumlin.dedupe.KeyValue` from which something can be removed."""

    def change(self, put: Mapping[bytes, bytes], delete: Sequence[bytes]) -> None:
        """Set and remove values, all or none."""


def verdict_on(settled: Settled, task_id: int, attempt_id: bytes, live: bool, leased: bool, ended: bool) -> Verdict:
    """The rules of `base.Engine.settle_all`, in their order. The URL's task has this id and was last settled with this
    attempt; `live` is whether the settlement has the id of the live lease, `leased` whether that lease holds the
    task, `ended` whether the task is done or dead."""
    if task_id != settled.task_id:
        return Verdict.STALE
    if settled.attempt_id and settled.attempt_id == attempt_id:
        return Verdict.REPEATED
    if live:
        return Verdict.SETTLED if leased else Verdict.STALE
    return Verdict.STALE if leased or ended or attempt_id else Verdict.SETTLED


def refuses_for_good(settled: Settled, task_id: int, attempt_id: bytes, live: bool, leased: bool) -> bool:
    """Whether a task is to be marked with `REFUSED`, since this result is refused because another lease holds it."""
    return leased and not live and not attempt_id and task_id == settled.task_id


class EmbeddedContents:
    """`base.Contents` over an index in this process."""

    def __init__(self, values: ScannedKeyValue) -> None:
        self._index = ContentIndex(values)
        self._values = values

    async def known(self, items: Sequence[tuple[str, bytes]]) -> list[Duplicate | None]:
        return self._index.known(items)

    async def record(self, contents: Sequence[Content], overlap_min: float) -> list[Duplicate | None]:
        return self._index.record(contents, overlap_min)

    async def adopt(self, contents: Sequence[Content]) -> None:
        self._index.adopt(contents)

    def remove(self, domain: str, is_removed: Callable[[str], bool], *, dry_run: bool) -> tuple[int, int]:
        """See `base.Engine.remove_contents`."""
        found = self._index.without(domain, is_removed, self._values.scan)
        if not dry_run and (found.written or found.deleted):
            self._values.change(found.written, found.deleted)
            self._index.forget()
        return found.contents, found.sketches

    def told(self) -> Iterator[Kept]:
        return (KeptContent(*one) for one in self._index.contents(self._values.scan))

    def told_sketches(self) -> Iterator[Kept]:
        return (KeptSketch(*one) for one in self._index.sketches(self._values.scan))

    def written(self, kept: Sequence[Kept]) -> list[tuple[bytes, bytes]]:
        """The keys and values by which these contents and sketches come to be known."""
        contents = [(one.content, one.near) for one in kept if isinstance(one, KeptContent)]
        sketches = [(one.domain, one.digest, one.sketch) for one in kept if isinstance(one, KeptSketch)]
        return [*self._index.written(contents), *self._index.written_sketches(sketches)]


class _Claim(msgspec.Struct, array_like=True):
    holder: str
    until: float


_decode_claim = msgspec.msgpack.Decoder(_Claim).decode


class Embedded:
    """The part of `base.Engine` that an embedded engine can build from its other methods and `values`."""

    shard_count: int
    shared = False
    ids_of_hosts = False
    values: Values
    contents: EmbeddedContents

    @property
    def mark_bits(self) -> int:
        return 8 * MARK_BYTES

    def shard_of(self, host: str) -> int:
        return shard_of(host, self.shard_count)

    # One shard, which each engine implements itself; see the calls of the same name with `_all` in `base.Engine`

    async def add(
        self, shard: int, found: Sequence[NewURLs], now: float, *, host_urls_max: int | None = None
    ) -> list[Added]:
        raise NotImplementedError

    async def settle(self, shard: int, settlements: Sequence[Settlement], now: float) -> list[list[Verdict]]:
        raise NotImplementedError

    async def preview(self, shard: int, settlements: Sequence[Settlement]) -> list[Preview]:
        raise NotImplementedError

    async def expire(self, shard: int, now: float, *, limit: int = EXPIRE_LIMIT) -> list[str]:
        raise NotImplementedError

    async def release_node(self, shard: int, node: str, now: float) -> int:
        raise NotImplementedError

    async def stats(self, shard: int, now: float) -> ShardStats:
        raise NotImplementedError

    def host_names(self, shard: int, prefix: str, after: str, limit: int) -> list[str]:
        raise NotImplementedError

    def dead_letters(
        self, shard: int, kind: FailureKind | None, host: str, after: LetterPlace | None, limit: int
    ) -> list[DeadLetter]:
        raise NotImplementedError

    def dead_groups(
        self, shard: int, kind: FailureKind | None, after: GroupPlace | None, limit: int
    ) -> list[DeadGroup]:
        raise NotImplementedError

    async def host_state(self, shard: int, host: str) -> HostState | None:
        raise NotImplementedError

    def told(self, section: Section, shard: int) -> Iterator[Kept]:
        """What is kept of one shard, without contents and values; see `read_kept`."""
        raise NotImplementedError

    # Moving a frontier

    async def read_kept(self, section: Section) -> AsyncIterator[list[Kept]]:
        for page in pages(self._told(section)):
            yield page

    async def remove_contents(
        self, domain: str, is_removed: Callable[[str], bool], *, dry_run: bool = False
    ) -> tuple[int, int]:
        return self.contents.remove(domain, is_removed, dry_run=dry_run)

    def _told(self, section: Section) -> Iterator[Kept]:
        if section is Section.VALUES:
            return filter(is_told, chain(self._told_meta(), self._told_entries()))
        if section is Section.CONTENTS:
            return self.contents.told()
        if section is Section.SKETCHES:
            return self.contents.told_sketches()
        return chain.from_iterable(self.told(section, shard) for shard in range(self.shard_count))

    def _told_meta(self) -> Iterator[KeptValue]:
        return (KeptValue("", key.removeprefix(_META), value) for key, value in self.values.scan(_META))

    def _told_entries(self) -> Iterator[KeptValue]:
        for name, value in self.values.scan(_ENTRY):
            table, _, key = name.removeprefix(_ENTRY).partition(_TABLE_END)
            yield KeptValue(table, key, value)

    # Several shards at once

    async def find_hosts_all(self, prefix: str, *, after: str = "", limit: int) -> list[HostState]:
        async def ask(place: str | None, size: int) -> list[list[str]]:
            return [self.host_names(shard, prefix, place or "", size) for shard in range(self.shard_count)]

        names = await page_of(ask, str, after, limit=limit, parts=self.shard_count)
        states = [await self.host_state(self.shard_of(name), name) for name in names]
        return [state for state in states if state is not None]

    async def dead_letters_all(
        self,
        *,
        kind: FailureKind | None = None,
        host: str = "",
        after: LetterPlace | None = None,
        limit: int = DEAD_LETTERS_LIMIT,
    ) -> list[DeadLetter]:
        shards = [self.shard_of(host)] if host else range(self.shard_count)

        async def ask(place: LetterPlace | None, size: int) -> list[list[DeadLetter]]:
            return [self.dead_letters(shard, kind, host, place, size) for shard in shards]

        return await page_of(ask, lambda one: one.place, after, limit=limit, parts=len(shards))

    async def dead_groups_all(
        self, *, kind: FailureKind | None = None, after: GroupPlace | None = None, limit: int = DEAD_LETTERS_LIMIT
    ) -> list[DeadGroup]:
        async def ask(place: GroupPlace | None, size: int) -> list[list[DeadGroup]]:
            return [self.dead_groups(shard, kind, place, size) for shard in range(self.shard_count)]

        return await page_of(ask, lambda one: one.place, after, limit=limit, parts=self.shard_count)

    async def add_all(
        self, batches: Mapping[int, Sequence[NewURLs]], now: float, *, host_urls_max: int | None = None
    ) -> dict[int, list[Added]]:
        return {
            shard: await self.add(shard, found, now, host_urls_max=host_urls_max) for shard, found in batches.items()
        }

    async def settle_all(
        self, batches: Mapping[int, Sequence[Settlement]], now: float
    ) -> dict[int, list[list[Verdict]]]:
        return {shard: await self.settle(shard, settlements, now) for shard, settlements in batches.items()}

    async def preview_all(self, batches: Mapping[int, Sequence[Settlement]]) -> dict[int, list[Preview]]:
        return {shard: await self.preview(shard, settlements) for shard, settlements in batches.items()}

    async def expire_all(self, now: float, *, limit: int = EXPIRE_LIMIT) -> list[str]:
        return [host for shard in range(self.shard_count) for host in await self.expire(shard, now, limit=limit)]

    async def release_nodes(self, nodes: Sequence[str], now: float) -> int:
        return sum([await self.release_node(shard, node, now) for shard in range(self.shard_count) for node in nodes])

    async def stats_all(self, now: float) -> list[ShardStats]:
        return [await self.stats(shard, now) for shard in range(self.shard_count)]

    async def check(self, within_s: float) -> None:
        await self.put_meta(CHECK_KEY, b"")

    # Small tables

    async def get_meta(self, key: str) -> bytes | None:
        return self.values.get(_META + key)

    async def put_meta(self, key: str, value: bytes) -> None:
        self.values.change({_META + key: value})

    async def put_meta_if_absent(self, key: str, value: bytes) -> bytes:
        known = self.values.get(_META + key)
        if known is None:
            self.values.change({_META + key: value})
        return value if known is None else known

    async def put_entries(self, table: str, entries: Mapping[str, bytes]) -> None:
        self.values.change({_entry_key(table, key): value for key, value in entries.items()})

    async def get_entries(self, table: str) -> dict[str, bytes]:
        prefix = _entry_key(table, "")
        return {key.removeprefix(prefix): value for key, value in self.values.scan(prefix)}

    async def last_entries(self, table: str, *, limit: int, before: str = "") -> dict[str, bytes]:
        prefix = _entry_key(table, "")
        found = self.values.scan_back(prefix, prefix + before if before else "")
        return {key.removeprefix(prefix): value for key, value in islice(found, limit)}

    async def get_entry(self, table: str, key: str) -> bytes | None:
        return self.values.get(_entry_key(table, key))

    async def delete_entries(self, table: str, keys: Sequence[str]) -> None:
        self.values.change({}, [_entry_key(table, key) for key in keys])

    async def claim(self, name: str, holder: str, now: float, *, until: float) -> bool:
        """See `base.Engine.claim`. Each claim also removes a few expired ones of its kind (the part of the name before
        the colon), so they do not pile up."""
        value = self.values.get(_CLAIM + name)
        held = _decode_claim(value) if value is not None else None
        if held is not None and held.holder != holder and held.until > now:
            return False
        self.values.change({_CLAIM + name: msgspec.msgpack.encode(_Claim(holder, until))}, self._old_claims(name, now))
        return True

    def _old_claims(self, name: str, now: float) -> list[str]:
        kind, colon, _ = name.partition(":")
        alike = self.values.scan(_CLAIM + kind + colon)
        return [key for key, value in islice(alike, CLAIMS_SWEPT_MAX) if key != _CLAIM + name and _over(value, now)]

    async def keep_time(self, mine: float) -> float:
        value = self.values.get(_TIME)
        kept = float(value) if value is not None else 0.0
        if mine <= kept:
            return kept
        self.values.change({_TIME: repr(mine).encode()})
        return mine


def _over(value: bytes, now: float) -> bool:
    return _decode_claim(value).until <= now


def _entry_key(table: str, key: str) -> str:
    return _ENTRY + table + _TABLE_END + key
