"""Checkers of how the fleet fares as a whole. Most of them hold only while no fault is at work, and a while after."""

from __future__ import annotations

from drumlin.coordinator.taking.backlog import SETTLING_WAITING_MAX
from drumlin.frontier.pauses import PAUSE_MAX_S, PAUSE_SPREAD
from drumlin.node.settling import READ_BATCH, SETTLE_BATCH_MAX, UNSETTLED_BYTES_MAX, UNSETTLED_PAGES_MAX
from drumlin.sim.checking.base import Checker, World
from drumlin.sim.checking.ledger import Ledger
from drumlin.sim.figures import BODY_BYTES

CALM_S = 90.0
"""So long after the last fault nodes have noticed that all is well again."""
OVERDUE_S = 45.0
PUT_OFF_S_MAX = PAUSE_MAX_S * (1.0 + PAUSE_SPREAD) + 60.0
BACK_WITHIN_S = 60.0
LAG_S_MAX = 5.0
HELD_PAGES_MAX = UNSETTLED_PAGES_MAX + READ_BATCH + SETTLE_BATCH_MAX
RECOVERED_SHARE = 0.8
"""robots.txt, calls for work and chance cost some of what is possible."""
WINDOW_S = 120.0


class NeverIdle(Checker):
    """No node is without work while a host has long been ready."""

    name = "never_idle"

    def looked(self) -> None:
        if self._world.quiet_s < CALM_S or self._world.scenario.pages_max is not None:
            return
        idle = [node for node in self._world.nodes if node.idle_since(OVERDUE_S)]
        # Hosts with a budget are not given out with the others, and one whose budget is spent is ready for ever.
        apart = self._world.budgets
        ready = [
            next((one[0] for one in shard.ready if one[1] not in apart), None) for shard in self._world.memory._shards
        ]
        due = [at for at in ready if at is not None]
        overdue_s = self._ledger.engine_now - min(due, default=self._ledger.engine_now)
        if overdue_s < OVERDUE_S:
            return
        for node in idle:
            if not node.frozen and not node.leaving:
                raise self.broken(f"{node.name} has no host, and one has been ready for {overdue_s:.0f} s")


class NodesComeBack(Checker):
    """When all is well again every machine has a node at work: none has given up, and none is kept waiting."""

    name = "nodes_come_back"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._away_since: dict[int, float] = {}

    def looked(self) -> None:
        scenario, now = self._world.scenario, self._world.now
        if scenario.churn or scenario.pages_max is not None:
            # Some are away because that is the scenario, or because the crawl has ended.
            return
        for number, node in enumerate(self._world.nodes):
            if node.agent is not None and not node.leaving:
                self._away_since.pop(number, None)
                continue
            away_s = now - self._away_since.setdefault(number, now)
            if min(away_s, self._world.quiet_s) > BACK_WITHIN_S:
                state = "has not joined" if node.alive else "is not running"
                raise self.broken(f"{node.name} {state}, {away_s:.0f} s after it was last at work")


class NothingWaitsTooLong(Checker):
    """No host and no URL is put off for longer than the rules of pauses and retries allow."""

    name = "nothing_waits_too_long"

    def looked(self) -> None:
        at_most = self._ledger.engine_now + PUT_OFF_S_MAX
        for shard in self._world.memory._shards:
            last = [*shard.ready[-1:], *[one[::2] for one in shard.scheduled[-1:]]]
            for until, name in last:
                if until > at_most:
                    raise self.broken(f"{name} waits until {until - self._ledger.engine_now:,.0f} s from now")


class LagIsBounded(Checker):
    """What was fetched is settled soon."""

    name = "lag_is_bounded"

    def looked(self) -> None:
        if self._world.quiet_s < CALM_S or self._world.paces[-1].lag_s <= LAG_S_MAX:
            return
        for node in self._world.nodes:
            doing = node.doing
            if doing is not None and doing.lag_s > LAG_S_MAX:
                raise self.broken(f"a page of {node.name} has waited for {doing.lag_s:.0f} s to be settled")


class QueuesAreBounded(Checker):
    """Nothing that waits grows without a bound: pages and bytes in a node, its journals, batches at a coordinator."""

    name = "queues_are_bounded"

    def looked(self) -> None:
        for coordinator in self._world.coordinators:
            if coordinator.backlog > SETTLING_WAITING_MAX:
                raise self.broken(f"{coordinator.backlog:,} batches wait at coordinator {coordinator.place}")
        concurrency = self._world.scenario.concurrency
        most_pages = HELD_PAGES_MAX + concurrency
        most_bytes = UNSETTLED_BYTES_MAX + (concurrency + READ_BATCH) * 2 * max(BODY_BYTES)
        for node in self._world.nodes:
            if node.agent is None:
                continue
            pages, size = node.unsettled
            if pages > most_pages or size > most_bytes:
                raise self.broken(f"{pages:,} pages with {size:,} bytes wait in {node.name}")
            # One journal is being written. Of every other one at least a parcel is not answered.
            if len(node.disk.journals) > 1 + node.parcels:
                raise self.broken(f"{node.name} has {len(node.disk.journals)} journals for {node.parcels} parcels")


class SpeedReturns(Checker):
    """After the last fault the crawl is as fast again as its nodes, and the hosts that are left, allow: no state is bad
    for good."""

    name = "speed_returns"

    def ended(self) -> None:
        faults, now = self._world.scenario.faults, self._world.now
        if not faults or self._world.quiet_s < CALM_S + WINDOW_S or self._world.scenario.pages_max is not None:
            return
        last = [pace for pace in self._world.paces if pace.at > now - WINDOW_S]
        possible = sum(pace.possible_s for pace in last[1:]) / self._world.seconds_a_page
        done = last[-1].pages - last[0].pages
        if done < RECOVERED_SHARE * possible:
            raise self.broken(
                f"{done:,} pages were settled in the last {WINDOW_S:g} s, of {possible:,.0f} that could be"
            )
