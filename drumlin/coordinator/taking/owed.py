"""What nodes owe: URLs that are settled, and whose captures are on their way to the store in a bundle.

A URL is settled long before its bundle is in the store. If the node's disk is lost in between, the frontier believes
that the page is stored, and nobody would ever miss it. So before results of a bundle are settled, their URLs are noted
in the engine under the name of the bundle's segment. When the store has the segment, the note is removed. If the store
has not got it after a long while, its URLs are forgotten by the frontier and offered to it again (`fetch_again`).

The notes are tables of the engine: `owed` has the name of each segment and when it was first noted, and `owed.SEGMENT`
its URLs, one entry for each batch of results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec
import xxhash
import zstandard

from drumlin.coordinator.taking.receipts import node_of_result
from drumlin.coordinator.taking.settling import Kept
from drumlin.engines.base import Added, Engine
from drumlin.frontier.priorities import priority_of
from drumlin.model import NewURLs
from drumlin.store.frames import decompressed
from drumlin.store.names import node_of_segment
from drumlin.urls import host_of

TABLE: Final = "owed"
KNOWN_MAX: Final = 10_000
COUNTER: Final = "fetched_again"
COUNTER_SHARD: Final = 0
NOTE_BYTES_MAX: Final = 64 * 1024 * 1024


class OwedSegment(msgspec.Struct, frozen=True):
    """A segment that is not in the store yet, as far as is known, and when it was first heard of (engine time)."""

    name: str
    since: float

    @property
    def node(self) -> str:
        return node_of_segment(self.name)


class Owed:
    """Notes what nodes owe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: set[str] = set()
        """Segments that this coordinator has noted, so their names need not be written with each batch."""
        self._compressor = zstandard.ZstdCompressor(level=1)

    async def note(self, segment: str, kept: Sequence[Kept], now: float) -> None:
        """Note the URLs of results that are about to be settled, of leases of the node that makes the segment. If they
        are sent again, the note is the same."""
        node = node_of_segment(segment)
        kept = [one for one in kept if node and node_of_result(one.result) == node]
        if not kept:
            return
        if segment not in self._known:
            if await self._engine.get_entry(TABLE, segment) is None:
                await self._engine.put_entries(TABLE, {segment: msgspec.msgpack.encode(now)})
            self._known = {*(self._known if len(self._known) < KNOWN_MAX else ()), segment}
        urls = [(one.result.url, one.key.depth) for one in kept]
        note = self._compressor.compress(msgspec.msgpack.encode(urls))
        key = xxhash.xxh3_64_hexdigest("\n".join(one.result.assignment_id for one in kept).encode())
        await self._engine.put_entries(f"{TABLE}.{segment}", {key: note})


async def owed_segments(engine: Engine) -> list[OwedSegment]:
    """All segments that are noted, those first that were noted first."""
    entries = await engine.get_entries(TABLE)
    segments = [OwedSegment(name, msgspec.msgpack.decode(since, type=float)) for name, since in entries.items()]
    return sorted(segments, key=lambda one: one.since)


async def owed_urls(engine: Engine, segment: str) -> list[tuple[str, int]]:
    """The URLs of a segment, with their depths."""
    notes = await engine.get_entries(f"{TABLE}.{segment}")
    kind = list[tuple[str, int]]
    urls = (msgspec.msgpack.decode(decompressed(note, NOTE_BYTES_MAX), type=kind) for note in notes.values())
    return list(dict.fromkeys(one for some in urls for one in some))


async def paid(engine: Engine, segment: str) -> None:
    """Remove the note of a segment, because the store has it."""
    keys = list(await engine.get_entries(f"{TABLE}.{segment}"))
    await engine.delete_entries(f"{TABLE}.{segment}", keys)
    # The name goes last: if we are killed before, the rest is removed the next time.
    await engine.delete_entries(TABLE, [segment])


async def fetch_again(engine: Engine, segment: str, now: float) -> int:
    """Have the URLs of a lost segment fetched again; returns how many. It may be repeated after a kill: a URL that was
    queued again is not done, so it is left alone. If the bundle comes after all, its pages are in the store twice, each
    with its own time."""
    by_place: dict[tuple[str, int], list[str]] = defaultdict(list)
    for url, depth in await owed_urls(engine, segment):
        by_place[host_of(url), depth].append(url)
    again = 0
    for (host, depth), urls in by_place.items():
        shard = engine.shard_of(host)
        await engine.forget_done(shard, urls)
        # Those that wait, or are dead, are known and stay as they are.
        added = await engine.add_all({shard: [NewURLs(host, urls, priority_of(depth), depth)]}, now)
        again += added[shard].count(Added.ADDED)
    if again:
        await engine.count(COUNTER_SHARD, {COUNTER: again})
    await paid(engine, segment)
    return again
