"""The crawl in figures: the shards' statistics added up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from drumlin.model import ShardStats


class Totals(ShardStats, frozen=True):
    """All shards at one moment: what each says of itself, for all together."""

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
        """The counters whose names begin with `prefix`, without it, largest first; those that went back to nothing are
        left out."""
        own = [(name, value) for name, value in self.counters.items() if name.startswith(prefix) and value > 0]
        members = [(name.removeprefix(prefix), value) for name, value in own]
        return dict(sorted(members, key=lambda member: (-member[1], member[0])))


_SUMMED = [name for name in ShardStats.__struct_fields__ if name not in ("next_event", "counters")]


def add_up(shards: Iterable[ShardStats]) -> Totals:
    all_stats = list(shards)
    counters: Counter[str] = Counter()
    for stats in all_stats:
        counters.update(stats.counters)
    next_event = min((stats.next_event for stats in all_stats), default=math.inf)
    sums = {name: sum(getattr(stats, name) for stats in all_stats) for name in _SUMMED}
    return Totals(**sums, next_event=next_event, counters=dict(counters))
