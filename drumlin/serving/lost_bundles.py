"""Looks now and then whether what was settled has arrived in the store, and has fetched again what is lost.

Any coordinator that has the store can do it; one of them holds a claim. A bundle counts as lost when nothing came for
`lost_after_s` since its first result was settled: the node's disk may be gone, or the node is switched off for good.
Until then a crawl does not end, if the node that owes the bundle is gone: at its end all nodes leave, and nobody would
be there to fetch the pages again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from drumlin.config.quantities import show_duration
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.taking.owed import OwedSegment, fetch_part_again, note_looked, owed_segments, paid
from drumlin.errors import Cause, StorageError
from drumlin.lines import counted
from drumlin.logs import Event, event
from drumlin.protocol import PRESENT, CrawlState
from drumlin.store.files import StoreFiles

CLAIM: Final = "owed"
CLAIM_S: Final = 60.0
LOOK_EVERY_S: Final = 20.0
MISSING_EVERY_S: Final = 5.0
ANSWER_S_MAX: Final = 2.0
"""For how long a store is waited for."""
NAMES_SHOWN_MAX: Final = 5
LOST_URLS_AT_ONCE_MAX: Final = 20_000
"""About how many URLs are looked at: those of twenty full bundles, or of many small ones. Further ones wait for the
next look, since whoever looks has other duties."""
URLS_AT_ONCE: Final = 1_000
"""How many of them are looked at before other requests have their turn."""
BUNDLE_WEIGHT: Final = 10
"""How many URLs a bundle counts as at least: each costs some calls to the engine, whatever is in it."""

log = logging.getLogger("drumlin.coordinator")


class _Arrivals:
    """Asks a store in a thread what has arrived. A store that hangs is not waited for, since the coordinator has other
    duties. What it answers then is used when it is asked the next time."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._asked: frozenset[str] = frozenset()
        self._answer: asyncio.Future[set[str]] | None = None

    async def of(self, names: Collection[str]) -> set[str]:
        """Which of these segments are in the store. `StorageError` if it cannot say, or not yet."""
        found, left = set[str](), set(names)
        while left:
            answer = self._answer or self._ask(left)
            await asyncio.wait([answer], timeout=ANSWER_S_MAX)
            if not answer.done():
                raise StorageError(f"{self._files} does not answer.", code=Cause.STORE_SILENT)
            self._answer = None
            found |= answer.result()
            left -= self._asked
        return found.intersection(names)

    def _ask(self, names: Collection[str]) -> asyncio.Future[set[str]]:
        self._asked = asked = frozenset(names)
        looking = asyncio.to_thread(lambda: {name for name in asked if self._files.has_segment(name)})
        self._answer = answer = asyncio.ensure_future(looking)
        # If nobody asks again, nobody hears how it ended.
        answer.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return answer


