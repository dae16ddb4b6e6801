"""How long a host without an answer is left alone, and how slowly a host is asked that sent a 429.

A host that gave no answer (no address, no connection, no robots.txt) is tried again after `FIRST_PAUSE_S`, then after
pauses that double up to `PAUSE_MAX_S`. Chance makes each pause a little longer, because hosts that failed together
should not come back together. If the host asks for a longer pause with Retry-After it gets that, up to `ASKED_MAX_S`.

A 429 doubles the delay of a host, and each other answer after it makes the delay a little shorter again.
"""

from __future__ import annotations

FIRST_PAUSE_S = 10.0
PAUSE_MAX_S = 3600.0
PAUSE_GROWTH = 2.0
PAUSE_SPREAD = 0.1
ASKED_MAX_S = 86_400.0
"""The longest pause that a site can ask for with Retry-After. A site that wants more can say so in robots.txt."""
DOUBLINGS_MAX = 32
"""Keeps the power below from overflowing; `PAUSE_MAX_S` is reached long before."""

SLOWED_MIN_S = 1.0
SLOWED_MAX_S = 60.0
SLOWED_FACTOR = 2.0
RECOVERY_FACTOR = 0.98
"""The share of the delay that is left after each answer: about 35 answers undo a doubling."""


def pause_s(tries: int, asked_s: float, chance: float) -> float:
    """Seconds to leave a host alone after `tries` in a row without an answer. `asked_s` is what it asked for with
    Retry-After, `chance` is uniform in [0, 1)."""
    grown_s = min(FIRST_PAUSE_S * PAUSE_GROWTH ** min(max(tries - 1, 0), DOUBLINGS_MAX), PAUSE_MAX_S)
    return max(grown_s * (1.0 + PAUSE_SPREAD * chance), min(asked_s, ASKED_MAX_S))


def slowed_s(delay_s: float) -> float:
    """The new delay of a host that asked us to slow down; `delay_s` was too short for it."""
    return min(max(delay_s * SLOWED_FACTOR, SLOWED_MIN_S), max(SLOWED_MAX_S, delay_s))


def recovered_s(slow_s: float, delay_s: float) -> float:
    """The delay `slow_s` after one more answer; 0 once it has come down to the host's usual one, `delay_s`."""
    left_s = slow_s * RECOVERY_FACTOR
    return left_s if left_s > max(delay_s, SLOWED_MIN_S / SLOWED_FACTOR) else 0.0
