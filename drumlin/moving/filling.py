"""Fills an empty engine with a frontier, so that it can be broken off at any moment and made again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from msgspec.structs import replace

from drumlin.engines.base import Engine
from drumlin.engines.kept import (
    CLOSED_KEY,
    FILLED_KEY,
    Closed,
    Kept,
    KeptContent,
    KeptCounters,
    KeptDone,
    KeptHost,
    KeptSketch,
    KeptTask,
    KeptValue,
    Section,
    number_of_records,
    weight_of,
)
from drumlin.errors import BusyError, EngineError
from drumlin.moving.digests import Digest, differences
from drumlin.moving.sources import EngineSource, OnPage, Source, digest_of

SHARD_BUFFERED_MAX = 500
BUFFERED_MAX = 50_000
"""How many URLs and hosts wait until there are enough for their shard. One record may have a thousand of them."""
EMPTY = "Choose an empty place: a new directory, or another name at the end of the redis:// address."
REPEAT = "Repeat the command that was broken off, which goes on with it, or choose an empty place."


async def check_empty(engine: Engine, source: Source, place: str = "This engine") -> None:
    """Refuse an engine that has a crawl, unless it is the beginning of this very import. People call it `place`."""
    reason = Closed.read(await engine.get_meta(CLOSED_KEY))
    if reason is not None:
        _check_same(reason, source, place)
        return
    if await engine.keep_time(0.0):
        _refuse_full(await engine.get_meta(FILLED_KEY), source, place)
    for section in (Section.HOSTS, Section.VALUES):
        async for _ in engine.read_kept(section):
            raise BusyError(f"{place} is not empty: something was set there.", f"{EMPTY} Make tokens afterwards.")


def _check_same(reason: Closed, source: Source, place: str) -> None:
    """Refuse to go on with the import of something else."""
    if reason.name == source.name:
        return
    if reason.is_half and reason.origin == source.origin:
        changed = f"{source.origin} has changed since it was half copied to {place}, which cannot go on."
        raise EngineError(changed, EMPTY)
    raise EngineError(reason.sentence, REPEAT if reason.is_half else EMPTY)


def _refuse_full(filled: bytes | None, source: Source, place: str) -> None:
    if filled == source.name.encode():
        raise BusyError(f"{source.origin} was copied to {place} before.", f"Use it there. {EMPTY}")
    raise BusyError(f"{place} has a crawl already.", EMPTY)


async def fill(engine: Engine, source: Source, on_page: OnPage, place: str = "This engine") -> None:
    """Fill an engine. Until all of it is there, nobody else can use the engine. People call it `place`."""
    await check_empty(engine, source, place)
    half = Closed(f"{place} is only half filled: copying {source.origin} was broken off.", REPEAT)
    closed = replace(half, name=source.name, origin=source.origin)
    await engine.put_meta(CLOSED_KEY, closed.written())
    shards = _Shards(engine, source)
    for section in Section:
        async for page in source.pages(section):
            if section is Section.VALUES:
                await _put_values(engine, page)
            else:
                await shards.add(page)
            on_page(section, number_of_records(page))
        await shards.flush()


async def finish(engine: Engine, source: Source) -> None:
    """Let everybody use an engine that was filled. Time comes last: it is what says that there is a crawl."""
    await engine.put_meta(FILLED_KEY, source.name.encode())
    await engine.keep_time(source.header.time)
    await engine.put_meta(CLOSED_KEY, b"")


async def compare(source: Source, engine: Engine, on_page: OnPage) -> tuple[Digest, list[str]]:
    """The digest of a frontier, and in what an engine differs from it."""
    bits = min(source.header.mark_bits, engine.mark_bits)
    expected = await digest_of(source, bits, on_page)
    found = await digest_of(EngineSource(engine, source.header), bits, on_page)
    return expected, differences(expected, found)


async def _put_values(engine: Engine, page: list[Kept]) -> None:
    tables: dict[str, dict[str, bytes]] = defaultdict(dict)
    for one in page:
        if isinstance(one, KeptValue):
            tables[one.table][one.key] = one.value
    for key, value in tables.pop("", {}).items():
        await engine.put_meta(key, value)
    for table, entries in tables.items():
        await engine.put_entries(table, entries)


class _Shards:
    """The shards of an engine that is filled. Which records make up a step depends only on what the source tells and on
    the number of shards, so an import that is made again has the same steps."""

    def __init__(self, engine: Engine, source: Source) -> None:
        self._engine = engine
        self._now = source.header.time
        self._sources = source.header.shards
        self._renumbers = not engine.ids_of_hosts and self._sources not in (1, engine.shard_count)
        self._steps = [0] * engine.shard_count
        self._buffered: dict[int, list[Kept]] = defaultdict(list)
        self._weights: dict[int, int] = defaultdict(int)

    async def add(self, page: list[Kept]) -> None:
        for record in page:
            shard = self._shard_of(record)
            self._buffered[shard].append(self._renumbered(record) if self._renumbers else record)
            self._weights[shard] += weight_of(record)
        full = [shard for shard, weight in self._weights.items() if weight >= SHARD_BUFFERED_MAX]
        await self._write({shard: self._take(shard) for shard in full})
        if sum(self._weights.values()) > BUFFERED_MAX:
            await self.flush()

    def _take(self, shard: int) -> list[Kept]:
        del self._weights[shard]
        return self._buffered.pop(shard)

    async def flush(self) -> None:
        await self._write({shard: self._take(shard) for shard in list(self._buffered)})

    async def _write(self, batches: Mapping[int, list[Kept]]) -> None:
        calls = []
        for shard, records in batches.items():
            self._steps[shard] += 1
            calls.append(self._engine.fill(shard, self._steps[shard], records, self._now))
        await asyncio.gather(*calls)

    def _shard_of(self, record: Kept) -> int:
        if isinstance(record, KeptHost | KeptTask | KeptDone):
            return self._engine.shard_of(record.host)
        if isinstance(record, KeptContent):
            return self._engine.shard_of(record.content.domain)
        if isinstance(record, KeptSketch):
            return self._engine.shard_of(record.domain)
        return record.shard % self._engine.shard_count if isinstance(record, KeptCounters) else 0

    def _renumbered(self, record: Kept) -> Kept:
        """Give tasks ids that no other task has, although shards that had the same ids are one now. The order of a
        host's tasks stays as it was."""
        if isinstance(record, KeptTask):
            task = replace(record.task, id=record.task.id * self._sources + record.shard)
            return replace(record, task=task)
        if isinstance(record, KeptDone) and record.ids:
            return replace(record, ids=[one * self._sources + record.shard for one in record.ids])
        return record
