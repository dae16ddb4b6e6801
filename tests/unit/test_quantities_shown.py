"""Sizes and durations as people read them; what is shown can be typed."""

from __future__ import annotations

import pytest

from drumlin.config.quantities import parse_duration, parse_size, show_duration, show_gap, show_size


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1.0, "0 s"),
        (0.4, "0.4 s"),
        (4.04, "4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (90, "1 min 30 s"),
        (180, "3 min"),
        (3599.7, "1 h"),
        (5400, "1 h 30 min"),
        (86_400, "1 day"),
        (200_000, "2 days 8 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, said: str) -> None:
    assert show_duration(seconds) == said
    assert parse_duration(said) == pytest.approx(max(0.0, seconds), rel=0.05, abs=0.5)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (0.0004, "0 ms"), (0.05, "50 ms"), (0.1, "0.1 s"), (3, "3 s")]
)
def test_a_time_between_requests_may_be_short(seconds: float, said: str) -> None:
    assert show_gap(seconds) == said


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1.0 kB"), (36_400, "36 kB"), (1_234_567_890, "1.2 GB")],
)
def test_sizes_are_rounded_to_what_matters(size: int, said: str) -> None:
    assert show_size(size) == said
    if size >= 1_000:
        assert parse_size(said) == pytest.approx(size, rel=0.05)
