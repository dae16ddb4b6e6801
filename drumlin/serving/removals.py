"""Whether something was removed on request while a coordinator stood still."""

from __future__ import annotations

from drumlin.engines.base import Engine
from drumlin.errors import BusyError, DrumlinError
from drumlin.lifecycle.removal.tombstones import LAST_KEY


class RemovalWatch:
    """Nobody removes while a coordinator runs. One that was frozen or cut off meanwhile has the removed in its memory,
    and would bring it back."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last: bytes | None = None

    async def begin(self) -> None:
        self._last = await self._engine.get_meta(LAST_KEY)

    async def check(self) -> None:
        """BusyError if something was removed since it began."""
        try:
            last = await self._engine.get_meta(LAST_KEY)
        except DrumlinError:
            # The tick says what is wrong.
            return
        if last != self._last:
            message = "Something was removed from this crawl on request while this coordinator was frozen or cut off."
            raise BusyError(message, "Start it again.")
