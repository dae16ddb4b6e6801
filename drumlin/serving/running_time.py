"""How long a crawl of a fleet has run, by engine time.

Nobody adds up seconds: a coordinator that was frozen, or that wrongly believes to lead, would add what others have
added already. Instead the engine keeps when the crawl began to run and when it ended, each turn under a number of its
own, written only if that number is still free. So every coordinator computes the same time from the last turn, and a
turn that is written too late changes nothing. Engine time stands still while no coordinator runs, and so does this one.
"""

from __future__ import annotations

import msgspec

from drumlin.api.explaining.report import elapsed_before_s
from drumlin.coordinator.dispatch import STATE_KEY
from drumlin.engines.base import Engine
from drumlin.protocol import ENDED, CrawlState

TURN_KEY = "turn."


class Turn(msgspec.Struct, frozen=True):
    """The crawl has run for `elapsed_s` in all, and runs since the moment `since`; or it has ended."""

    elapsed_s: float
    since: float | None

    def elapsed_at(self, now: float) -> float:
        return self.elapsed_s if self.since is None else self.elapsed_s + max(0.0, now - self.since)

    def next(self, now: float) -> Turn:
        return Turn(self.elapsed_at(now), now if self.since is None else None)


class RunningTime:
    """How long the crawl has run, as one coordinator sees it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._number = 0
        self._turn: Turn | None = None

    async def follow(self, now: float) -> float:
        """How long the crawl has run until `now`; notes if it has begun or ended since the last look."""
        turn = await self._latest()
        # Read after the turns: if another coordinator has noted this state meanwhile, the number of our turn is taken,
        # and it changes nothing.
        runs = await self._runs()
        if runs is (turn.since is None):
            turn = await self._note(turn.next(now))
        return turn.elapsed_at(now)

    async def read(self) -> float:
        """How long the crawl has run, without noting anything; for one that may have no coordinator."""
        return (await self._latest()).elapsed_at(await self._engine.keep_time(0.0))

    async def _runs(self) -> bool:
        saved = await self._engine.get_meta(STATE_KEY)
        return saved is None or CrawlState(saved.decode()) not in ENDED

    async def _latest(self) -> Turn:
        if self._turn is None:
            # An earlier version kept the time of a fleet where a crawl on one machine keeps its own.
            self._turn = Turn(await elapsed_before_s(self._engine), None)
        while saved := await self._engine.get_meta(f"{TURN_KEY}{self._number + 1}"):
            self._take(saved)
        return self._turn

    async def _note(self, turn: Turn) -> Turn:
        return self._take(
            await self._engine.put_meta_if_absent(f"{TURN_KEY}{self._number + 1}", msgspec.json.encode(turn))
        )

    def _take(self, saved: bytes) -> Turn:
        self._number += 1
        self._turn = msgspec.json.decode(saved, type=Turn)
        return self._turn
