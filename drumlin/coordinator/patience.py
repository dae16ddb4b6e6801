"""When a crawl on one machine has waited long enough for hosts that are out of reach.

Whoever runs one wants it to end, and can run it again. A fleet waits: it is there to stay.
"""

from __future__ import annotations

import math

from drumlin.coordinator.totals import Totals
from drumlin.engines.base import Engine
from drumlin.model import HostStanding, HostState

PATIENCE = "patience"
"""The reason of a stop that this brings about."""
HOSTS_LOOKED_AT_MAX = 1_000


class Patience:
    """Knows for how long nothing has come of a crawl."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._progress = -1
        self._since = -math.inf

    def is_out(self, totals: Totals, at: float) -> bool:
        """Whether for so long no URL has come to an end, and all hosts may be in back-off. `at` is any clock that runs
        evenly."""
        progress = totals.known + sum(totals.group("outcome.").values())
        if progress != self._progress:
            self._progress, self._since = progress, at
        hosts = totals.hosts_ready + totals.hosts_waiting + totals.hosts_leased
        waiting = 0 < hosts <= totals.hosts_in_backoff and totals.scheduled == 0
        return waiting and at - self._since >= self._patience_s

    async def nothing_else_left(self, engine: Engine, now: float) -> bool:
        """Whether every host that has URLs is in back-off: one that merely has a long delay is worth waiting for."""
        standings = (HostStanding.READY, HostStanding.WAITING, HostStanding.LEASED)
        for shard in range(engine.shard_count):
            for standing in standings:
                hosts = await engine.hosts(shard, standing, now, limit=HOSTS_LOOKED_AT_MAX)
                if not all(host.in_backoff for host in hosts):
                    return False
        return True


async def first_in_backoff(engine: Engine, now: float, limit: int) -> list[HostState]:
    """Some hosts in back-off, those that are tried next first."""
    hosts = [
        host
        for shard in range(engine.shard_count)
        for host in await engine.hosts(shard, HostStanding.BACKOFF, now, limit=limit)
    ]
    return sorted(hosts, key=lambda host: host.next_contact)[:limit]
