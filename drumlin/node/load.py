"""How many requests are under way on average: a look at one moment shows none at a polite pace."""

from __future__ import annotations


class Load:
    """The mean since it was last asked for. `now` never matters by itself, only how much of it has passed."""

    def __init__(self, now: float) -> None:
        self._under_way = 0
        self._begun = now
        self._changed = now
        self._total_s = 0.0
        """Time that all requests together were under way."""

    def change(self, by: int, now: float) -> None:
        """So many requests have begun, or ended."""
        self._pass_until(now)
        self._under_way += by

    def take_mean(self, now: float) -> float:
        """The mean until now, which is then forgotten."""
        self._pass_until(now)
        passed_s = self._changed - self._begun
        mean = self._total_s / passed_s if passed_s > 0 else float(self._under_way)
        self._begun, self._total_s = self._changed, 0.0
        return mean

    def _pass_until(self, now: float) -> None:
        # The end of a transfer is told a moment after it was: what has passed is not taken back.
        now = max(now, self._changed)
        self._total_s += self._under_way * (now - self._changed)
        self._changed = now
