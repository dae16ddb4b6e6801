"""Takes results of workers that have no store: parses their pages, stores them and settles them.

If this coordinator has no store either, results are settled but pages are lost; `keeps_results` tells workers so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from drumlin import __version__
from drumlin.api.intake.keeping import Keeper
from drumlin.api.intake.kept import Owe
from drumlin.api.intake.reading import Reader
from drumlin.api.intake.shipping import ship
from drumlin.api.intake.telling import Telling, ToldResult, telling_of
from drumlin.config.record import CrawlRecord
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.taking.settling import Taken
from drumlin.errors import DrumlinError
from drumlin.protocol import ENDED, HostReport, Results
from drumlin.reading import Reading
from drumlin.store.files import DirectoryFiles, StoreFiles
from drumlin.store.tables.lookup import StoredFetch

STEP_S = 1.0
ASKED_AT_ONCE = 100
"""About how many URLs the frontier is asked at once."""

log = logging.getLogger("drumlin.coordinator")


class Intake:
    """Stands between the API's calls, which know who sends what, and the dispatcher, which knows what counts."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        store: Path | None,
        files: StoreFiles | None = None,
        *,
        engine_time: EngineTime,
        sync: bool = False,
    ) -> None:
        config = dispatcher.config
        self._dispatcher = dispatcher
        self._time = engine_time
        self._reader = Reader(Reading.of(config))
        info = {"http-header-user-agent": config.sent_user_agent, "robots": "left to the workers"}
        info |= CrawlRecord.of(dispatcher.scope_of_seeds(), config).warcinfo()
        self._folder, self._files = store, files
        self._keeper = Keeper(store, software=f"drumlin/{__version__}", info=info, sync=sync) if store else None

    def owe(self, owe: Owe) -> None:
        """Call this before the rows of a segment can be seen, from now on."""
        if self._keeper is not None:
            self._keeper.owe = owe

    @property
    def keeps(self) -> bool:
        """Whether pages that are returned here are stored."""
        return self._keeper is not None

    async def read(self, node: str, told: list[ToldResult], *, decoded: bool = False) -> list[Telling]:
        """Read a worker's results and parse the pages that it sends; `decoded` says that those came as text. `Refused`
        when a result contradicts itself."""
        tellings: list[Telling] = []
        for start in range(0, len(told), ASKED_AT_ONCE):
            for one in told[start : start + ASKED_AT_ONCE]:
                tellings.append(telling_of(one, node, self._time.today(), decoded=decoded))
                # A result may have thousands of links, and other requests wait.
                await asyncio.sleep(0)
            await asyncio.gather(*(self._look_up(telling) for telling in tellings[start:]))
        for telling in tellings:
            if telling.to_be_read:
                await self._reader.read(telling)
        return tellings

    async def _look_up(self, telling: Telling) -> None:
        """Add what the frontier knows about the URL. If no coordinator gave it out, or it was removed on request, the
        result will not count, so its page is dropped before it costs work or room."""
        capture, result = telling.capture, telling.result
        if capture is None:
            return
        seals, engine = self._dispatcher.seals, self._dispatcher.engine
        removed = self._dispatcher.findings.removed.covers(result.url)
        if removed or not await seals.gave_out(engine, result.assignment_id, result.url, await self._time.now()):
            telling.capture, result.links = None, []
            return
        story = await engine.story(engine.shard_of(capture.host), capture.url)
        if story is not None and story.task is not None:
            capture.found_on, capture.redirects = story.task.found_on, story.task.redirects

    async def take(self, node: str | None, tellings: list[Telling], hosts: list[HostReport]) -> Taken:
        """Settle results, and store those that count."""
        results = Results([telling.result for telling in tellings], hosts)
        if self._keeper is None:
            for result in results.results:
                # Later pages must not become duplicates of a page that is stored nowhere: their text would be lost.
                result.content_hash = ""

        async def settle() -> Taken:
            return await self._dispatcher.take(node, results, await self._time.now())

        if self._keeper is None:
            return await settle()
        return await self._keeper.keep(tellings, settle, self._time.today())

    def recent_of_page(self, page: str) -> list[StoredFetch]:
        """What this coordinator has stored of URLs with this identity and no complete table has yet."""
        return self._keeper.recent_of_page(page) if self._keeper is not None else []

    def recent_of_host(self, host: str) -> list[StoredFetch]:
        """The same of a host's URLs."""
        return self._keeper.recent_of_host(host) if self._keeper is not None else []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Finish what dead coordinators left, and complete segments as time passes. When the context ends, everything
        that is settled is in complete tables."""
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
                with contextlib.suppress(DrumlinError):
                    # If the store is away, the next coordinator here does it.
                    await self._ship()

    async def _keep_stepping(self) -> None:
        while self._keeper is not None:
            await asyncio.sleep(STEP_S)
            ending = self._dispatcher.state in ENDED
            try:
                await self._keeper.step(self._settle_found, self._time.today(), ending=ending)
                await self._ship()
            except (DrumlinError, OSError) as broken:
                log.warning("results that were taken still wait in their journal: %s", broken)

    async def _ship(self) -> None:
        """Bring complete segments to the store, if they grow elsewhere."""
        if self._files is not None and self._folder is not None and not isinstance(self._files, DirectoryFiles):
            await asyncio.to_thread(ship, self._folder, self._files)

    async def _settle_found(self, results: Results) -> Taken:
        return await self._dispatcher.take(None, results, await self._time.now())
