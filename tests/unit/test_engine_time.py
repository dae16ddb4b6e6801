"""Engine time never follows a wall clock, never jumps, never runs backwards, and stands still while nobody runs."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from drumlin.coordinator.engine_time import AGREED_S, ASKED_S_MAX, LOOK_EVERY_S, STALE_S, TOLD_EVERY_S, EngineTime
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import EngineError
from tests.harness.clocks import HandClock

FOUNDED = 1_795_000_000.0
HOUR_S = 3_600.0
TURNS = 50
"""More turns of the loop than any task here needs until it sleeps."""


class SharedEngine(MemoryEngine):
    """A memory engine that several coordinators use, and that can be out of reach."""

    shared = True

    def __init__(self) -> None:
        super().__init__(1)
        self.calls = 0
        self.gone = False

    async def keep_time(self, mine: float) -> float:
        if self.gone:
            raise EngineError("gone")
        self.calls += 1
        return await super().keep_time(mine)


class World:
    """One engine, one true time that passes by hand, any number of coordinators."""

    def __init__(self) -> None:
        self.engine = SharedEngine()
        self.true = HandClock(1_000.0)
        self.frozen: set[int] = set()
        self._sleepers: list[tuple[float, int, int, asyncio.Future[None]]] = []
        self._sleeps = 0

    def coordinator(self, wall: float | HandClock = FOUNDED, drift: float = 0.0, number: int = 0) -> EngineTime:
        """Machines booted at different moments, and their wall clocks say what they like. `drift` is per second."""

        def monotonic() -> float:
            return self.true() * (1.0 + drift) + 7.0 * number

        async def sleep(seconds: float) -> None:
            self._sleeps += 1
            future = asyncio.get_running_loop().create_future()
            heapq.heappush(self._sleepers, (self.true() + seconds, self._sleeps, number, future))
            await future

        return EngineTime(
            self.engine, monotonic=monotonic, wall=wall if isinstance(wall, HandClock) else HandClock(wall), sleep=sleep
        )

    async def during(self, work: Coroutine[Any, Any, float]) -> float:
        """Let time pass until `work` is done."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.passes(0.001)
        return task.result()

    async def passes(self, seconds: float) -> None:
        """Let time pass. Coordinators that are frozen sleep on, and wake up when time next passes for them."""
        end = self.true() + seconds
        while True:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            due = [one for one in self._sleepers if one[2] not in self.frozen and one[0] <= end]
            if not due:
                break
            first = min(due)
            self._sleepers.remove(first)
            self.true.now = max(self.true(), first[0])
            if not first[3].done():
                first[3].set_result(None)
        self.true.now = end

    async def start(self, stack: AsyncExitStack, one: EngineTime) -> None:
        async def begin() -> float:
            await stack.enter_async_context(one.running())
            return 0.0

        await self.during(begin())


