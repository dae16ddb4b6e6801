"""Engine time: the one time by which all coordinators of a crawl judge leases, next contacts and retries.

It is a number in the engine, which begins as the wall clock when the crawl is founded and never follows it again. Each
coordinator carries it with its machine's boot-time clock and tells it to the engine every `TOLD_EVERY_S`; the engine
keeps the latest told, and whoever is behind moves forward to it. So it never jumps and never runs backwards.

Time passes only while some coordinator runs and reaches the engine. One that has told nothing for `STALE_S`, because it
was frozen or the engine was gone, goes on from what the engine has kept meanwhile: the gap is not added, so that no
lease runs out while nobody could have renewed it. To nodes a lease may so last longer than they were told, never less.

Several coordinators agree within `AGREED_S`. What the engine has kept may be a whole `TOLD_EVERY_S` old, so one that
joins, or looks whether it has fallen behind, asks every few milliseconds until all others have told theirs and none was
ahead by much. On a busy machine a message takes its time, and tells a time that has passed: it is told again then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from math import inf

from drumlin.clock import monotonic as boot_time
from drumlin.coordinator.calendar import Calendar
from drumlin.engines.base import Engine
from drumlin.errors import DrumlinError

TOLD_EVERY_S = 0.25
STALE_S = 2.0
AGREED_S = 0.05
"""How far the times of two coordinators may be apart: added to what one writes and another goes by (`agreed_s`)."""
TOLD_SLOWLY_S = 0.01
TOLD_AGAIN_MAX = 3
ASKED_EVERY_S = 0.01
ASKED_S = 0.4
"""Longer than the others need to tell theirs once."""
ASKED_S_MAX = 1.2
LOOK_EVERY_S = 30.0
"""The clocks of two machines drift apart by less than a millisecond a second."""

log = logging.getLogger("drumlin.coordinator")


def agreed_s(engine: Engine) -> float:
    """How far the times of two coordinators of this engine may be apart."""
    return AGREED_S if engine.shared else 0.0


class EngineTime:
    """One coordinator's idea of engine time. `monotonic` is the clock that carries it; `wall` is read once."""

    def __init__(
        self,
        engine: Engine,
        *,
        monotonic: Callable[[], float] = boot_time,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engine = engine
        self._sleep = sleep
        self._monotonic = monotonic
        self._today_ahead_s = wall() - monotonic()
        self._ahead_s = 0.0
        """What to add to the boot-time clock."""
        self._told_at = -inf
        self._latest = 0.0
        self._unsure = True
        """Whether another coordinator's time may be further than `AGREED_S` ahead."""
        self.calendar = Calendar()
        self._turn = asyncio.Lock()

    def reading(self) -> float:
        """The time as far as it is known without asking: it stands still from when it became stale."""
        at = self._monotonic()
        if at - self._told_at <= STALE_S:
            self._latest = max(self._latest, at + self._ahead_s)
        return self._latest

    async def now(self) -> float:
        """The time. The engine is asked only if it was not told of it lately."""
        if self._unsure or self._stale(self._monotonic()):
            await self._catch_up()
        return self.reading()

    def today(self) -> float:
        """The wall clock as it was when this process began, and carried since: for what must not stand still."""
        return self._monotonic() + self._today_ahead_s

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let time pass for as long as the context lasts."""
        await self.now()
        telling = asyncio.create_task(self._tell_always())
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    def _stale(self, at: float) -> bool:
        return at - self._told_at > STALE_S

    async def _tell_always(self) -> None:
        looked_at = self._monotonic()
        while True:
            await self._sleep(TOLD_EVERY_S)
            try:
                await self.now()
                async with self._turn:
                    await self._tell()
                    if self._monotonic() - looked_at > LOOK_EVERY_S:
                        looked_at = self._monotonic()
                        await self._listen()
                        await self.calendar.follow(self._engine)
            except DrumlinError as broken:
                # Whoever wants the time meanwhile is told so, and the log by whoever watches the engine.
                log.debug("the time could not be told: %s", broken)
            except Exception:
                log.exception("the time could not be told, in a way nobody foresaw")

    async def _tell(self) -> None:
        """Tell our time while it is true: again, if it took long to arrive."""
        for _ in range(TOLD_AGAIN_MAX):
            sent_at = self._monotonic()
            await self._exchange()
            if self._monotonic() - sent_at < TOLD_SLOWLY_S:
                return

    async def _catch_up(self) -> None:
        """Begin, or go on after a gap. Whoever else wants the time meanwhile waits."""
        async with self._turn:
            if self._unsure or self._stale(self._monotonic()):
                await self._exchange()
                if not await self._listen():
                    await self.calendar.note(self._engine, self.reading(), self.today())
                await self.calendar.follow(self._engine)
                self._unsure = False

    async def _exchange(self) -> float:
        """Tell our time, and move forward to the latest told if that is later; returns how far behind it we were."""
        sent_at = self._monotonic()
        stale, mine = self._stale(sent_at), self.reading()
        kept = await self._engine.keep_time(mine) or await self._engine.keep_time(self.today())
        heard_at = self._monotonic()
        self._latest = max(self._latest, kept)
        if stale:
            self._ahead_s = self._latest - heard_at
        else:
            self._ahead_s = max(self._ahead_s, kept - heard_at)
        # When it was sent, not heard: an answer that took long says nothing about the time since.
        self._told_at = sent_at
        self._unsure = self._unsure or stale or kept - mine > AGREED_S
        return kept - mine

    async def _listen(self) -> bool:
        """Ask until no other coordinator was ahead by much for as long as each needs to tell; whether one was ahead."""
        began = since = at = self._monotonic()
        ahead = False
        while self._engine.shared and at - since < ASKED_S and at - began < ASKED_S_MAX:
            await self._sleep(ASKED_EVERY_S)
            behind_s, at = await self._exchange(), self._monotonic()
            ahead = ahead or behind_s > 0
            if behind_s > AGREED_S / 2:
                since = at
        return ahead
