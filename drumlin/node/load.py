"""How many requests are under way on average. At a polite pace, a look at a single moment would mostly show none."""

from __future__ import annotations


class Load:
    """The mean since the last `take_mean`. `now` may be of any clock, as only differences count."""

    def __init__(self, now: float) -> None:
        self._under_way = 0
        self._begun = now
        self._changed = now
        self._total_s = 0.0
        """For how long all requests together were under way."""

    def change(self, by: int, now: float) -> None:
        """So many requests have begun or, if negative, ended."""
        self._pass_until(now)
        self._under_way += by

    def take_mean(self, now: float) -> float:
        """The mean since the last call. A new interval begins."""
        self._pass_until(now)
        passed_s = self._changed - self._begun
        mean = self._total_s / passed_s if passed_s > 0 else float(self._under_way)
        self._begun, self._total_s = self._changed, 0.0
        return mean

    def _pass_until(self, now: float) -> None:
        # The end of a transfer is reported a moment later, with its own time. Time that was counted stays counted.
        now = max(now, self._changed)
        self._total_s += self._under_way * (now - self._changed)
        self._changed = now
