"""Checkers of how the fleet fares as a whole. Most of them hold only while no fault is at work, and a while after."""

from __future__ import annotations

from drumlin.coordinator.taking.backlog import SETTLING_WAITING_MAX
from drumlin.engines.memory.shard import Host, Shard
from drumlin.frontier.pauses import SLOWED_MAX_S
from drumlin.model import Lease
from drumlin.node.settling import READ_BATCH, SETTLE_BATCH_MAX, UNSETTLED_BYTES_MAX, UNSETTLED_PAGES_MAX
from drumlin.sim.checking.base import Checker, World
from drumlin.sim.checking.ledger import Held, Ledger
from drumlin.sim.figures import BODY_BYTES

CALM_S = 90.0
"""So long after the last fault nodes have noticed that all is well again."""
OVERDUE_S = 45.0
RETRIES_WITHIN_S = 15.0
PUT_OFF_S = 10.0
GIVEN_AFTER_S = 15.0
PASSED_OVER_MAX, PASSED_OVER_PER_NODE = 60, 1.5
"""A large fleet is given more leases in the seconds in which coordinators look at such hosts."""
FORGOTTEN_AFTER_S = 300.0
BUDGET_NEAR = 0.6
"""Beyond this share of its budget a crawl may become slow: what is leased counts too."""
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
    """A URL that is to be tried again is queued when its time has come, and no host waits without a reason: for longer
    than its delay, though it answers."""

    name = "nothing_waits_too_long"

    def looked(self) -> None:
        leads = any(one.dispatcher is not None and one.dispatcher.leads for one in self._world.coordinators)
        for shard in self._world.memory._shards:
            if leads and self._world.quiet_s > RETRIES_WITHIN_S:
                self._check_retries(shard)
            if self._world.quiet_s > CALM_S:
                self._check_hosts(shard)

    def _check_retries(self, shard: Shard) -> None:
        for retry_at, _, url in shard.scheduled[:1]:
            late_s = self._ledger.engine_now - retry_at
            if late_s > RETRIES_WITHIN_S:
                raise self.broken(f"{url} was to be tried again {late_s:.0f} s ago")

    def _check_hosts(self, shard: Shard) -> None:
        now, delay_s = self._ledger.engine_now, self._world.scenario.delay_s
        for until, name in reversed(shard.ready):
            if until <= now + PUT_OFF_S:
                break
            host = shard.hosts[name]
            reason_s = max(host.lost_delay_s(delay_s), SLOWED_MAX_S)
            if not host.in_backoff and until > now + reason_s + PUT_OFF_S:
                raise self.broken(f"{name} is not in back-off and waits for another {until - now:,.0f} s")


class BudgetedHostsAreGiven(Checker):
    """Hosts with a budget are given out too. They are kept apart from the others and so could be forgotten."""

    name = "budgeted_hosts_are_given"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._passed_over = dict.fromkeys(world.budgets, 0)
        self._most = max(PASSED_OVER_MAX, PASSED_OVER_PER_NODE * world.scenario.nodes)

    def granted(self, lease: Lease, before: Held | None) -> None:
        if self._world.quiet_s < GIVEN_AFTER_S:
            return
        memory = self._world.memory
        for name, passed in self._passed_over.items():
            host = memory._shards[memory.shard_of(name)].hosts.get(name)
            waits = host is not None and host.queue and host.grant is None and self._is_due(host)
            self._passed_over[name] = passed + 1 if waits else 0
            if passed > self._most:
                raise self.broken(f"{name} has pages left, and {passed} other leases were given while it was ready")

    def _is_due(self, host: Host) -> bool:
        return host.pages < self._world.budgets[host.name] and host.next_contact <= self._ledger.engine_now


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
    """Nothing that waits grows without a bound: pages and bytes in a node, its journals, what it remembers of leases,
    batches at a coordinator."""

    name = "queues_are_bounded"

    def looked(self) -> None:
        for coordinator in self._world.coordinators:
            if coordinator.backlog > SETTLING_WAITING_MAX:
                raise self.broken(f"{coordinator.backlog:,} batches wait at coordinator {coordinator.place}")
        for node in self._world.nodes:
            if node.agent is None or node.leaving:
                continue
            if node.forgotten_leases(FORGOTTEN_AFTER_S):
                raise self.broken(f"{node.name} remembers leases that ended more than {FORGOTTEN_AFTER_S:g} s ago")
            pages, size = node.unsettled
            concurrency = node.kind.concurrency
            most_pages = HELD_PAGES_MAX + concurrency
            most_bytes = UNSETTLED_BYTES_MAX + (concurrency + READ_BATCH) * 2 * max(BODY_BYTES)
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
        scenario, now = self._world.scenario, self._world.now
        if not scenario.faults or self._world.quiet_s < CALM_S + WINDOW_S:
            return
        if scenario.pages_max is not None and self._ledger.pages > BUDGET_NEAR * scenario.pages_max:
            return
        last = [pace for pace in self._world.paces if pace.at > now - WINDOW_S]
        possible = sum(pace.possible_s for pace in last[1:]) / self._world.seconds_a_page
        done = last[-1].pages - last[0].pages
        if done < RECOVERED_SHARE * possible:
            raise self.broken(
                f"{done:,} pages were settled in the last {WINDOW_S:g} s, of {possible:,.0f} that could be"
            )
