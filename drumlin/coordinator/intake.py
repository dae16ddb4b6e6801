"""Taking in what workers return that store nothing themselves: read their pages, store, settle.

Without a store their results are settled all the same, and their pages are kept nowhere; `keeps` says so to who asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from drumlin import __version__
from drumlin.clock import monotonic
from drumlin.coordinator.dispatch import ENDED, Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.keeping import Keeper
from drumlin.coordinator.reading import Reader
from drumlin.coordinator.settling import Taken
from drumlin.coordinator.telling import Telling, ToldResult, telling_of
from drumlin.errors import DrumlinError
from drumlin.pipeline import Reading
from drumlin.protocol import HostReport, Results
from drumlin.store.lookup import StoredFetch, find_fetches

STEP_S = 1.0
LOOK_S_MAX = 2.0
"""How long a store is searched for one URL."""
LOOKS_AT_ONCE = 2
ASKED_AT_ONCE = 100
"""URLs that the frontier is asked about at once."""

log = logging.getLogger("drumlin.coordinator")


class Attempts(NamedTuple):
    """What a store says of a URL: without `complete` not all of it was looked through, or there is none."""

    fetches: list[StoredFetch]
    complete: bool
    has_store: bool


class Intake:
    """Between the faces, which know who sends what, and the dispatcher, which knows what counts."""

    def __init__(
        self, dispatcher: Dispatcher, store: Path | None, *, engine_time: EngineTime, sync: bool = False
    ) -> None:
        config = dispatcher.config
        self._dispatcher = dispatcher
        self._store = store
        self._looking = asyncio.Semaphore(LOOKS_AT_ONCE)
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

    async def read(self, node: str, told: list[ToldResult], *, decoded: bool = False) -> list[Telling]:
        """Understand what a worker says and read the pages that it sends, as texts if they are `decoded`; `Refused`
        when some contradict themselves."""
        tellings: list[Telling] = []
        for start in range(0, len(told), ASKED_AT_ONCE):
            for one in told[start : start + ASKED_AT_ONCE]:
                tellings.append(telling_of(one, node, self._time.today(), decoded=decoded))
                # It may have thousands of links, and others wait.
                await asyncio.sleep(0)
            await asyncio.gather(*(self._look_up(telling) for telling in tellings[start:]))
        for telling in tellings:
            if telling.to_be_read:
                await self._reader.read(telling)
        return tellings

    async def _look_up(self, telling: Telling) -> None:
        """Add what the frontier knows of the URL. What no coordinator gave out will not count: nothing of it is worth
        the work or the room."""
        capture, result = telling.capture, telling.result
        if capture is None:
            return
        if not await self._dispatcher.gave_out(result.assignment_id, result.url, await self._time.now()):
            telling.capture, result.links = None, []
            return
        engine = self._dispatcher.engine
        story = await engine.story(engine.shard_of(capture.host), capture.url)
        if story is not None and story.task is not None:
            capture.found_on, capture.redirects = story.task.found_on, story.task.redirects

    async def take(self, node: str | None, tellings: list[Telling], hosts: list[HostReport]) -> Taken:
        """Settle results, and store those that count."""
        results = Results([telling.result for telling in tellings], hosts)
        if self._keeper is None:
            for result in results.results:
                # A page that is stored nowhere must not make others its duplicates: those are stored without a text.
                result.content_hash = ""

        async def settle() -> Taken:
            return await self._dispatcher.take(node, results, await self._time.now())

        if self._keeper is None:
            return await settle()
        return await self._keeper.keep(tellings, settle, self._time.today())

    async def attempts(self, url: str) -> Attempts:
        """What the store says of a URL, newest first."""
        if self._store is None or self._keeper is None:
            return Attempts([], complete=False, has_store=False)
        recent, deadline = self._keeper.recent(url), monotonic() + LOOK_S_MAX
        in_time = lambda: monotonic() < deadline  # noqa: E731
        async with self._looking:
            found, complete = await asyncio.to_thread(find_fetches, self._store / "tables", url, in_time)
        # One that is complete by now may be in both.
        others = [one for one in found if one.segment not in {mine.segment for mine in recent}]
        return Attempts(sorted([*recent, *others], key=lambda one: -one.fetched), complete, has_store=True)

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

    async def _settle_found(self, results: Results) -> Taken:
        return await self._dispatcher.take(None, results, await self._time.now())
