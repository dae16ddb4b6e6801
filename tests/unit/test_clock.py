"""The clock of leases runs while the machine sleeps."""

from __future__ import annotations

import time

import pytest

from drumlin.clock import monotonic


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux tells the two clocks apart")
def test_time_asleep_counts() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = monotonic()
    assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)