def in_a_world(check: Callable[[World, AsyncExitStack], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            await check(World(), stack)

    asyncio.run(run())


def test_it_begins_with_the_wall_clock_and_never_looks_at_it_again() -> None:
    async def check(world: World, stack: AsyncExitStack) -> None:
        wall = HandClock(FOUNDED)
        one = world.coordinator(wall)
        await world.start(stack, one)
        began = await one.now()
        assert began == pytest.approx(FOUNDED, abs=ASKED_S_MAX + 0.1)
        for step_s in (HOUR_S, -HOUR_S, -60.0, 60.0):
            before = await one.now()
            wall.now += step_s
            await world.passes(10.0)
            assert await one.now() - before == pytest.approx(10.0, abs=1e-6)

    in_a_world(check)


def test_a_coordinator_that_starts_takes_the_time_from_the_engine_whatever_its_wall_clock() -> None:
    async def check(world: World, stack: AsyncExitStack) -> None:
        first = world.coordinator()
        await world.start(stack, first)
        await world.passes(60.0)
        for number, wall in enumerate((FOUNDED - HOUR_S, FOUNDED + HOUR_S), 1):
            await world.passes(0.123)
            later = world.coordinator(wall, number=number)
            await world.start(stack, later)
            assert first.reading() - AGREED_S <= later.reading() <= first.reading()

    in_a_world(check)


@pytest.mark.parametrize("drift", [-0.0005, 0.0005])
def test_coordinators_agree_though_their_clocks_drift(drift: float) -> None:
    async def check(world: World, stack: AsyncExitStack) -> None:
        first, second = world.coordinator(), world.coordinator(drift=drift, number=1)
        await world.start(stack, first)
        await world.start(stack, second)
        for _ in range(60):
            await world.passes(LOOK_EVERY_S / 7)
            assert abs(await first.now() - await second.now()) < AGREED_S

    in_a_world(check)


def test_time_does_not_pass_for_a_coordinator_that_was_frozen_alone() -> None:
    async def check(world: World, stack: AsyncExitStack) -> None:
        only = world.coordinator()
        await world.start(stack, only)
        await world.passes(5.0)
        before = await only.now()
        world.frozen.add(0)
        await world.passes(40.0)
        world.frozen.clear()
        assert await world.during(only.now()) - before < ASKED_S_MAX + 2 * TOLD_EVERY_S
        after = await only.now()
        await world.passes(5.0)
        assert await only.now() - after == pytest.approx(5.0, abs=1e-6)

    in_a_world(check)


def test_a_coordinator_that_was_frozen_while_others_ran_follows_them_before_it_answers() -> None:
    async def check(world: World, stack: AsyncExitStack) -> None:
        first, second = world.coordinator(), world.coordinator(number=1)
        await world.start(stack, first)
        await world.start(stack, second)
        world.frozen.add(1)
        await world.passes(40.0)
        world.frozen.clear()
        assert await world.during(second.now()) == pytest.approx(first.reading(), abs=AGREED_S)

    in_a_world(check)


def test_time_does_not_pass_while_the_engine_is_gone_and_who_wants_it_hears_so() -> None:
    async def check(world: World, stack: AsyncExitStack) -> None:
        only = world.coordinator()
        await world.start(stack, only)
        before = await only.now()
        world.engine.gone = True
        await world.passes(STALE_S + 30.0)
        with pytest.raises(EngineError):
            await only.now()
        world.engine.gone = False
        assert before <= await world.during(only.now()) < before + STALE_S + ASKED_S_MAX + 2 * TOLD_EVERY_S

    in_a_world(check)


def test_after_a_pause_of_all_the_next_goes_on_from_where_it_stopped_and_people_still_see_the_calendar() -> None:
    async def check(world: World, stack: AsyncExitStack) -> None:
        async with AsyncExitStack() as first_life:
            first = world.coordinator()
            await world.start(first_life, first)
            await world.passes(10.0)
            last = await first.now()
        await world.passes(HOUR_S)
        second = world.coordinator(wall=FOUNDED + HOUR_S + 10.0, number=1)
        await world.start(stack, second)
        now = await second.now()
        assert last - TOLD_EVERY_S <= now < last + ASKED_S_MAX + 0.1
        assert second.calendar.shown(now) == pytest.approx(FOUNDED + HOUR_S + 10.0, abs=1.0)

    in_a_world(check)


def test_a_failover_to_a_replica_that_is_behind_changes_nothing() -> None:
    async def check(world: World, stack: AsyncExitStack) -> None:
        first, second = world.coordinator(), world.coordinator(number=1)
        await world.start(stack, first)
        await world.start(stack, second)
        await world.passes(10.0)
        before = await first.now()
        world.engine.values.change({"time": repr(before - 5.0).encode()})
        late = world.coordinator(number=2)
        await world.start(stack, late)
        assert before <= await first.now() <= await second.now() + AGREED_S
        assert await late.now() == pytest.approx(await first.now(), abs=AGREED_S)

    in_a_world(check)


def test_it_never_runs_backwards() -> None:
    async def check(world: World, stack: AsyncExitStack) -> None:
        ones = [world.coordinator(drift=0.0004 * number, number=number) for number in range(3)]
        for one in ones:
            await world.start(stack, one)
        seen = [0.0, 0.0, 0.0]
        for turn in range(200):
            world.frozen = {turn // 10 % 4}
            await world.passes(0.37)
            for number, one in enumerate(ones):
                assert one.reading() >= seen[number]
                seen[number] = one.reading()

    in_a_world(check)


def test_a_fresh_time_costs_no_call() -> None:
    async def check(world: World, stack: AsyncExitStack) -> None:
        only = world.coordinator()
        await world.start(stack, only)
        calls = world.engine.calls
        for _ in range(100):
            await only.now()
        assert world.engine.calls == calls
        await world.passes(LOOK_EVERY_S)
        assert world.engine.calls - calls <= LOOK_EVERY_S / TOLD_EVERY_S + 60

    in_a_world(check)


def test_an_engine_of_one_process_is_not_listened_to() -> None:
    async def check(world: World, stack: AsyncExitStack) -> None:
        world.engine.shared = False
        only = world.coordinator()
        await only.now()
        assert world.engine.calls == 2

    in_a_world(check)
