"""How long a crawl has run, as several coordinators see it."""

from __future__ import annotations

import pytest

from drumlin.api.explaining.report import ELAPSED_KEY
from drumlin.coordinator.dispatch import STATE_KEY
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.serving.running_time import RunningTime


class Meanwhile(MemoryEngine):
    """An engine where something happens just before the next turn is written: its writer was frozen there."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[tuple[RunningTime, bytes, float]] = []

    async def put_meta_if_absent(self, key: str, value: bytes) -> bytes:
        happens, self.meanwhile = self.meanwhile, []
        for other, state, now in happens:
            await self.put_meta(STATE_KEY, state)
            await other.follow(now)
        return await super().put_meta_if_absent(key, value)


@pytest.fixture
def engine() -> Meanwhile:
    return Meanwhile()


def enter(engine: MemoryEngine, state: bytes) -> None:
    drive(engine.put_meta(STATE_KEY, state))


def test_a_leader_that_was_frozen_adds_nothing_that_another_one_has_seen_pass(engine: Meanwhile) -> None:
    first, second = RunningTime(engine), RunningTime(engine)
    assert drive(first.follow(100.0)) == 0.0
    for now in (101.0, 105.0, 110.0, 125.0):
        assert drive(second.follow(now)) == now - 100.0
    assert drive(first.follow(125.4)) == pytest.approx(25.4)


def test_a_coordinator_that_has_just_started_knows_the_time_at_its_first_look(engine: Meanwhile) -> None:
    drive(RunningTime(engine).follow(100.0))
    assert drive(RunningTime(engine).follow(415.0)) == 315.0


def test_time_after_the_end_does_not_count_and_a_resumed_crawl_goes_on_from_there(engine: Meanwhile) -> None:
    first, second = RunningTime(engine), RunningTime(engine)
    drive(first.follow(100.0))
    enter(engine, b"finished")
    assert drive(first.follow(160.0)) == 60.0
    assert drive(second.follow(500.0)) == 60.0
    enter(engine, b"running")
    assert drive(second.follow(1000.0)) == 60.0
    assert drive(first.follow(1010.0)) == 70.0
    enter(engine, b"paused")
    assert drive(first.follow(1020.0)) == 80.0


def test_an_end_that_is_noted_too_late_changes_nothing(engine: Meanwhile) -> None:
    """The first coordinator sees the end and is frozen before it can note it; the crawl is resumed meanwhile."""
    first, second = RunningTime(engine), RunningTime(engine)
    drive(first.follow(100.0))
    drive(second.follow(100.0))
    enter(engine, b"draining")
    engine.meanwhile = [(second, b"draining", 161.0), (second, b"running", 300.0)]
    drive(first.follow(160.0))
    assert drive(first.follow(310.0)) == drive(second.follow(310.0)) == 71.0


def test_a_crawl_of_an_earlier_version_goes_on_from_the_time_that_was_kept(engine: Meanwhile) -> None:
    drive(engine.put_meta(ELAPSED_KEY, b"365.5"))
    assert drive(RunningTime(engine).follow(100.0)) == 365.5
    assert drive(RunningTime(engine).follow(110.0)) == 375.5


def test_who_only_reads_gets_the_time_until_the_last_moment_that_a_coordinator_told(engine: Meanwhile) -> None:
    drive(RunningTime(engine).follow(100.0))
    drive(engine.keep_time(130.0))
    assert drive(RunningTime(engine).read()) == 30.0
