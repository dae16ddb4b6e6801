"""How long a host is left alone that could not be asked, and how fast one is asked that wished for less.

A host that gave no answer (no address, no connection, no robots.txt) is tried again after `FIRST_PAUSE_S`, then after
pauses that double up to `PAUSE_MAX_S`, each a little longer by chance, so that hosts that went together do not come
back together. What the host itself asks for with Retry-After is kept to, up to `ASKED_MAX_S`.

After a 429 a host's delay is twice what it was, and each answer since takes a little of that away again.
"""

from __future__ import annotations

FIRST_PAUSE_S = 10.0
PAUSE_MAX_S = 3600.0
PAUSE_GROWTH = 2.0
PAUSE_SPREAD = 0.1
ASKED_MAX_S = 86_400.0
"""The longest that a site can have itself left alone: who wants more can say so in robots.txt."""
DOUBLINGS_MAX = 32

SLOWED_MIN_S = 1.0
SLOWED_MAX_S = 60.0
SLOWED_FACTOR = 2.0
RECOVERY_FACTOR = 0.98
"""What of the delay is left after each answer: about 35 answers until a doubling is undone."""


def pause_s(tries: int, asked_s: float, chance: float) -> float:
    """Seconds to leave a host alone after so many tries in a row that gave no answer. `chance` is uniform in [0, 1)."""
    grown_s = min(FIRST_PAUSE_S * PAUSE_GROWTH ** min(max(tries - 1, 0), DOUBLINGS_MAX), PAUSE_MAX_S)
    return max(grown_s * (1.0 + PAUSE_SPREAD * chance), min(asked_s, ASKED_MAX_S))


def slowed_s(delay_s: float) -> float:
    """The delay of a host that asked us to slow down, from the one that was too short."""
    return min(max(delay_s * SLOWED_FACTOR, SLOWED_MIN_S), max(SLOWED_MAX_S, delay_s))


def recovered_s(slow_s: float, delay_s: float) -> float:
    """What an answer leaves of such a delay; 0 once it is no longer than the host's usual one, `delay_s`."""
    left_s = slow_s * RECOVERY_FACTOR
    return left_s if left_s > max(delay_s, SLOWED_MIN_S / SLOWED_FACTOR) else 0.0
