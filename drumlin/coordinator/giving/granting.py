"""Giving work out: which hosts a node gets, how many, and what is taken back for others.

A node gets about as many URLs as it can fetch during most of a lease's time, so a slow node does not sit on work that
others could do. URLs that it has not begun are taken back when other nodes have nothing to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import zip_longest

from drumlin.access.misdeeds import Misdeed, Misdeeds
from drumlin.access.seals import Seals
from drumlin.config import CrawlConfig
from drumlin.coordinator.breathing import Breathe
from drumlin.coordinator.engine_time import agreed_s
from drumlin.coordinator.giving.crowd import Crowd
from drumlin.coordinator.giving.flat import flat_view
from drumlin.coordinator.giving.host_budgets import HostBudgets
from drumlin.coordinator.giving.hunger import Hunger
from drumlin.coordinator.giving.lost_hosts import LostHosts
from drumlin.coordinator.giving.memories import Memories
from drumlin.coordinator.giving.placement import Placement
from drumlin.coordinator.giving.shares import Lacks, Shares, held_by
from drumlin.coordinator.giving.visiting import Visiting
from drumlin.coordinator.giving.work_leases import work_lease
from drumlin.coordinator.narrowing import Narrowing
from drumlin.coordinator.nodes import NodeRegistry
from drumlin.coordinator.orders import Orders
from drumlin.coordinator.steering import Steering
from drumlin.coordinator.totals import Totals, add_up
from drumlin.engines.base import Engine
from drumlin.model import Lease, Renewal, ShardStats, Visit
from drumlin.protocol import CrawlState, Heartbeat, NodeRecord, Sponsor, Work, WorkLease, WorkRequest
from drumlin.urls import is_host

TASKS_AT_ONCE = 2_500
HOSTS_AT_ONCE = 256
RENEWALS_AT_ONCE = 500
RENEWAL_WEIGHT = 10
"""The most that one request is given, and that is renewed between two breaths. Drumlin's own nodes ask for less."""
LEASE_URLS_MAX = 100
LEASE_URLS_UNDELAYED = 8
LEASE_URLS_SHARED = 4
LEASE_FILL_SHARE = 0.75
GRANT_AHEAD_S = 1.0
HOSTS_FROM_OTHERS = 8
HOSTS_DEFAULT = 32
TASKS_AT_FIRST = 200
GROWTH = 2.0
BACKLOG_REVOKED_S = 5.0
REVOKED_AT_ONCE = 8
PREFERRED_DOMAINS_ASKED = 8
BUDGET_SLACK_PAGES = 200_000
"""More than a whole fleet is given between two readings of the totals."""
BUDGET_CLAIM = "budget"
BUDGET_CLAIM_S = 10.0


