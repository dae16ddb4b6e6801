"""The load that a node reports is an average, not what a single moment shows."""

from __future__ import annotations

import pytest

from drumlin.clock import Clocks
from drumlin.node.load import Efforts, Load
from drumlin.protocol import Effort


def test_requests_that_begin_and_end_between_two_looks_count() -> None:
    load = Load(100.0)
    for second in range(10):
        load.change(+1, 100.0 + second)
        load.change(-1, 100.2 + second)
    assert load.take_mean(110.0) == pytest.approx(0.2)
    assert load.take_mean(120.0) == 0.0


def test_what_is_under_way_all_the_time_counts_in_full() -> None:
    load = Load(0.0)
    load.change(+3, 0.0)
    assert load.take_mean(5.0) == 3.0
    assert load.take_mean(5.0) == 3.0


def test_an_end_that_is_told_late_takes_nothing_back() -> None:
    load = Load(0.0)
    load.change(+1, 1.0)
    assert load.take_mean(2.0) == 0.5
    load.change(-1, 1.5)
    assert load.take_mean(4.0) == 0.0


def test_what_the_time_goes_into_is_added_up() -> None:
    cpu = [3.0]
    efforts = Efforts(Clocks(lambda: 100.0, lambda: 0.0, lambda: cpu[0]))
    efforts.turned(101.0, held=False)
    efforts.turned(103.0, held=True)
    efforts.turned(104.5, held=False)
    efforts.turned(109.0, held=True)
    efforts.ended(100.0, 101.0, 101.5)
    efforts.ended(100.0, 102.0, 102.0)
    cpu[0] = 7.0
    assert efforts.totals(110.0, 0.25) == Effort(10.0, 4.0, 0.25, 1.5, 2, 3.0, 0.5)
