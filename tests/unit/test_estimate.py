"""How long a crawl will take is said only if it is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drumlin.cli.estimate import Estimate, Sample
from drumlin.config import CrawlConfig


def left(pending: Callable[[int], int], seconds: int = 20, elapsed_s: float = 20.0, **settings: Any) -> str:
    """The estimate after so many seconds with ten pages of 1 kB a second."""
    estimate = Estimate()
    for second in range(seconds + 1):
        estimate.add(Sample(float(second), 10 * second, 10_000 * second, pending(second)))
    return estimate.left(CrawlConfig(**settings), elapsed_s)


def growing(second: int) -> int:
    return 100 + 20 * second


def falling(second: int) -> int:
    return 1_000 - 10 * second


def test_a_queue_that_grows_says_nothing() -> None:
    assert left(growing) == ""


def test_a_queue_that_fell_and_grows_again_says_nothing() -> None:
    assert left(lambda second: 1_000 - 50 * min(second, 10) + 5 * max(0, second - 10)) == ""


def test_a_queue_that_falls_steadily_has_an_end() -> None:
    assert left(falling) == "about 1 min 20 s to go"


def test_a_budget_of_pages_or_bytes_has_an_end_at_this_pace() -> None:
    assert left(growing, pages_max=2_000) == "about 3 min to go"
    assert left(growing, bytes_max=400_000) == "about 20 s to go"


def test_what_comes_first_ends_it() -> None:
    assert left(falling, pages_max=1_000_000) == "about 1 min 20 s to go"
    assert left(falling, pages_max=300) == "about 10 s to go"
    assert left(falling, time_max_s=50.0) == "at most 30 s to go"
    assert left(falling, time_max_s=5_000.0) == "about 1 min 20 s to go"


def test_in_the_first_seconds_only_a_limit_of_time_is_known() -> None:
    assert left(falling, seconds=3, pages_max=100) == ""
    assert left(falling, seconds=3, elapsed_s=3.0, time_max_s=600.0) == "at most 10 min to go"
