"""A node learns the coordinators' time from their answers, so its own wall clock may be wrong by hours."""

from __future__ import annotations

import pytest

from drumlin.node.calling.coordinator_time import CoordinatorTime
from tests.harness.clocks import HandClock


def test_it_is_carried_by_the_boot_time_clock_whatever_the_wall_clock_does() -> None:
    boot, wall = HandClock(50.0), HandClock(1_000.0)
    known = CoordinatorTime(monotonic=boot, wall=wall)
    assert known.now() == 1_000.0
    known.hear([b"HTTP/1.1 401 Unauthorized\r\n", b"x-drumlin-time: 7000500\r\n", b"\r\n"])
    for step_s in (3_600.0, -3_600.0):
        wall.now += step_s
        boot.now += 1.0
    assert known.now() == 7_002.5


def test_it_follows_the_last_answer_also_back() -> None:
    """Engine time stood still while no coordinator ran."""
    boot = HandClock(0.0)
    known = CoordinatorTime(monotonic=boot)
    known.hear([b"X-Drumlin-Time: 9000000\r\n"])
    boot.now += 600.0
    known.hear([b"X-Drumlin-Time: 9001000\r\n"])
    assert known.now() == 9_001.0


@pytest.mark.parametrize(
    "line", [b"x-drumlin-time: soon", b"x-drumlin-time: -5", b"x-drumlin-time: 1" + b"0" * 99, b""]
)
def test_what_is_no_time_is_not_heard(line: bytes) -> None:
    known = CoordinatorTime(monotonic=HandClock(0.0), wall=HandClock(3.0))
    known.hear([line])
    assert known.now() == 3.0
