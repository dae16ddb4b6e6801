"""What the load generator measured: latencies of all calls, errors, pages, and how soon lost work was given out again.

A latency counts from when the call was due, not from when it was sent, and calls that are not answered at the end count
with their age. Otherwise a coordinator that stalls would hide its slowness by slowing down the generator.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable

import numpy as np

PERCENTILES = (50.0, 95.0, 99.0, 99.9)


class Record:
    """Everything seen since the last `restart`."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.latencies: dict[str, array[float]] = {}
        self.errors: Counter[str] = Counter()
        self.pages = 0
        """Results that were accepted."""
        self.pages_rejected = 0
        self.pages_late = 0
        """Results of nodes that had been away, sent when they came back."""
        self.turns = 0
        self.turns_empty = 0
        """Work requests that got nothing."""
        self.turns_without_node = 0
        """Turns for which no node was idle: the fleet is too small for this load."""
        self.calls: Counter[str] = Counter()
        self.bytes_sent: Counter[str] = Counter()

    def answered(self, kind: str, latency_s: float) -> None:
        self.calls[kind] += 1
        latencies = self.latencies.get(kind)
        if latencies is None:
            latencies = self.latencies[kind] = array("d")
        latencies.append(latency_s)

    def unanswered(self, waiting: Iterable[tuple[str, float]]) -> None:
        """Count the calls that are due and not answered yet, by kind and age."""
        for kind, age_s in waiting:
            self.latencies.setdefault(kind, array("d")).append(age_s)

    def percentiles_ms(self, *kinds: str) -> list[float]:
        """The `PERCENTILES` of the latencies of all these calls, and the largest; empty if there were none."""
        parts = [np.frombuffer(self.latencies[kind]) for kind in kinds if self.latencies.get(kind)]
        if not parts:
            return []
        together = np.concatenate(parts) * 1000.0
        return [*map(float, np.percentile(together, PERCENTILES)), float(together.max())]


class LostWork:
    """Hosts whose node was killed, until another node gets them."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self.waited_s: list[float] = []

    def lose(self, hosts: Iterable[str], now: float) -> None:
        for host in hosts:
            self._since.setdefault(host, now)

    def given(self, host: str, now: float) -> None:
        if self._since:
            since = self._since.pop(host, None)
            if since is not None:
                self.waited_s.append(now - since)

    @property
    def missing(self) -> list[str]:
        """Hosts that no node has got yet."""
        return list(self._since)
