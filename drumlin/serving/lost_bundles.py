"""Looks now and then whether what was settled has arrived in the store, and has fetched again what is lost.

Any coordinator that has the store can do it; one of them holds a claim. A bundle counts as lost when nothing came for
`lost_after_s` since its first result was settled: the node's disk may be gone, or the node is switched off for good.
Until then a crawl does not end, if the node that owes the bundle is gone: at its end all nodes leave, and nobody would
be there to fetch the pages again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from drumlin.config.quantities import show_duration
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.taking.owed import OwedSegment, fetch_again, owed_segments, paid
from drumlin.errors import StorageError
from drumlin.lines import counted
from drumlin.logs import Event, event
from drumlin.protocol import PRESENT, CrawlState
from drumlin.store.files import StoreFiles

CLAIM: Final = "owed"
CLAIM_S: Final = 60.0
LOOK_EVERY_S: Final = 20.0
NAMES_SHOWN_MAX: Final = 5
LOST_AT_ONCE_MAX: Final = 20
"""Further ones wait for the next look, since whoever looks has other duties."""

log = logging.getLogger("drumlin.coordinator")


class LostBundles:
    """Follows what nodes owe to one store."""

    def __init__(self, dispatcher: Dispatcher, files: StoreFiles, lost_after_s: float) -> None:
        self._dispatcher, self._files = dispatcher, files
        self._lost_after_s = lost_after_s
        self._look_at = 0.0

    async def tick(self, now: float) -> None:
        dispatcher = self._dispatcher
        if dispatcher.latest.pending or dispatcher.state is not CrawlState.RUNNING:
            dispatcher.nodes.owed = ""
        else:
            await self.awaits(now)
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

    async def _owed_by_gone(self) -> list[OwedSegment]:
        """What is owed by nodes that are not there, and has not arrived."""
        dispatcher, gone = self._dispatcher, list[OwedSegment]()
        noted = await owed_segments(dispatcher.engine)
        if noted:
            records = await dispatcher.node_records()
            present = {one.node_id for one in records if one.status in PRESENT}
            gone = [one for one in noted if one.node not in present]
        try:
            arrived = await asyncio.to_thread(lambda: [one for one in gone if self._files.has_segment(one.name)])
        except StorageError:
            # It is away, so nobody can say.
            return gone
        for one in arrived:
            await paid(dispatcher.engine, one.name)
        return [one for one in gone if one not in arrived]

    async def look(self, now: float) -> int:
        """Forget what has arrived, and have fetched again what is lost. Returns how many URLs are."""
        engine, again, lost = self._dispatcher.engine, 0, 0
        noted = await owed_segments(engine)
        arrived = await asyncio.to_thread(lambda: {one.name for one in noted if self._files.has_segment(one.name)})
        left = [owed.since for owed in noted if owed.name not in arrived]
        self._dispatcher.nodes.bundles_owed = (len(left), max(0.0, now - min(left, default=now)))
        for owed in noted:
            if owed.name in arrived:
                await paid(engine, owed.name)
            elif now - owed.since >= self._lost_after_s and lost < LOST_AT_ONCE_MAX:
                lost += 1
                urls = await fetch_again(engine, owed.name, now)
                again += urls
                said = event(Event.BUNDLE_LOST, node=owed.node, urls=urls)
                sentence = "the bundle %s of node %s never arrived; %d URLs are fetched again"
                log.warning(sentence, owed.name, owed.node, urls, extra=said)
        if again and self._dispatcher.state is CrawlState.FINISHED:
            await self._dispatcher.resume()
        return again
