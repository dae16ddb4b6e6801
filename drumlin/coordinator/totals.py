"""The crawl in figures: the shards' statistics added up, and what the time of a node went into lately."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from msgspec.structs import astuple

from drumlin.model import ShardStats
from drumlin.protocol import Effort

RATE_MEMORY_S = 10.0
"""What is older than this hardly counts in a rate."""


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


def lately_of(lately: Effort | None, before: Effort | None, told: Effort | None) -> Effort | None:
    """What a node's time went into lately: the difference between two heartbeats, and what was before as far as it is
    not too old. A process that was started again counts from zero."""
    if told is None:
        return None
    if before is None or told.time_s < before.time_s:
        before, lately = Effort(), None
    weight = math.exp(-max(0.0, told.time_s - before.time_s) / RATE_MEMORY_S)
    parts = zip(astuple(lately or Effort()), astuple(told), astuple(before), strict=True)
    return Effort(*[weight * old + (after - earlier if after > earlier else 0) for old, after, earlier in parts])
