"""The coordinators' time as a node knows it: learnt from their answers, and carried on by the node's own clock.

A node puts this time into its signatures and judges by it whether robots rules are too old. So its wall clock may be
wrong by hours without harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from drumlin.clock import monotonic as boot_time
from drumlin.protocol.paths import TIME_HEADER

_START = TIME_HEADER.lower().encode() + b":"
MS_DIGITS_MAX = 15


class CoordinatorTime:
    """Follows the last answer, also backwards: the coordinators' time stands still while none of them runs."""

    def __init__(self, *, monotonic: Callable[[], float] = boot_time, wall: Callable[[], float] = time.time) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._ahead_s: float | None = None

    def now(self) -> float:
        """The coordinators' time; the time of the wall clock until a coordinator has answered."""
        return self._wall() if self._ahead_s is None else self._monotonic() + self._ahead_s

    def hear(self, header_lines: Sequence[bytes]) -> None:
        """Learn the time from the headers of an answer that has just arrived."""
        for line in header_lines:
            if line[: len(_START)].lower() != _START:
                continue
            digits = line[len(_START) :].strip()
            if digits.isdigit() and len(digits) <= MS_DIGITS_MAX:
                self._ahead_s = int(digits) / 1000 - self._monotonic()
