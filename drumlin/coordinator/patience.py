"""Decides when a crawl on one machine has waited long enough for hosts that are out of reach.

A person who runs such a crawl wants it to end, and can run it again later. A fleet keeps waiting instead: it is meant
to run all the time.
"""

from __future__ import annotations

import math

from drumlin.coordinator.totals import Totals
from drumlin.engines.base import Engine
from drumlin.model import HostStanding, HostState

PATIENCE = "patience"
"""The reason that is given when a crawl stops for this."""
TOPIC_LOST = "the topic of --seeds-from cannot be read"
"""The same for a crawl whose seeds come from a topic; what is wrong with it follows."""
HOSTS_LOOKED_AT_MAX = 1_000


class Patience:
    """Knows for how long a crawl has made no progress."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._progress = -1
        self._since = -math.inf

    def is_out(self, totals: Totals, at: float) -> bool:
        """Whether there was no progress for the whole patience while all hosts may be in back-off. `at` is from any
        monotonic clock."""
        progress = totals.known + sum(totals.group("outcome.").values())
        if progress != self._progress:
            self._progress, self._since = progress, at
        hosts = totals.hosts_ready + totals.hosts_waiting + totals.hosts_leased
        waiting = 0 < hosts <= totals.hosts_in_backoff and totals.scheduled == 0
        return waiting and at - self._since >= self._patience_s

    async def nothing_else_left(self, engine: Engine, now: float) -> bool:
        """Whether every host that has URLs is in back-off. A host that merely has a long delay is worth waiting for."""
        standings = (HostStanding.READY, HostStanding.WAITING, HostStanding.LEASED)
        for shard in range(engine.shard_count):
            for standing in standings:
                hosts = await engine.hosts(shard, standing, now, limit=HOSTS_LOOKED_AT_MAX)
                if not all(host.in_backoff for host in hosts):
                    return False
        return True


async def first_in_backoff(engine: Engine, now: float, limit: int) -> list[HostState]:
    """Some hosts in back-off, beginning with those that will be tried first."""
    hosts = [
        host
        for shard in range(engine.shard_count)
        for host in await engine.hosts(shard, HostStanding.BACKOFF, now, limit=limit)
    ]
    return sorted(hosts, key=lambda host: host.next_contact)[:limit]
