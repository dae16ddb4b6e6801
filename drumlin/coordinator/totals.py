"""The crawl in figures: the shards' statistics added up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import msgspec

from drumlin.model import ShardStats


class Totals(msgspec.Struct, frozen=True):
    """All shards at one moment."""

    queued: int
    scheduled: int
    leased: int
    done: int
    dead: int
    hosts_ready: int
    hosts_waiting: int
    hosts_leased: int
    next_event: float
    counters: dict[str, int]

    @property
    def pending(self) -> int:
        return self.queued + self.scheduled + self.leased

    @property
    def known(self) -> int:
        return self.pending + self.done + self.dead

    @property
    def pages(self) -> int:
        return self.counters.get("pages", 0)

    @property
    def bytes(self) -> int:
        return self.counters.get("bytes", 0)

    def group(self, prefix: str) -> dict[str, int]:
        """The counters whose names begin with `prefix`, without it, largest first."""
        members = [(name.removeprefix(prefix), value) for name, value in self.counters.items() if name.startswith(prefix)]
        return dict(sorted(members, key=lambda member: (-member[1], member[0])))


def add_up(shards: Iterable[ShardStats]) -> Totals:
    counters: Counter[str] = Counter()
    sums = [0] * 8
    next_event = math.inf
    for stats in shards:
        counters.update(stats.counters)
        values = (
            stats.queued,
            stats.scheduled,
            stats.leased,
            stats.done,
            stats.dead,
            stats.hosts_ready,
            stats.hosts_waiting,
            stats.hosts_leased,
        )
        sums = [total + value for total, value in zip(sums, values, strict=True)]
        next_event = min(next_event, stats.next_event)
    return Totals(*sums, next_event, dict(counters))
