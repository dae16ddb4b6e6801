"""Checkers of how the fleet fares as a whole. Most of them hold only while no fault is at work, and a while after."""

from __future__ import annotations

from drumlin.node.settling import READ_BATCH, SETTLE_BATCH_MAX, UNSETTLED_BYTES_MAX, UNSETTLED_PAGES_MAX
from drumlin.sim.checking.base import Checker
from drumlin.sim.figures import BODY_BYTES

CALM_S = 90.0
"""So long after the last fault nodes have noticed that all is well again."""
OVERDUE_S = 45.0
LAG_S_MAX = 15.0
HELD_PAGES_MAX = UNSETTLED_PAGES_MAX + READ_BATCH + SETTLE_BATCH_MAX
RECOVERED_SHARE = 0.85
WINDOW_S = 120.0


class NeverIdle(Checker):
    """No node is without work while a host has long been ready."""

    name = "never_idle"

    def looked(self) -> None:
        if self._world.quiet_s < CALM_S or self._world.scenario.pages_max is not None:
            return
        due = [shard.ready[0][0] for shard in self._world.memory._shards if shard.ready]
        overdue_s = self._ledger.engine_now - min(due, default=self._ledger.engine_now)
        if overdue_s < OVERDUE_S:
            return
        for node in self._world.nodes:
            if node.agent is not None and not node.frozen and not node.leaving and node.idle_since(OVERDUE_S):
                raise self.broken(f"{node.name} has no host, and one has been ready for {overdue_s:.0f} s")


class LagIsBounded(Checker):
    """What was fetched is settled soon."""

    name = "lag_is_bounded"

    def looked(self) -> None:
        if self._world.quiet_s < CALM_S:
            return
        for node in self._world.nodes:
            if node.agent is not None and not node.frozen:
                lag_s = node.lag_of_settling_s
                if lag_s > LAG_S_MAX:
                    raise self.broken(f"a page of {node.name} has waited for {lag_s:.0f} s to be settled")


class QueuesAreBounded(Checker):
    """Nothing that waits grows without a bound: pages and bytes in a node, batches at a coordinator."""

    name = "queues_are_bounded"

    def looked(self) -> None:
        for node in self._world.nodes:
            if node.agent is None:
                continue
            pages, size = node.unsettled
            most_bytes = UNSETTLED_BYTES_MAX + (node.kind.concurrency + READ_BATCH) * 2 * max(BODY_BYTES)
            if pages > HELD_PAGES_MAX + node.kind.concurrency or size > most_bytes:
                raise self.broken(f"{pages:,} pages with {size:,} bytes wait in {node.name}")


class SpeedReturns(Checker):
    """After the last fault the crawl becomes as fast again as it was before the first: no state is bad for good."""

    name = "speed_returns"

    def ended(self) -> None:
        faults, paces = self._world.scenario.faults, self._world.paces
        if not faults or self._world.quiet_s < CALM_S + WINDOW_S or self._world.scenario.pages_max is not None:
            return
        before = _pace(paces, min(fault.at for fault in faults) - WINDOW_S / 4, WINDOW_S / 4)
        after = _pace(paces, self._world.now - WINDOW_S, WINDOW_S)
        if after < RECOVERED_SHARE * before:
            raise self.broken(f"{after:.2f} pages/s a node in place of the {before:.2f} before the first fault")


def _pace(paces: list[tuple[float, int, int]], since: float, lasts_s: float) -> float:
    """Pages a second for each node at work."""
    within = [pace for pace in paces if since <= pace[0] <= since + lasts_s]
    if len(within) < 2:
        return 0.0
    (first_at, first, _), (last_at, last, _) = within[0], within[-1]
    nodes = sum(count for _, _, count in within) / len(within)
    return (last - first) / max(last_at - first_at, 1e-9) / max(nodes, 1.0)
