"""How much a node has to do: how many requests are under way on average, and what its time goes into. At a polite pace,
a look at a single moment would mostly show nothing."""

from __future__ import annotations

from drumlin.clock import Clocks
from drumlin.protocol import Effort


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


class Efforts:
    """What this node's time goes into, added up since its start."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._begun = self._turned = clocks.boot()
        self._cpu_begun = clocks.cpu()
        self._held = False
        self._held_s = 0.0
        self._requests = 0
        self._answer_s = 0.0
        self._body_s = 0.0

    def turned(self, now: float, *, held: bool) -> None:
        """The loop turns; until its next turn, no further contact is made if it is `held` back."""
        if self._held:
            self._held_s += now - self._turned
        self._turned, self._held = now, held

    def ended(self, started: float, first_byte: float, finished: float) -> None:
        """A request has ended, with an answer or without."""
        self._requests += 1
        self._answer_s += max(0.0, first_byte - started)
        self._body_s += max(0.0, finished - first_byte)

    def totals(self, now: float, disk_s: float) -> Effort:
        cpu_s = self._clocks.cpu() - self._cpu_begun
        passed_s = now - self._begun
        parts = (passed_s, cpu_s, disk_s, self._held_s, self._requests, self._answer_s, self._body_s)
        return Effort(*[round(part, 3) for part in parts])
