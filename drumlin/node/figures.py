"""What a node counts of itself, for Prometheus (`drumlin node --metrics`).

The node's loop counts: for each page a few additions to plain numbers, well under a microsecond. Another thread reads
them whenever somebody asks. What is no counter, such as how many hosts are held, could change while it is read: so the
loop writes all of that down together, every second, and only if somebody may ask.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from drumlin.events.figures import lines_of_events
from drumlin.events.sender import Standing
from drumlin.fetch import Transfer
from drumlin.metrics import registry
from drumlin.metrics.counting import Histogram
from drumlin.metrics.process import lines_of_process
from drumlin.metrics.text import by_label, histograms, one, page
from drumlin.model import FailureKind, Outcome
from drumlin.protocol import Result

LOOK_EVERY_S = 1.0
FOREVER = float("inf")
PUT_OFF = "put_off"
"""What became of a URL whose host is out of reach: it was not asked for."""
PAGE, ROBOTS = "page", "robots"


class Gauges(msgspec.Struct, frozen=True):
    """How a node stands at the moment `at` of its own clock."""

    at: float
    in_flight: int = 0
    lease_ages_s: list[float] = []
    unstarted: int = 0
    unanswered: int = 0
    settling_lag_s: float = 0.0
    rows_lag_s: float = 0.0
    cut_off_s: float = 0.0
    spool_bytes: int = 0
    events: Standing | None = None


class NodeFigures:
    """Counters that only ever grow, and the last look at the rest. The maxima are the node's settings."""

    def __init__(self, memory_bytes_max: int = 0, spool_bytes_max: int = 0) -> None:
        self._limits = memory_bytes_max, spool_bytes_max
        self._fetch_s = {PAGE: Histogram(registry.FETCH_BUCKETS_S), ROBOTS: Histogram(registry.FETCH_BUCKETS_S)}
        self._bytes = {PAGE: 0, ROBOTS: 0}
        self._outcomes = dict.fromkeys([*map(str, Outcome), PUT_OFF], 0)
        self._failures = dict.fromkeys(map(str, FailureKind), 0)
        self._gauges: Gauges | None = None
        self._cut_off_s = 0.0
        self.look_at = FOREVER
        """When the loop should next say how it stands."""

    def be_watched(self) -> None:
        """Somebody may ask from now on."""
        self.look_at = 0.0

    # For the loop

    def fetched(self, of: str, transfer: Transfer) -> None:
        """A request has ended, well or not."""
        self._fetch_s[of].observe(transfer.finished - transfer.started)
        self._bytes[of] += transfer.body_bytes

    def finished(self, result: Result) -> None:
        """Nothing more will be done about a URL under its lease."""
        if result.outcome != Outcome.FAILED:
            self._outcomes[result.outcome] += 1
        elif result.put_off_s:
            self._outcomes[PUT_OFF] += 1
        else:
            self._outcomes[result.outcome] += 1
            self._failures[result.kind] = self._failures.get(result.kind, 0) + 1

    def waits(self, now: float, cut_off_s: float) -> None:
        """The loop does not run yet, or no more. For how long no coordinator has answered is told all the same."""
        if now >= self.look_at:
            self._cut_off_s = cut_off_s
            self.look_at = now + LOOK_EVERY_S

    def looked(self, gauges: Gauges) -> None:
        self._gauges, self._cut_off_s = gauges, gauges.cut_off_s
        self.look_at = gauges.at + LOOK_EVERY_S

    # For who asks

    def page(self, now: float) -> bytes:
        """All figures of this node. `now` is of the clock of `Gauges.at`."""
        return page([*self._counted(), *self._standing(now), *lines_of_process("node")])

    def _counted(self) -> Iterable[Iterable[str]]:
        return [
            histograms(registry.NODE_FETCH_SECONDS, {(of,): one for of, one in self._fetch_s.items()}),
            by_label(registry.NODE_BODY_BYTES, self._bytes),
            by_label(registry.NODE_URLS, self._outcomes),
            # A copy, since a kind that is new to this version may join while it is read.
            by_label(registry.NODE_FAILURES, dict(self._failures)),
        ]

    def _standing(self, now: float) -> Iterable[Iterable[str]]:
        """Until the node's loop has begun, nothing is in flight, held or waiting."""
        gauges = self._gauges or Gauges(now)
        memory_bytes_max, spool_bytes_max = self._limits
        return [
            one(registry.NODE_IN_FLIGHT, gauges.in_flight),
            one(registry.NODE_LEASES, len(gauges.lease_ages_s)),
            one(registry.NODE_LEASE_AGES, sum(gauges.lease_ages_s)),
            one(registry.NODE_LEASE_OLDEST, max(gauges.lease_ages_s, default=0.0)),
            one(registry.NODE_UNSTARTED, gauges.unstarted),
            one(registry.NODE_UNANSWERED, gauges.unanswered),
            one(registry.NODE_SETTLING_LAG, gauges.settling_lag_s),
            one(registry.NODE_ROWS_LAG, gauges.rows_lag_s),
            one(registry.NODE_CUT_OFF, self._cut_off_s),
            one(registry.NODE_SPOOL, gauges.spool_bytes),
            one(registry.NODE_SPOOL_MAX, spool_bytes_max),
            one(registry.NODE_MEMORY_MAX, memory_bytes_max),
            one(registry.NODE_LOOK_AGE, max(0.0, now - gauges.at)),
            *lines_of_events(gauges.events),
        ]
