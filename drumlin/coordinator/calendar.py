"""Converts engine time to calendar time, for people.

Engine time stands still while no coordinator runs, and so falls behind the calendar. When it moves on after such a gap,
the coordinator whose time is ahead of all others writes into a table of the engine how far engine time is behind from
then on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from drumlin.engines.base import Engine

TABLE = "calendar"
NEGLIGIBLE_S = 0.5
"""A smaller difference between engine time and calendar is ignored."""
GAPS_MAX = 1_000


class Calendar:
    """All gaps so far: since when, and by how much, engine time is behind the calendar."""

    def __init__(self) -> None:
        self._since: list[float] = []
        self._behind_s: list[float] = []

    @property
    def plain(self) -> bool:
        """Whether engine time and calendar have never differed."""
        return not self._since

    def read(self, entries: Mapping[str, bytes]) -> None:
        gaps = sorted((float(since), float(behind_s)) for since, behind_s in entries.items())
        self._since = [since for since, _ in gaps]
        self._behind_s = [behind_s for _, behind_s in gaps]

    def shown(self, at: float) -> float:
        """The calendar time of a moment of engine time. For a moment in the future the latest gap counts."""
        place = bisect_right(self._since, at)
        return at + self._behind_s[place - 1] if place else at

    async def follow(self, engine: Engine) -> None:
        """Learn what other coordinators have noted."""
        self.read(await engine.get_entries(TABLE))

    async def note(self, engine: Engine, now: float, today: float) -> None:
        """Note that engine time moves on from `now`, while the calendar says `today`."""
        await self.follow(engine)
        if abs(self.shown(now) - today) < NEGLIGIBLE_S:
            return
        await engine.put_entries(TABLE, {repr(now): repr(today - now).encode()})
        oldest = [repr(since) for since in self._since[: max(0, len(self._since) + 1 - GAPS_MAX)]]
        await engine.delete_entries(TABLE, oldest)
        await self.follow(engine)
