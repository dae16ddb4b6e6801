"""What the embedded engines have in common: no network, one process, and so nothing that needs to be asked at once.

The calls on several shards are loops. The small tables are values under prefixed keys, which an engine keeps as it
likes (`Values`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

import msgspec

from drumlin.dedupe import ContentIndex, KeyValue
from drumlin.engines.base import EXPIRE_LIMIT, Added, shard_of
from drumlin.model import Content, Duplicate, Lease, NewURLs, Preview, Renewal, Settlement, ShardStats, Verdict

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


class EmbeddedContents:
    """`base.Contents` over an index in this process."""

    def __init__(self, values: KeyValue) -> None:
        self._index = ContentIndex(values)

    async def known(self, items: Sequence[tuple[str, bytes]]) -> list[Duplicate | None]:
        return self._index.known(items)

    async def record(self, contents: Sequence[Content], overlap_min: float) -> list[Duplicate | None]:
        return self._index.record(contents, overlap_min)


class _Claim(msgspec.Struct, array_like=True):
    holder: str
    until: float


_decode_claim = msgspec.msgpack.Decoder(_Claim).decode


class Embedded:
    """The part of `base.Engine` that follows from the rest when the engine is embedded."""

    shard_count: int
    shared = False
    values: Values

    def shard_of(self, host: str) -> int:
        return shard_of(host, self.shard_count)

    # What the engine itself does

    async def add(
        self, shard: int, found: Sequence[NewURLs], now: float, *, host_urls_max: int | None = None
    ) -> list[Added]:
        raise NotImplementedError

    async def extend(
        self, shard: int, host: str, token: str, now: float, *, until: float, urls_max: int
    ) -> Lease | None:
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

    # Several shards at once

    async def add_all(
        self, batches: Mapping[int, Sequence[NewURLs]], now: float, *, host_urls_max: int | None = None
    ) -> dict[int, list[Added]]:
        return {
            shard: await self.add(shard, found, now, host_urls_max=host_urls_max) for shard, found in batches.items()
        }

    async def extend_all(self, renewals: Sequence[Renewal], now: float, *, until: float) -> list[Lease | None]:
        return [
            await self.extend(one.shard, one.host, one.token, now, until=until, urls_max=one.urls_max)
            for one in renewals
        ]

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

    async def get_entry(self, table: str, key: str) -> bytes | None:
        return self.values.get(_entry_key(table, key))

    async def delete_entries(self, table: str, keys: Sequence[str]) -> None:
        self.values.change({}, [_entry_key(table, key) for key in keys])

    async def claim(self, name: str, holder: str, now: float, *, until: float) -> bool:
        """Claims that have run out are swept away as others of their kind come (what is before the colon of the name),
        a few at a time, so that they do not pile up."""
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
