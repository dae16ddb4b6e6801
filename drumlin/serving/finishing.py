"""When a crawl has ended, a coordinator merges the index of the store and writes `report.json`, without being asked.

A crawl has ended when it is finished or was stopped. Then its nodes leave, and the store is complete once the last one
has left, also of those that send bundles. If something comes later all the same (a node that was away sends its last
bundles, or URLs are added), the store is finished again. Of several coordinators that have the store, the one that
holds a claim in the engine does it. The leader cannot simply do it, since it may be a coordinator without the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from drumlin.api.explaining.report import COMPLETE_KEY, REPORT_NAME, YES, make_report
from drumlin.config.record import CrawlRecord
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.errors import BusyError, DrumlinError
from drumlin.logs import Event, event
from drumlin.protocol import ENDED, PRESENT, THROUGH_COORDINATOR, TO_BUCKET, NodeRecord, NodeStatus
from drumlin.store.files import StoreFiles
from drumlin.store.warc.cdxj import CDXJ_SUFFIX, INDEX_NAME

CLAIM = "finisher"
CLAIM_S = 5.0
AGAIN_AFTER_S = 10.0
SILENT_S_MAX = 30.0
"""How long to wait for a silent node that sends bundles: it may be busy with its last one, or cut off."""

log = logging.getLogger("drumlin.coordinator")


class Finisher:
    """Finishes the store of a crawl, beside everything else that its coordinator does."""

    def __init__(self, dispatcher: Dispatcher, folder: Path, files: StoreFiles) -> None:
        """`folder` is the store, or a folder of this machine if the store is elsewhere."""
        self._dispatcher = dispatcher
        self._folder, self._files = folder, files
        self._work: asyncio.Task[None] | None = None
        self._done: frozenset[str] | None = None
        """The indexes that were merged; None if the store is not complete, or this coordinator does not know."""
        self._told = ""
        self._again_at = 0.0

    async def tick(self, now: float) -> None:
        """Begin to finish the store, if there is anything to do and this coordinator holds the claim."""
        dispatcher = self._dispatcher
        if self._work is not None and not self._work.done():
            return
        if dispatcher.state not in ENDED:
            await self._reopen()
            return
        if not await dispatcher.engine.claim(CLAIM, dispatcher.name, now, until=now + CLAIM_S):
            self._done = None
            return
        if await self._bundles_to_come(now):
            await self._reopen()
            return
        if now >= self._again_at:
            # Beside the tick, since a store that hangs must not hold up the coordinator.
            self._work = asyncio.create_task(self._finish(now))

    async def close(self) -> None:
        """Begin nothing more. A merge that is running ends by itself; if it is killed, it is done again later."""
        if self._work is not None:
            self._work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._work

    async def _reopen(self) -> None:
        engine = self._dispatcher.engine
        self._done = None
        if await engine.get_meta(COMPLETE_KEY) == YES:
            await engine.put_meta(COMPLETE_KEY, b"")

    async def _bundles_to_come(self, now: float) -> bool:
        """Whether nodes that send bundles are there, or were there lately. Nodes that write to the store themselves
        need no such check: they hold locks in it."""
        records = await self._dispatcher.node_records()
        senders = [one for one in records if one.metadata.get("store") in (THROUGH_COORDINATOR, TO_BUCKET)]
        return any(one.status in PRESENT or _may_come_back(one, now) for one in senders)

    async def _finish(self, began: float) -> None:
        """Finish the store, if it is not as it was when that was done last."""
        dispatcher = self._dispatcher
        try:
            indexes = await asyncio.to_thread(_indexes, self._files)
            if indexes == self._done and await dispatcher.engine.get_meta(COMPLETE_KEY) == YES:
                return
            await asyncio.to_thread(self._files.complete, self._folder)
            # Merging may have taken long, so the time is asked for anew.
            now = await dispatcher.engine.keep_time(0.0)
            report = await make_report(
                dispatcher.engine, dispatcher.state, dispatcher.stop_reason, dispatcher.elapsed_s, now
            )
            report.crawl = CrawlRecord.of(dispatcher.scope_of_seeds(), dispatcher.config).told()
            await asyncio.to_thread(report.write, self._folder / REPORT_NAME)
            await asyncio.to_thread(self._files.replace, REPORT_NAME, self._folder / REPORT_NAME)
            if dispatcher.state not in ENDED:
                # It was resumed meanwhile, so what was merged is not all.
                return
            await dispatcher.engine.put_meta(COMPLETE_KEY, YES)
        except BusyError as waits:
            self._tell(f"The store is not complete yet. {waits}", {})
            return
        except (DrumlinError, OSError) as refused:
            # Merging reads all indexes, so it is not tried again at once.
            self._again_at = began + AGAIN_AFTER_S
            self._tell(f"The store is not complete yet. {refused}", {})
            return
        self._done = indexes
        said = event(Event.STORE_COMPLETE, pages=report.pages)
        self._tell(f"The store in {self._files} is complete: {report.pages} pages.", said)

    def _tell(self, sentence: str, extra: dict[str, object]) -> None:
        if sentence != self._told:
            self._told = sentence
            log.info("%s", sentence, extra=extra)


def _may_come_back(record: NodeRecord, now: float) -> bool:
    return record.status in (NodeStatus.FAILED, NodeStatus.QUIET) and now - record.last_seen < SILENT_S_MAX


def _indexes(files: StoreFiles) -> frozenset[str]:
    return frozenset(one.name for one in files.files("warc", CDXJ_SUFFIX) if one.name != INDEX_NAME)
