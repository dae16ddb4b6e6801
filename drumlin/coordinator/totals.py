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
    hosts_in_backoff: int = 0

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
        members = [
            (name.removeprefix(prefix), value) for name, value in self.counters.items() if name.startswith(prefix)
        ]
        return dict(sorted(members, key=lambda member: (-member[1], member[0])))


def add_up(shards: Iterable[ShardStats]) -> Totals:
    all_stats = list(shards)
    counters: Counter[str] = Counter()
    for stats in all_stats:
        counters.update(stats.counters)
    return Totals(
        queued=sum(stats.queued for stats in all_stats),
        scheduled=sum(stats.scheduled for stats in all_stats),
        leased=sum(stats.leased for stats in all_stats),
        done=sum(stats.done for stats in all_stats),
        dead=sum(stats.dead for stats in all_stats),
        hosts_ready=sum(stats.hosts_ready for stats in all_stats),
        hosts_waiting=sum(stats.hosts_waiting for stats in all_stats),
        hosts_leased=sum(stats.hosts_leased for stats in all_stats),
        next_event=min((stats.next_event for stats in all_stats), default=math.inf),
        counters=dict(counters),
        hosts_in_backoff=sum(stats.hosts_in_backoff for stats in all_stats),
    )