class LostBundles:
    """Follows what nodes owe to one store."""

    def __init__(self, dispatcher: Dispatcher, files: StoreFiles, lost_after_s: float) -> None:
        self._dispatcher = dispatcher
        self._arrivals, self._gone_arrivals = _Arrivals(files), _Arrivals(files)
        self._lost_after_s = lost_after_s
        self._look_at = self._missing_at = 0.0

    async def tick(self, now: float) -> None:
        dispatcher = self._dispatcher
        if dispatcher.latest.pending or dispatcher.state is not CrawlState.RUNNING:
            dispatcher.nodes.owed = ""
        else:
            await self.awaits(now)
        if dispatcher.state is CrawlState.FINISHED and not dispatcher.stop_reason:
            await self._go_on_if_missing(now)
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY_S
        if not await dispatcher.engine.claim(CLAIM, dispatcher.name, now, until=now + CLAIM_S):
            dispatcher.nodes.bundles_owed = (0, 0.0)
        else:
            # If the store is away, those who watch it say so, and nothing counts as lost.
            try:
                await self.look(now)
            except StorageError as away:
                log.debug("cannot look what has arrived: %s", away)

    async def awaits(self, now: float) -> bool:
        """Whether pages have not arrived whose node is gone. It is asked when nothing is left to fetch."""
        dispatcher = self._dispatcher
        awaited = await self._owed_by_gone()
        if not awaited:
            dispatcher.nodes.owed = ""
            return False
        nodes = ", ".join(sorted({one.node for one in awaited})[:NAMES_SHOWN_MAX])
        left_s = max(0.0, min(one.since for one in awaited) + self._lost_after_s - now)
        told = f"Not yet in the store: {counted(len(awaited), 'bundle')} of nodes that are gone ({nodes})."
        hint = (
            f"Start these nodes again; if they do not come, their pages are fetched again in {show_duration(left_s)}. "
            "If a disk is lost: `drumlin store check --refetch --node NAME`, with --engine and --store, does it now."
        )
        if not dispatcher.nodes.owed:
            log.warning("the crawl does not end yet: %s %s", told, hint)
        dispatcher.nodes.owed = f"{told} {hint}"
        return True

    async def _go_on_if_missing(self, now: float) -> None:
        """While a node is there, the crawl may end: the node sends its bundles before it leaves. But if it had come
        back with an empty disk, it had none to send. Then the crawl runs again, and waits as for any node that is
        gone."""
        dispatcher = self._dispatcher
        if now < self._missing_at or any(one.status in PRESENT for one in await dispatcher.node_records()):
            return
        self._missing_at = now + MISSING_EVERY_S
        if await self._owed_by_gone(unknown=False):
            await dispatcher.resume()
            await self.awaits(now)

    async def _owed_by_gone(self, *, unknown: bool = True) -> list[OwedSegment]:
        """What is owed by nodes that are not there, and has not arrived. While the store is away nobody can
        tell what has arrived: then the answer is all of it with `unknown`, and otherwise nothing."""
        dispatcher, gone = self._dispatcher, list[OwedSegment]()
        noted = await owed_segments(dispatcher.engine)
        if noted:
            records = await dispatcher.node_records()
            present = {one.node_id for one in records if one.status in PRESENT}
            gone = [one for one in noted if one.node not in present]
        try:
            return await self._still_owed(self._gone_arrivals, gone)
        except StorageError:
            return gone if unknown else []

    async def look(self, now: float) -> int:
        """Forget what has arrived, and have fetched again what is lost. Returns how many URLs are."""
        engine = self._dispatcher.engine
        left = await self._still_owed(self._arrivals, await owed_segments(engine))
        await note_looked(engine, now)
        self._dispatcher.nodes.bundles_owed = (len(left), max(0.0, now - min((one.since for one in left), default=now)))
        again = await self._fetch_again([one for one in left if now - one.since >= self._lost_after_s], now)
        if again and self._dispatcher.state is CrawlState.FINISHED:
            await self._dispatcher.resume()
        return again

    async def _still_owed(self, arrivals: _Arrivals, noted: Sequence[OwedSegment]) -> list[OwedSegment]:
        """Forget those of these that have arrived; returns the others."""
        arrived = await arrivals.of({one.name for one in noted})
        for name in sorted(arrived):
            await paid(self._dispatcher.engine, name)
            await self._dispatcher.lanes.breathe()
        return [one for one in noted if one.name not in arrived]

    async def _fetch_again(self, lost: Sequence[OwedSegment], now: float) -> int:
        """Have as much of these fetched again as one look may, those first that were noted first. Returns how many URLs
        are."""
        room, bundles, urls = LOST_URLS_AT_ONCE_MAX, dict[str, list[str]](), Counter[str]()
        for owed in lost:
            if room <= 0:
                break
            bundles.setdefault(owed.node, []).append(owed.name)
            whole = False
            while not whole and room > 0:
                part = await fetch_part_again(self._dispatcher.engine, owed.name, now, min(room, URLS_AT_ONCE))
                room, whole = room - max(part.urls, BUNDLE_WEIGHT), part.whole
                urls[owed.node] += part.again
                await self._dispatcher.lanes.breathe()
        for node, names in bundles.items():
            _tell(node, names, urls[node])
        return urls.total()


def _tell(node: str, names: Sequence[str], urls: int) -> None:
    """One line for each node, however many bundles it owes."""
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    sentence = "%s of node %s never arrived (%s%s); %d URLs are fetched again"
    told = (counted(len(names), "bundle"), node, ", ".join(names[:NAMES_SHOWN_MAX]), more, urls)
    log.warning(sentence, *told, extra=event(Event.BUNDLE_LOST, node=node, urls=urls))
