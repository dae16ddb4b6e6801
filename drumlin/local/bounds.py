"""What bounds the crawl, for the live display: asked beside the ticks, so a slow disk does not hold these up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from drumlin.api.app import CoordinatorApp
from drumlin.errors import DrumlinError
from drumlin.http.refusal import Refused

EVERY_S = 2.0
NAMED_ELSEWHERE = "backoff"
"""Hosts out of reach are among the troubles."""


class Bounds:
    """The causes for which not more is fetched: `sentences`, and their `names` in a word."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.names: list[str] = []

    @contextlib.asynccontextmanager
    async def watched(self, app: CoordinatorApp, now: Callable[[], Awaitable[float]]) -> AsyncIterator[None]:
        """Look every two seconds for as long as the context lasts."""
        looking = asyncio.create_task(self._look(app, now))
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self, app: CoordinatorApp, now: Callable[[], Awaitable[float]]) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            # If the engine does not answer, the crawl ends or says so by itself.
            with contextlib.suppress(DrumlinError, Refused):
                causes = [one for one in (await app.why(await now())).bound_by if one.code != NAMED_ELSEWHERE]
                self.sentences = [one.message for one in causes]
                self.names = [one.code.replace("_", " ") for one in causes]
