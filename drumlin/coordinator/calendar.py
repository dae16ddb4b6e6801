"""Which time of the day it was at a moment of engine time.

Engine time stands still while no coordinator runs, and so falls behind the calendar. When it goes on after a gap, the
coordinator that is ahead of all others notes in a table of the engine how far it is behind from then on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from drumlin.engines.base import Engine

TABLE = "calendar"
NEGLIGIBLE_S = 0.5
"""Below this engine time and calendar are taken to be the same."""
GAPS_MAX = 1_000


class Calendar:
    """The gaps so far."""

    def __init__(self) -> None:
        self._since: list[float] = []
        self._behind_s: list[float] = []

    @property
    def plain(self) -> bool:
        """Engine times are times of the day."""
        return not self._since

    def read(self, entries: Mapping[str, bytes]) -> None:
        gaps = sorted((float(since), float(behind_s)) for since, behind_s in entries.items())
        self._since = [since for since, _ in gaps]
        self._behind_s = [behind_s for _, behind_s in gaps]

    def shown(self, at: float) -> float:
        """A moment of engine time on the calendar; one that has not come is as far behind as now."""
        place = bisect_right(self._since, at)
        return at + self._behind_s[place - 1] if place else at

    async def follow(self, engine: Engine) -> None:
        """Learn what other coordinators have noted."""
        self.read(await engine.get_entries(TABLE))

    async def note(self, engine: Engine, now: float, today: float) -> None:
        """Time goes on at `now`, which is `today`."""
        await self.follow(engine)
        if abs(self.shown(now) - today) < NEGLIGIBLE_S:
            return
        await engine.put_entries(TABLE, {repr(now): repr(today - now).encode()})
        oldest = [repr(since) for since in self._since[: max(0, len(self._since) + 1 - GAPS_MAX)]]
        await engine.delete_entries(TABLE, oldest)
        await self.follow(engine)
