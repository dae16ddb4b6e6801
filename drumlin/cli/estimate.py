"""Estimates how long a crawl will still take, if that can be said honestly: until a budget is used up, or while the
queue becomes steadily shorter."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from drumlin.config import CrawlConfig
from drumlin.config.quantities import show_duration

WINDOW_S = 60.0
SPAN_MIN_S = 5.0
"""There is no estimate from less time than this, since a crawl begins in bursts."""

ROUNDED_TO = ((7_200.0, 600.0), (120.0, 60.0), (20.0, 10.0))
"""Pairs: an estimate of at least so many seconds is rounded to a multiple of so many."""


class Sample(NamedTuple):
    """A crawl at one moment; `at` is a time of the monotonic clock."""

    at: float
    pages: int
    bytes: int
    pending: int


class Estimate:
    """Remembers the last minute of a crawl."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)
        while sample.at - self._samples[0].at > WINDOW_S:
            self._samples.popleft()

    def left(self, config: CrawlConfig, elapsed_s: float) -> str:
        """`about 3 min to go`, or "" if there is no estimate."""
        known = [seconds for seconds in (*self._to_budgets(config), self._to_empty()) if seconds is not None]
        most = config.time_max_s - elapsed_s if config.time_max_s is not None else None
        if known and (most is None or min(known) < most):
            return f"about {_roughly(min(known))} to go"
        return f"at most {_roughly(most)} to go" if most is not None and most > 0 else ""

    def _to_budgets(self, config: CrawlConfig) -> list[float | None]:
        if not self._spans_enough():
            return []
        first, last = self._samples[0], self._samples[-1]
        return [
            _time_to(config.pages_max, first.pages, last.pages, last.at - first.at),
            _time_to(config.bytes_max, first.bytes, last.bytes, last.at - first.at),
        ]

    def _to_empty(self) -> float | None:
        """How long until the queue is empty. None unless it is shorter now than in the middle of the window, and was
        shorter then than at its beginning."""
        if not self._spans_enough():
            return None
        first, last = self._samples[0], self._samples[-1]
        middle = next(one for one in self._samples if one.at >= (first.at + last.at) / 2)
        if not first.pending > middle.pending > last.pending:
            return None
        return last.pending * (last.at - first.at) / (first.pending - last.pending)

    def _spans_enough(self) -> bool:
        return len(self._samples) > 2 and self._samples[-1].at - self._samples[0].at >= SPAN_MIN_S


def _time_to(most: int | None, before: int, now: int, span_s: float) -> float | None:
    """How long until a budget is used up at this pace."""
    if most is None or now <= before or most <= now:
        return None
    return (most - now) * span_s / (now - before)


def _roughly(seconds: float) -> str:
    """The duration, rounded: the estimate is not exact to the second, and would change all the time."""
    unit_s = next((unit_s for over_s, unit_s in ROUNDED_TO if seconds >= over_s), 1.0)
    return show_duration(round(seconds / unit_s) * unit_s)