class Granting:
    """The giving half of a dispatcher."""

    def __init__(
        self,
        engine: Engine,
        steering: Steering,
        nodes: NodeRegistry,
        orders: Orders,
        name: str,
        chance: random.Random,
        shards_asked_max: int | None,
        seals: Seals,
        misdeeds: Misdeeds,
        narrowing: Narrowing,
        lane: Callable[[int], AbstractAsyncContextManager[Breathe]],
    ) -> None:
        self._hunger = Hunger()
        self._shares = Shares()
        self._lacks = Lacks(engine, name)
        self._lost = LostHosts()
        self._engine = engine
        self._steering = steering
        self._narrowing = narrowing
        self._nodes = nodes
        self._crowd = Crowd(nodes, engine.shard_count, chance)
        self._orders = orders
        self.host_budgets = HostBudgets(engine, orders, name)
        self._name = name
        self._margin_s = agreed_s(engine)
        self._chance = chance
        self._asked_max = shards_asked_max or engine.shard_count
        self._placement = Placement(engine.shard_count)
        self._ready: list[bool] = [True] * engine.shard_count
        self._memories = Memories()
        self._requests = 0
        self._seals = seals
        self._misdeeds = misdeeds
        self._lane = lane
        self._visiting = Visiting(engine, seals, misdeeds)

    @property
    def _config(self) -> CrawlConfig:
        return self._steering.config

    def heed(self, shards: Sequence[ShardStats]) -> None:
        """Remember which shards have hosts to give, to ask those first, and how many hosts a node has on average."""
        self._ready = [stats.hosts_ready > 0 for stats in shards]
        leased = sum(stats.hosts_leased for stats in shards)
        self._hunger.count(leased, self._crowd.size, self._crowd.idle_wait_s_max())
        self._memories.forget_gone(self._nodes)

    def paused(self, now: float) -> None:
        self._shares.paused(now, self._nodes.heartbeat_s)

    async def follow_scope(self, now: float) -> None:
        await self._narrowing.follow(now)

    async def follow_others(self, now: float, *, leads: bool) -> None:
        """Exchange with other coordinators how many hosts are lacking, and which unknown hosts were visited."""
        await self._visiting.follow(now, leads=leads)
        if self._keeps_shares:
            self._shares.heard(await self._lacks.exchange(self._shares.lacking_here(now), now))

    @property
    def _keeps_shares(self) -> bool:
        """Whether nodes are limited to a fair share of the hosts. With a delay the number of hosts limits the speed;
        without one the nodes do. With affinity `spread` hosts change nodes all the time anyway."""
        return self._config.delay_s > 0 and self._config.affinity != "spread"

    async def fill(self, work: Work, record: NodeRecord, request: WorkRequest, latest: Totals, now: float) -> None:
        """Put renewed and new leases into `work`. Near the end of the page budget requests are answered one at a time,
        each with the exact number of URLs that are leased, so the budget holds over all coordinators."""
        room = min(request.max_tasks, self._pace(record), TASKS_AT_ONCE)
        if self._budget_is_near(latest):
            await self._fill_alone(work, record, request, room, now)
        else:
            await self._fill(work, record, request, room, now)
        for host, sponsor in zip_longest(request.visits, request.visits_for[: len(request.visits)]):
            await self._visit(work, record, request, host, sponsor, now)
        if request.flat:
            work.assignments = flat_view(work.leases, record.node_id, now)

    def _budget_is_near(self, latest: Totals) -> bool:
        pages_max = self._config.pages_max
        if pages_max is None:
            return False
        return not latest.known or latest.pages + latest.leased + BUDGET_SLACK_PAGES >= pages_max

    async def _fill_alone(self, work: Work, record: NodeRecord, request: WorkRequest, room: int, now: float) -> None:
        self._requests += 1
        holder = f"{self._name}/{self._requests}"
        if not await self._engine.claim(BUDGET_CLAIM, holder, now, until=now + BUDGET_CLAIM_S):
            await self._fill(work, record, request, 0, now)
            return
        try:
            totals = add_up(await self._engine.stats_all(now))
            room = self._steering.budget.pages_allowed(totals.pages, totals.leased, room)
            await self._fill(work, record, request, room, now)
        finally:
            await self._engine.claim(BUDGET_CLAIM, holder, now, until=now)

    async def _fill(self, work: Work, record: NodeRecord, request: WorkRequest, room: int, now: float) -> None:
        room -= await self._renew(work, record, request, room, now)
        hosts = HOSTS_DEFAULT if request.max_hosts is None else min(request.max_hosts, HOSTS_AT_ONCE)
        if hosts <= 0:
            return
        if room <= 0:
            # Whatever the page budget allows is in others' hands, or another request asks for it at this moment.
            work.retry_after_s = self._crowd.idle_wait_s()
            return
        if self._keeps_shares:
            leases = await self._lease_by_share(record, request, hosts, room, now)
        else:
            leases = await self._lease(record, request, hosts, room, now)
        leases = await self._narrowing.clear_all(leases, now)
        work.leases += [self._work_lease(lease, now) for lease in leases]
        self._note_hosts(record.node_id, leases)
        self._hunger.answered(record, request.unstarted, _size(leases), now)
        if not leases:
            work.retry_after_s = self._crowd.idle_wait_s()

    def _pace(self, record: NodeRecord) -> int:
        """How many URLs the node may have that it has not begun."""
        rate = max(record.pages_per_s, record.capacity)
        useful = GROWTH * rate * self._config.lease_s * LEASE_FILL_SHARE
        return max(TASKS_AT_FIRST, int(useful) - record.unstarted)

    def _should_share(self, record: NodeRecord, now: float) -> bool:
        """Whether other nodes have nothing to do while nodes limit the speed. (With a delay hosts do: see `Shares`.)"""
        return self._config.delay_s <= 0 and record.leases > 1 and self._hunger.felt(now, but=record.node_id)

    def _until(self, now: float) -> float:
        """When a lease runs out in the engine: never before its node stops, whichever coordinator judges."""
        return now + self._config.lease_s + self._margin_s

    # Renewing

    async def _renew(self, work: Work, record: NodeRecord, request: WorkRequest, room: int, now: float) -> int:
        """Renew the named leases that are this node's; returns how many URLs that gave it.

        While other nodes have nothing to do, every second host is taken back at once and the rest get no further URLs:
        their leases end when the node is done with the URLs it has. With a delay only as many hosts are taken back as
        other nodes lack.
        """
        if not request.renew:
            return 0
        kept, taken_back = request.renew, []
        if self._should_share(record, now):
            kept, taken_back, room = request.renew[::2], request.renew[1::2], 0
        elif self._keeps_shares:
            count = self._shares.take_back(record.node_id, held_by(record, request), len(request.renew), now)
            kept, taken_back = request.renew[count:], request.renew[:count]
        own = self._genuine(record.node_id, kept)
        each = self._urls_per_host(now)
        renewals: list[Renewal] = []
        for lease_id, host in own:
            wanted = 0 if host in self._orders.budgets else min(room, each)
            renewals.append(Renewal(self._engine.shard_of(host), host, lease_id, wanted))
            room -= wanted
        leases: list[Lease | None] = []
        async with self._lane(RENEWAL_WEIGHT * len(renewals)) as breathe:
            for start in range(0, len(renewals), RENEWALS_AT_ONCE):
                part = renewals[start : start + RENEWALS_AT_ONCE]
                times = {"until": self._until(now), "delay_default_s": self._config.delay_s}
                leases += await self._engine.extend_all(part, now, **times)
                await breathe()
        given = 0
        for (_, host), lease in zip(own, leases, strict=True):
            if lease is None:
                work.lost.append(host)
            else:
                given += len(lease.tasks)
                work.leases.append(self._work_lease(await self._narrowing.clear(lease, now), now))
        renewed = {host for _, host in own}
        work.lost += [host for _, host in kept if host not in renewed]
        work.lost += [host for _, host in taken_back]
        return given

    def _genuine(self, node: str, renew: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The named leases that are this node's, by the engine's ids, without those of blocked hosts."""
        # A lease that is named twice must be renewed only once.
        read = [(self._seals.unsealed(sealed_id, host), host) for sealed_id, host in dict.fromkeys(renew)]
        own = [(lease_id, host) for lease_id, host in read if lease_id.startswith(node + ":")]
        made_up = sum(not lease_id for lease_id, _ in read)
        self._misdeeds.note(node, Misdeed.MADE_UP, made_up)
        self._misdeeds.note(node, Misdeed.FOREIGN_HOST, len(read) - made_up - len(own))
        return [(lease_id, host) for lease_id, host in own if host not in self._orders.blocked]

    # Visits

    async def _visit(
        self, work: Work, record: NodeRecord, request: WorkRequest, host: str, sponsor: Sponsor | None, now: float
    ) -> None:
        """Give the node a lease without URLs of a host that it must contact, or else what is known about that host."""
        if not is_host(host):
            return
        shard, config = self._engine.shard_of(host), self._config
        lease = None
        if host not in self._orders.blocked and not self._narrowing.is_removed(host):
            lease_id = self._lease_request(record, request, shard, unlike_others=True) + ".0"
            until, due_by = self._until(now), now + self._ahead_s
            visit = Visit(host, record.node_id, lease_id, until, due_by, config.delay_s)
            lease = await self._visiting.lease(visit, sponsor, now)
        if lease is not None:
            work.leases.append(self._work_lease(lease, now))
        else:
            work.notes[host] = await self._engine.host_note(shard, host)

    def _lease_request(self, record: NodeRecord, request: WorkRequest, shard: int, *, unlike_others: bool) -> str:
        """The first part of a lease's id; with `unlike_others` no other call for the same request gets the same."""
        self._requests += 1
        request_id = request.request_id or f"{self._name}-{self._requests:x}"
        return f"{record.node_id}:{request_id}.{shard}" + (f"-{self._requests:x}" if unlike_others else "")

    # New leases

    async def _lease(
        self,
        record: NodeRecord,
        request: WorkRequest,
        hosts: int,
        room: int,
        now: float,
        *,
        horizon_s: float | None = None,
    ) -> list[Lease]:
        """Lease hosts of the domains that the node prefers and of its own shards; if there are none, a few of others.

        So hosts stay with a node while there is enough for all, no node is idle while hosts of another shard wait, and
        no node takes at once what two could work on.
        """
        leases = await self._lease_preferred(record, request, hosts, room, now)
        leases += await self._lease_lost(record, request, hosts - len(leases), room - _size(leases), now)
        leases += await self._lease_budgeted(record, request, hosts - len(leases), room - _size(leases), now)
        own, others = self._shards_for(record)
        more = (hosts - len(leases), room - _size(leases))
        leases += await self._lease_from(own, record, request, *more, now, horizon_s=horizon_s)
        if leases or not others:
            return leases
        few = min(hosts, HOSTS_FROM_OTHERS)
        return await self._lease_from(others, record, request, few, room, now, horizon_s=horizon_s)

    async def _lease_by_share(
        self, record: NodeRecord, request: WorkRequest, hosts: int, room: int, now: float
    ) -> list[Lease]:
        """Lease hosts up to the node's share, and beyond it only hosts that no other node wanted. If there are plenty
        of those, as in a fleet that is limited by its nodes, they are all that is asked for."""
        held = held_by(record, request)
        self._shares.count_nodes(self._crowd.workers)
        if self._shares.room(held, now) < hosts and self._shares.begin_count(now):
            await self._count_hosts(now)
        share, waited_s = self._shares.room(held, now), self._shares.unwanted_s(now)
        leases: list[Lease] = []
        if share < hosts and waited_s is not None:
            leases = await self._lease(record, request, hosts, room, now, horizon_s=-waited_s)
        at_once = min(hosts, share) - len(leases)
        if at_once > 0 and room > _size(leases):
            leases += await self._lease(record, request, at_once, room - _size(leases), now)
        if not leases and self._shares.begin_count(now):
            # There may be fewer hosts than when they were last counted, so others may have more than their share.
            await self._count_hosts(now)
        self._shares.answered(record.node_id, held, len(leases), now)
        return leases

    async def _count_hosts(self, now: float) -> None:
        """Count the hosts that can be worked on: those that are leased and those that could be leased now."""
        shards = await self._engine.stats_all(now + self._ahead_s)
        hosts = sum(stats.hosts_leased + stats.hosts_ready for stats in shards)
        self._shares.count(hosts, self._crowd.workers, self._crowd.idle_wait_s_max(), now)

    @property
    def _ahead_s(self) -> float:
        """How long before it is due a host may be leased."""
        return min(GRANT_AHEAD_S, self._config.delay_s)

    async def _lease_preferred(
        self, record: NodeRecord, request: WorkRequest, hosts: int, room: int, now: float
    ) -> list[Lease]:
        leases: list[Lease] = []
        for domain in request.preferred_domains[:PREFERRED_DOMAINS_ASKED]:
            for host in (domain, f"www.{domain}"):
                if hosts > len(leases) and room > _size(leases):
                    shard = self._engine.shard_of(host)
                    more = (hosts - len(leases), room - _size(leases))
                    leases += await self._ask(shard, record, request, *more, now, only_hosts=(host,))
        return leases

    def hand_on(self, hosts: Sequence[str], now: float) -> None:
        """Give hosts whose leases were lost to the next nodes that ask."""
        for host in hosts:
            self._lost.add(self._engine.shard_of(host), host, now)

    async def _lease_lost(
        self, record: NodeRecord, request: WorkRequest, hosts: int, room: int, now: float
    ) -> list[Lease]:
        """Lease hosts of one shard whose earlier leases were lost, if their next contact has come."""
        if hosts <= 0 or room <= 0:
            return []
        most = min(hosts, -(-room // self._urls_per_host(now)))
        shard, chosen = self._lost.take(now - self._config.delay_s, most)
        return await self._ask(shard, record, request, hosts, room, now, only_hosts=chosen) if chosen else []

    async def _lease_budgeted(
        self, record: NodeRecord, request: WorkRequest, hosts: int, room: int, now: float
    ) -> list[Lease]:
        """Lease a host that has a page budget of its own."""
        if not self._orders.budgets or hosts <= 0 or room <= 0:
            return []

        async def take(host: str, pages: int) -> list[Lease]:
            room_here = min(room, pages, LEASE_URLS_MAX)
            shard = self._engine.shard_of(host)
            return await self._ask(shard, record, request, 1, room_here, now, only_hosts=(host,), apart=True)

        return await self.host_budgets.lease(take, now)

    async def _lease_from(
        self,
        shards: list[int],
        record: NodeRecord,
        request: WorkRequest,
        hosts: int,
        room: int,
        now: float,
        *,
        horizon_s: float | None = None,
    ) -> list[Lease]:
        leases: list[Lease] = []
        for shard in shards:
            if len(leases) >= hosts or _size(leases) >= room:
                break
            more = (hosts - len(leases), room - _size(leases))
            leases += await self._ask(shard, record, request, *more, now, horizon_s=horizon_s)
        return leases

    async def _ask(
        self,
        shard: int,
        record: NodeRecord,
        request: WorkRequest,
        hosts: int,
        room: int,
        now: float,
        only_hosts: Sequence[str] = (),
        *,
        apart: bool = False,
        horizon_s: float | None = None,
    ) -> list[Lease]:
        """Lease hosts of one shard. Skips hosts that people have set apart unless `apart` is set, which is for a host
        with a page budget: it gets all the URLs it may have at once, because its lease gets no further ones."""
        config = self._config
        return await self._engine.lease(
            shard,
            record.node_id,
            self._lease_request(record, request, shard, unlike_others=bool(only_hosts) or horizon_s is not None),
            now,
            until=self._until(now),
            hosts_max=hosts,
            urls_max=room,
            urls_per_host=room if apart else self._urls_per_host(now),
            horizon_s=self._ahead_s if horizon_s is None else horizon_s,
            delay_default_s=config.delay_s,
            skip_hosts=() if apart else self._skipped(record.node_id, shard),
            only_hosts=only_hosts,
        )

    def _skipped(self, node: str, shard: int) -> Collection[str]:
        """Hosts that people have set apart and, with affinity `spread`, those that the node had lately."""
        recent = self._memories.recent(node) if self._config.affinity == "spread" else ()
        apart = self._orders.apart_in(shard)
        return apart.union(recent) if recent else apart

    def _shards_for(self, record: NodeRecord) -> tuple[list[int], list[int]]:
        """The node's own shards and the others, as many as may be asked, starting with a different one each time. If
        not all may be asked, shards that had nothing a moment ago come last."""
        node, count = record.node_id, self._engine.shard_count
        turn = self._memories.next_turn(node)
        own = self._placement.own(node, self._crowd.listed(), self._nodes.names_version)
        if self._config.affinity == "spread":
            own = []
        mine = set(own)
        start = turn % max(1, len(own))
        first = own[start:] + own[:start]
        begin = self._chance.randrange(count) if self._asked_max < count else 0
        others = [shard for n in range(count) if (shard := (begin + n) % count) not in mine]
        if self._asked_max >= count:
            return first, others
        first.sort(key=lambda shard: not self._ready[shard])
        others.sort(key=lambda shard: not self._ready[shard])
        return first[: self._asked_max], others[: self._asked_max]

    def _urls_per_host(self, now: float) -> int:
        """How many URLs of a host one lease gets: as many as can be fetched during most of its time. Without a delay
        only a few, and fewer still while some node lacks work."""
        if self._config.delay_s <= 0:
            return LEASE_URLS_SHARED if self._hunger.felt(now) else LEASE_URLS_UNDELAYED
        return max(1, min(LEASE_URLS_MAX, int(self._config.lease_s * LEASE_FILL_SHARE / self._config.delay_s)))

    def _note_hosts(self, node: str, leases: list[Lease]) -> None:
        if self._config.affinity == "spread":
            self._memories.note(node, (lease.host for lease in leases))

    def _work_lease(self, lease: Lease, now: float) -> WorkLease:
        return work_lease(lease, self._steering, self._seals, self._margin_s, now)

    # Taking back

    def revoked(self, record: NodeRecord, beat: Heartbeat, state: CrawlState, now: float) -> list[str]:
        """Leases whose unstarted URLs the node should give back: others lack work, and it would need long for them."""
        if state is not CrawlState.RUNNING:
            return []
        if self._keeps_shares:
            return beat.leases[: self._shares.take_back(record.node_id, beat.hosts, len(beat.leases), now)]
        if not self._hunger.felt(now, but=record.node_id):
            return []
        if beat.unstarted <= record.pages_per_s * BACKLOG_REVOKED_S or len(beat.leases) < 2:
            return []
        return beat.leases[: min(REVOKED_AT_ONCE, len(beat.leases) // 2)]


def _size(leases: list[Lease]) -> int:
    return sum(len(lease.tasks) for lease in leases)
