"""Looks now and then whether what was settled has arrived in the store, and has fetched again what is lost.

Any coordinator that has the store can do it; one of them holds a claim. A bundle counts as lost when nothing came for
`lost_after_s` since its first result was settled: the node's disk may be gone, or the node is switched off for good.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.taking.owed import fetch_again, owed_segments, paid
from drumlin.errors import StorageError
from drumlin.logs import Event, event
from drumlin.protocol import CrawlState
from drumlin.store.files import StoreFiles

CLAIM: Final = "owed"
CLAIM_S: Final = 60.0
LOOK_EVERY_S: Final = 20.0
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
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY_S
        dispatcher = self._dispatcher
        if await dispatcher.engine.claim(CLAIM, dispatcher.name, now, until=now + CLAIM_S):
            # If the store is away, those who watch it say so, and nothing counts as lost.
            try:
                await self.look(now)
            except StorageError as away:
                log.debug("cannot look what has arrived: %s", away)

    async def look(self, now: float) -> int:
        """Forget what has arrived, and have fetched again what is lost. Returns how many URLs are."""
        engine, again, lost = self._dispatcher.engine, 0, 0
        noted = await owed_segments(engine)
        arrived = await asyncio.to_thread(lambda: {one.name for one in noted if self._files.has_segment(one.name)})
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
