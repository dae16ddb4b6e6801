"""Taking in what workers return that store nothing themselves: read their pages, store, settle.

Without a store their results are settled all the same, and their pages are kept nowhere; `keeps` says so to who asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from drumlin import __version__
from drumlin.coordinator.dispatch import ENDED, Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.keeping import Keeper
from drumlin.coordinator.reading import Reader
from drumlin.coordinator.settling import Taken
from drumlin.coordinator.telling import Telling, ToldResult, telling_of
from drumlin.errors import DrumlinError
from drumlin.pipeline import Reading
from drumlin.protocol import HostReport, Results

STEP_S = 1.0

log = logging.getLogger("drumlin.coordinator")


class Intake:
    """Between the faces, which know who sends what, and the dispatcher, which knows what counts."""

    def __init__(
        self, dispatcher: Dispatcher, store: Path | None, *, engine_time: EngineTime, sync: bool = False
    ) -> None:
        config = dispatcher.config
        self._dispatcher = dispatcher
        self._time = engine_time
        self._reader = Reader(
            Reading(
                agent=config.product_token,
                body_decoded_bytes_max=config.body_decoded_bytes_max,
                assets=config.assets,
                sitemaps=config.sitemaps,
                near_duplicates=config.near_duplicates,
                depth_max=config.depth,
            )
        )
        info = {"http-header-user-agent": config.user_agent, "robots": "left to the workers"}
        self._keeper = Keeper(store, software=f"drumlin/{__version__}", info=info, sync=sync) if store else None

    @property
    def keeps(self) -> bool:
        """Whether what is returned here is stored."""
        return self._keeper is not None

    async def read(self, node: str, told: list[ToldResult], *, found_on: str = "") -> list[Telling]:
        """Understand what a worker says and read the pages that it sends; `Refused` when some contradict themselves."""
        tellings: list[Telling] = []
        for one in told:
            telling = telling_of(one, node, self._time.today(), found_on=found_on)
            if telling.capture is not None and not await self._gave_out(one):
                # It will not count, so that nothing of it is worth the work or the room.
                telling.capture, telling.result.links = None, []
            if telling.to_be_read:
                await self._reader.read(telling)
            else:
                # A batch may be large, and others wait.
                await asyncio.sleep(0)
            tellings.append(telling)
        return tellings

    async def take(
        self, node: str | None, tellings: list[Telling], hosts: list[HostReport], *, stored: bool = False
    ) -> Taken:
        """Settle results, and store those that count unless their sender has."""
        results = Results([telling.result for telling in tellings], hosts)
        if self._keeper is None and not stored:
            for result in results.results:
                # A page that is stored nowhere must not make others its duplicates: those are stored without a text.
                result.content_hash = ""

        async def settle() -> Taken:
            return await self._dispatcher.take(node, results, await self._time.now())

        if self._keeper is None or stored:
            return await settle()
        return await self._keeper.keep(tellings, settle, self._time.today())

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Finish what dead coordinators left, and complete what is stored here as time passes, until the context ends:
        then everything that is settled is in complete tables."""
        keeper = self._keeper
        if keeper is not None:
            await keeper.finish_found(self._settle_found)
        stepping = asyncio.create_task(self._keep_stepping())
        try:
            yield
        finally:
            stepping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stepping
            await self._reader.close()
            if keeper is not None:
                await keeper.close()

    async def _keep_stepping(self) -> None:
        while self._keeper is not None:
            await asyncio.sleep(STEP_S)
            ending = self._dispatcher.state in ENDED
            try:
                await self._keeper.step(self._settle_found, self._time.today(), ending=ending)
            except (DrumlinError, OSError) as broken:
                log.warning("what was taken waits in its journal: %s", broken)

    async def _gave_out(self, told: ToldResult) -> bool:
        return await self._dispatcher.gave_out(told.assignment_id, told.url, await self._time.now())

    async def _settle_found(self, results: Results) -> Taken:
        return await self._dispatcher.take(None, results, await self._time.now())
