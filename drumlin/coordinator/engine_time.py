"""Engine time: the one time by which all coordinators of a crawl judge leases, next contacts and retries.

It is a number in the engine. It starts as the wall clock when the crawl is founded and never follows the wall clock
again. Each coordinator advances it with its machine's boot-time clock and tells it to the engine every `TOLD_EVERY_S`.
The engine keeps the latest value that it was told, and a coordinator that is behind moves forward to it. So engine time
never runs backwards, and a changed wall clock cannot make it jump.

Time passes only while some coordinator runs and reaches the engine. A coordinator that told nothing for `STALE_S`,
because it was frozen or the engine was gone, continues from the value that the engine has kept. The gap is not added,
so no lease runs out while nobody could have renewed it. A lease may therefore last longer than its node was told, but
never shorter.

Several coordinators agree within `AGREED_S`. The value in the engine may be a whole `TOLD_EVERY_S` old. So a
coordinator that joins, or checks whether it has fallen behind, asks every few milliseconds until all others must have
told their time and none was far ahead. On a busy machine a message may arrive late and bring a time that has passed;
then the time is told again.
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
"""How far the times of two coordinators may be apart. It is added to times that one writes and another reads
(`agreed_s`)."""
TOLD_SLOWLY_S = 0.01
TOLD_AGAIN_MAX = 3
ASKED_EVERY_S = 0.01
ASKED_S = 0.4
"""Longer than `TOLD_EVERY_S`, so every other coordinator has told its time at least once."""
ASKED_S_MAX = 1.2
TOLD_LAST_S = 1.0
MOMENT_S = 0.001
"""By how much time moves on when somebody changes a crawl that does not run, so the change is later than all before."""
LOOK_EVERY_S = 30.0
"""Clocks of two machines drift apart by less than a millisecond a second: within this time by less than `AGREED_S`."""

log = logging.getLogger("drumlin.coordinator")


def agreed_s(engine: Engine) -> float:
    """How far the times of two coordinators of this engine may be apart."""
    return AGREED_S if engine.shared else 0.0


class EngineTime:
    """One coordinator's idea of engine time. `monotonic` is the clock that carries it; `wall` is read once."""

    passes = True
    """Whether time passes: it does not for a crawl that no coordinator runs."""

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
        """Engine time minus the boot-time clock."""
        self._told_at = -inf
        self._latest = 0.0
        self._unsure = True
        """Whether another coordinator's time may be further than `AGREED_S` ahead."""
        self.calendar = Calendar()
        self._turn = asyncio.Lock()

    def reading(self) -> float:
        """The time as far as it is known without asking the engine. Once stale, it stands still."""
        at = self._monotonic()
        if at - self._told_at <= STALE_S:
            self._latest = max(self._latest, at + self._ahead_s)
        return self._latest

    async def now(self) -> float:
        """The time. The engine is asked only if our own idea of the time is stale or unsure."""
        if self._unsure or self._stale(self._monotonic()):
            await self._catch_up()
        return self.reading()

    def today(self) -> float:
        """The wall clock as read when this process began, advanced by the boot-time clock. It never stands still."""
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
            await self._tell_last()

    async def _tell_last(self) -> None:
        """Tell the time once more at the end, so nothing was written with a later time than the engine keeps. Otherwise
        the next run would take such a record for its own."""
        if not self._stale(self._monotonic()):
            with contextlib.suppress(DrumlinError, TimeoutError):
                async with asyncio.timeout(TOLD_LAST_S):
                    await self._exchange()

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
                # Callers of `now` get this error too, and `Health` writes to the log what is wrong with the engine.
                log.debug("engine time could not be written: %s", broken)
            except Exception:
                log.exception("engine time could not be written, for a reason nobody foresaw")

    async def _tell(self) -> None:
        """Tell our time; tell it again if the message took long, because then it brought a time that had passed."""
        for _ in range(TOLD_AGAIN_MAX):
            sent_at = self._monotonic()
            await self._exchange()
            if self._monotonic() - sent_at < TOLD_SLOWLY_S:
                return

    async def _catch_up(self) -> None:
        """Begin, or continue after a gap. Other callers of `now` wait meanwhile."""
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
        # Count from when the message was sent: a slow answer says nothing about the time since.
        self._told_at = sent_at
        self._unsure = self._unsure or stale or kept - mine > AGREED_S
        return kept - mine

    async def _listen(self) -> bool:
        """Ask until no other coordinator was far ahead for `ASKED_S`, in which each tells its time; returns whether any
        was ahead at all."""
        began = since = at = self._monotonic()
        ahead = False
        while self._engine.shared and at - since < ASKED_S and at - began < ASKED_S_MAX:
            await self._sleep(ASKED_EVERY_S)
            behind_s, at = await self._exchange(), self._monotonic()
            ahead = ahead or behind_s > 0
            if behind_s > AGREED_S / 2:
                since = at
        return ahead


class StandingTime(EngineTime):
    """The time of a crawl that no coordinator runs: the last time that was told. Reading it writes nothing."""

    passes = False

    async def move_on(self) -> None:
        """Let a moment pass, and note on which day it is: what somebody changes now happens now."""
        self._latest = await self._engine.keep_time(await self.now() + MOMENT_S)
        await self.calendar.note(self._engine, self._latest, self.today())

    async def _catch_up(self) -> None:
        self._latest = max(self._latest, await self._engine.keep_time(0.0))
        await self.calendar.follow(self._engine)
