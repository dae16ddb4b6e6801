"""What nodes owe: URLs that are settled, and whose captures are on their way to the store in a bundle.

A URL is settled long before its bundle is in the store. If the node's disk is lost in between, the frontier believes
that the page is stored, and nobody would ever miss it. So before results of a bundle are settled, their URLs are noted
in the engine under the name of the bundle's segment. When the store has the segment, the note is removed. If the store
has not got it after a long while, its URLs are forgotten by the frontier and offered to it again (`fetch_again`).

The notes are tables of the engine: `owed` has the name of each segment and when it was first noted, and `owed.SEGMENT`
its URLs, one entry for each batch of results.

A node may owe only so many segments at once. Otherwise one that names another segment with each result, and never sends
any, could leave more of them in a day than can be looked for and fetched again in weeks.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import xxhash
import zstandard

from drumlin.coordinator.nodes import NodeRegistry
from drumlin.coordinator.taking.receipts import node_of_result
from drumlin.coordinator.taking.settling import Kept
from drumlin.engines.base import Added, Engine
from drumlin.frontier.priorities import priority_of
from drumlin.http.refusal import Refused
from drumlin.logs import Event, event
from drumlin.model import NewURLs
from drumlin.store.frames import decompressed
from drumlin.store.names import node_of_segment
from drumlin.urls import host_of

TABLE: Final = "owed"
KNOWN_MAX: Final = 10_000
COUNTER: Final = "fetched_again"
COUNTER_SHARD: Final = 0
NOTE_BYTES_MAX: Final = 64 * 1024 * 1024
EACH_MAX: Final = 10_000
"""How many segments a node may owe before its results for further ones have to wait. A node ends a segment after a
minute, after 1,000 pages or after 64 MiB. So of small ones that nobody takes these are a week's, and by default they
count as lost after a day. Of full ones it has long kept the 4 GiB after which it fetches nothing more by default: 1,000
pages of any site take more than 430 kB. Each coordinator may let a node owe so many more than the last count, since
none hears what the others note."""
RECOVERED_MAX: Final = 1_000
"""How many more a node may owe that recovers. It sends no bundle before it has sent the results that were left, so it
would owe too many for ever."""
NOTES_MAX: Final = 10_000
"""How many batches a coordinator takes of one segment. A node ends a segment after a minute, in which it sends at most
3,000."""
COUNT_EVERY_S: Final = 20.0
"""How old a count may be of what nodes owe; to it a coordinator adds what it has noted itself since. And how long a
coordinator believes that a segment is still noted."""
LOOKED_KEY: Final = "owed_looked"
LOOKED_AGO_S_MAX: Final = 600.0
"""If nobody has looked for so long what has arrived, what is noted says nothing about what is owed."""
NOTES_AT_ONCE: Final = 1_000
AGAIN_AT_ONCE: Final = 20_000
"""How many notes of a segment are read at once, and about how many of its URLs are offered at once."""

log = logging.getLogger("drumlin.coordinator")


class OwedSegment(msgspec.Struct, frozen=True):
    """A segment that is not in the store yet, as far as is known, and when it was first heard of (engine time)."""

    name: str
    since: float

    @property
    def node(self) -> str:
        return node_of_segment(self.name)


class _Noted(msgspec.Struct):
    """A segment that this coordinator has found noted, when that was, and how many batches of it have come here."""

    at: float
    batches: int = 0


class Owed:
    """Notes what nodes owe."""

    def __init__(self, engine: Engine, nodes: NodeRegistry | None = None) -> None:
        self._engine, self._nodes = engine, nodes
        self._known: dict[str, _Noted] = {}
        """Segments that were noted a moment ago, so their names need not be asked for with each batch."""
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._counts: Counter[str] | None = None
        """How many segments each node owes; None if nobody looks what has arrived."""
        self._counted_at = float("-inf")
        self._told: set[str] = set()
        """Nodes of which a line says that they have to wait."""

    async def note(self, segment: str, kept: Sequence[Kept], now: float, sender: str | None = None) -> None:
        """Note the URLs of results that are about to be settled, of leases of the node that makes the segment. If they
        are sent again, the note is the same. `Refused` if the node owes too much: nothing is noted then, and the
        results have to wait. `sender` may be another node, which found them on a disk that both use."""
        node = node_of_segment(segment)
        kept = [one for one in kept if node and node_of_result(one.result) == node]
        if not kept:
            return
        await self._note_name(segment, node, sender or node, now)
        urls = [(one.result.url, one.key.depth) for one in kept]
        note = self._compressor.compress(msgspec.msgpack.encode(urls))
        key = xxhash.xxh3_64_hexdigest("\n".join(one.result.assignment_id for one in kept).encode())
        await self._engine.put_entries(f"{TABLE}.{segment}", {key: note})

    async def _note_name(self, segment: str, node: str, sender: str, now: float) -> None:
        """Without its name, nobody would ever look for the URLs of a segment. The name goes when the bundle arrives or
        is given up, and a node that was away may send more of that segment afterwards."""
        known = self._known.get(segment)
        if known is None or not 0.0 <= now - known.at < COUNT_EVERY_S:
            if await self._engine.get_entry(TABLE, segment) is None:
                await self._check_room(node, sender, now)
                await self._engine.put_entries(TABLE, {segment: msgspec.msgpack.encode(now)})
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[segment] = _Noted(now, known.batches if known is not None else 0)
        if known.batches >= NOTES_MAX:
            message = f"More than {NOTES_MAX:,} batches of one bundle have been sent."
            raise Refused(
                429, "owes_too_much", message, "Complete the bundle, and send it.", retry_after_s=COUNT_EVERY_S
            )
        known.batches += 1

    async def _check_room(self, node: str, sender: str, now: float) -> None:
        """Refuse one more segment of a node that owes too many. A node whose bundles nobody takes waits as it does when
        no coordinator answers: it keeps what it has, and fetches nothing more."""
        if not 0.0 <= now - self._counted_at < COUNT_EVERY_S:
            self._counted_at = now
            self._counts = await self._count(now)
        # While the engine is asked, another batch may replace them.
        counts = self._counts
        if counts is None:
            return
        room = EACH_MAX - counts[node]
        if room > 0 or (room > -RECOVERED_MAX and await self._recovers(sender)):
            counts[node] += 1
            self._told.discard(node)
            return
        if node not in self._told:
            self._told.add(node)
            said = event(Event.REFUSED, node=node)
            log.warning("the node %s owes %d bundles; further results of it wait", node, EACH_MAX, extra=said)
        message = f"{EACH_MAX:,} bundles of this node have not arrived in the store."
        hint = "See in its log why it cannot send them. Its results are taken again when some have arrived."
        raise Refused(429, "owes_too_much", message, hint, retry_after_s=COUNT_EVERY_S)

    async def _recovers(self, sender: str) -> bool:
        return self._nodes is not None and await self._nodes.recovers(self._engine, sender)

    async def _count(self, now: float) -> Counter[str] | None:
        looked = await self._engine.get_meta(LOOKED_KEY)
        if looked is None or now - msgspec.msgpack.decode(looked, type=float) > LOOKED_AGO_S_MAX:
            return None
        return Counter([one.node for one in await owed_segments(self._engine)])


async def owed_segments(engine: Engine) -> list[OwedSegment]:
    """All segments that are noted, those first that were noted first."""
    entries = await engine.get_entries(TABLE)
    segments = [OwedSegment(name, msgspec.msgpack.decode(since, type=float)) for name, since in entries.items()]
    return sorted(segments, key=lambda one: one.since)


async def owed_urls(engine: Engine, segment: str) -> list[tuple[str, int]]:
    """The URLs of a segment, with their depths."""
    notes = await engine.get_entries(f"{TABLE}.{segment}")
    return list(dict.fromkeys(one for note in notes.values() for one in _urls_in(note)))


def _urls_in(note: bytes) -> list[tuple[str, int]]:
    return msgspec.msgpack.decode(decompressed(note, NOTE_BYTES_MAX), type=list[tuple[str, int]])


async def paid(engine: Engine, segment: str) -> None:
    """Remove the note of a segment, because the store has it."""
    keys = list(await engine.get_entries(f"{TABLE}.{segment}"))
    await engine.delete_entries(f"{TABLE}.{segment}", keys)
    # The name goes last: if we are killed before, the rest is removed the next time.
    await engine.delete_entries(TABLE, [segment])


async def note_looked(engine: Engine, now: float) -> None:
    """Note that what has arrived was just looked for, and is not noted as owed any more."""
    await engine.put_meta(LOOKED_KEY, msgspec.msgpack.encode(now))


class FetchedAgain(NamedTuple):
    """What became of a lost segment, or of a part of it: how many URLs were looked at, and how many of them are fetched
    again; and whether that was all of it."""

    urls: int
    again: int
    whole: bool


async def fetch_again(engine: Engine, segment: str, now: float) -> int:
    """Have the URLs of a lost segment fetched again; returns how many. If the bundle comes after all, its pages are in
    the store twice, each with its own time."""
    again, whole = 0, False
    while not whole:
        _, added, whole = await fetch_part_again(engine, segment, now, AGAIN_AT_ONCE)
        again += added
    return again


async def fetch_part_again(engine: Engine, segment: str, now: float, urls_max: int) -> FetchedAgain:
    """Have URLs of a lost segment fetched again: about so many, or at least those of one batch. It may be repeated
    after a kill: a URL that was queued again is not done, so it is left alone."""
    table = f"{TABLE}.{segment}"
    notes = await engine.last_entries(table, limit=NOTES_AT_ONCE)
    found, taken = dict[tuple[str, int], None](), list[str]()
    for key, note in notes.items():
        if len(found) >= urls_max:
            break
        taken.append(key)
        found |= dict.fromkeys(_urls_in(note))
    again = await _offer_again(engine, list(found), now)
    whole = len(taken) == len(notes) < NOTES_AT_ONCE
    if whole:
        await paid(engine, segment)
    else:
        await engine.delete_entries(table, taken)
    return FetchedAgain(len(found), again, whole)


async def _offer_again(engine: Engine, found: Sequence[tuple[str, int]], now: float) -> int:
    by_place: dict[tuple[str, int], list[str]] = defaultdict(list)
    for url, depth in found:
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
    return again
