"""When a crawl has ended: a coordinator merges the index of the store and writes `report.json`, without being asked.

A crawl has ended when it is finished or was stopped. Then nodes leave, and the store is complete once the last has
left, those that send bundles included. What comes later all the same (a node that was away and sends its last bundles,
or further URLs) makes it be done again. Of several coordinators that have the store, the one with the claim does it:
the leader need not have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from drumlin.coordinator.dispatch import ENDED, Dispatcher
from drumlin.coordinator.nodes import PRESENT
from drumlin.coordinator.report import COMPLETE_KEY, ELAPSED_KEY, REPORT_NAME, YES, make_report
from drumlin.errors import DrumlinError
from drumlin.protocol import THROUGH_COORDINATOR, NodeRecord, NodeStatus
from drumlin.store.cdxj import CDXJ_SUFFIX, INDEX_NAME
from drumlin.store.finish import finish

CLAIM = "finisher"
CLAIM_S = 5.0
SILENT_S_MAX = 30.0
"""How long a silent node that sends bundles is waited for: it may be busy with its last one, or cut off."""

log = logging.getLogger("drumlin.coordinator")


class Finisher:
    """Finishes the store of a crawl, beside everything else that its coordinator does."""

    def __init__(self, dispatcher: Dispatcher, store: Path) -> None:
        self._dispatcher = dispatcher
        self._store = store
        self._work: asyncio.Task[None] | None = None
        self._done: frozenset[str] | None = None
        """The indexes that were merged; None when the store is not complete, or nothing is known of it."""
        self._told = ""

    async def tick(self, now: float) -> None:
        """Begin to finish the store, if that is this coordinator's to do and there is anything to do."""
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
        indexes = await asyncio.to_thread(_indexes, self._store)
        if indexes != self._done:
            self._work = asyncio.create_task(self._finish(indexes))

    async def close(self) -> None:
        """Begin nothing more. A merge that runs ends by itself; unfinished, it is done again."""
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
        """Whether there are nodes that send bundles, or were lately; those that write to the store hold locks in it."""
        records = await self._dispatcher.node_records()
        senders = [one for one in records if one.metadata.get("store") == THROUGH_COORDINATOR]
        return any(one.status in PRESENT or _may_come_back(one, now) for one in senders)

    async def _finish(self, indexes: frozenset[str]) -> None:
        dispatcher = self._dispatcher
        try:
            if not indexes:
                # Perhaps nothing was ever stored here: no page was fetched, or all workers keep what they fetch.
                await asyncio.to_thread((self._store / "warc").mkdir, parents=True, exist_ok=True)
            await asyncio.to_thread(finish, self._store)
            elapsed_s = float(await dispatcher.engine.get_meta(ELAPSED_KEY) or 0.0)
            report = await make_report(dispatcher.engine, dispatcher.state, dispatcher.stop_reason, elapsed_s)
            await asyncio.to_thread(report.write, self._store / REPORT_NAME)
            await dispatcher.engine.put_meta(COMPLETE_KEY, YES)
        except DrumlinError as waits:
            self._tell(f"The store is not complete yet. {waits}")
            return
        self._done = indexes
        self._tell(f"The store in {self._store} is complete: {report.pages} pages.")

    def _tell(self, sentence: str) -> None:
        if sentence != self._told:
            self._told = sentence
            log.info("%s", sentence)


def _may_come_back(record: NodeRecord, now: float) -> bool:
    return record.status is NodeStatus.FAILED and now - record.last_seen < SILENT_S_MAX


def _indexes(store: Path) -> frozenset[str]:
    return frozenset(path.name for path in (store / "warc").glob("*" + CDXJ_SUFFIX) if path.name != INDEX_NAME)
