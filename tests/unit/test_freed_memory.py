"""A coordinator returns memory, and tries less often if there is none to return."""

from __future__ import annotations

import asyncio

from drumlin.serving.freed_memory import EVERY_S_MAX, EVERY_S_MIN, FreedMemory, give_back_freed, resident_bytes

MEGABYTE = 1_000_000


class Process:
    """A process whose size is set by the test; after giving back, `in_use` is left."""

    def __init__(self) -> None:
        self.size = self.in_use = 100 * MEGABYTE
        self.asked_at: list[float] = []
        self.now = 0.0
        self._memory = FreedMemory(lambda: self.size, self._give_back)

    def _give_back(self) -> None:
        self.asked_at.append(self.now)
        self.size = self.in_use

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            asyncio.run(self._memory.look(self.now))
            self.now += 1


def test_a_process_that_stays_as_large_as_it_was_is_left_alone() -> None:
    process = Process()
    process.run(100)
    process.size = 105 * MEGABYTE
    process.run(100)
    assert process.asked_at == []


def test_what_a_flood_left_is_given_back() -> None:
    process = Process()
    process.run(5)
    process.size = 500 * MEGABYTE
    process.run(1)
    assert process.size == process.in_use
    process.size = 500 * MEGABYTE
    process.run(int(EVERY_S_MIN) + 1)
    assert process.size == process.in_use
    assert process.asked_at == [5.0, 5.0 + EVERY_S_MIN]


def test_what_is_in_use_is_asked_for_more_and_more_seldom() -> None:
    process = Process()
    process.run(1)
    process.size = process.in_use = 500 * MEGABYTE
    process.run(300)
    gaps = [later - earlier for earlier, later in zip(process.asked_at, process.asked_at[1:], strict=False)]
    assert gaps[:2] == [2 * EVERY_S_MIN, 4 * EVERY_S_MIN]
    assert set(gaps[2:]) == {EVERY_S_MAX}


def test_the_machines_own_calls_work_here() -> None:
    assert resident_bytes() > MEGABYTE
    give_back_freed()
