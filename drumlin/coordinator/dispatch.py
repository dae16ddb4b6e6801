"""What a coordinator does: leases out, results in. Without clocks and sockets: `now` and chance are arguments.

Any number of dispatchers may work on one engine. What they must agree on (the crawl's state and settings, the seeds
that joined its scope, the nodes) is in the engine and is read again at every `tick`. One of them is the leader: it ends
leases whose time is over, watches budgets and notices when the crawl is finished.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice

import msgspec

from drumlin.access.misdeeds import Misdeed, Misdeeds
from drumlin.access.seals import Seals
from drumlin.config import CrawlConfig
from drumlin.coordinator.breathing import PART_WEIGHT, PART_WEIGHT_REMOTE, Breathe, Lanes, parts
from drumlin.coordinator.engine_time import agreed_s
from drumlin.coordinator.giving.granting import Granting
from drumlin.coordinator.losses import Losses
from drumlin.coordinator.narrowing import Narrowing
from drumlin.coordinator.nodes import NodeRegistry, Proof
from drumlin.coordinator.orders import Orders
from drumlin.coordinator.steering import Steering
from drumlin.coordinator.taking.findings import Findings, LinksApart, links_apart
from drumlin.coordinator.taking.owed import Owed
from drumlin.coordinator.taking.settling import ResultBatch, Settler, Taken, of_owners, read_results, refused
from drumlin.coordinator.taking.strikes import strike_late
from drumlin.coordinator.totals import Totals, add_up
from drumlin.engines.base import Added, Engine
from drumlin.frontier import Budget, priority_of
from drumlin.logs import Event, event
from drumlin.logs.events import Happenings
from drumlin.model import NewURLs
from drumlin.protocol import (
    LATEST_BOOT,
    ChangedSettings,
    Heartbeat,
    HeartbeatReply,
    Known,
    KnownRequest,
    NodeRecord,
    Register,
    Rejection,
    Results,
    Work,
    WorkRequest,
)
from drumlin.protocol.states import CRAWL_MOVES, ENDED, GONE, CrawlEvent, CrawlState, NodeEvent, NodeStatus
from drumlin.urls import by_host

SEED_BATCH = 5_000
LEADER_S = 5.0
NAME_BITS = 48
REVIEW_EVERY_S = 2.0
KNOWN_AT_ONCE = 500
KNOWN_WEIGHT = 4
RESULT_WEIGHT = 10
"""How much one question about a content, and one result or report, weigh (see `breathing`); a link weighs 1."""
STATE_KEY = "state"
STOP_REASON_KEY = "stop_reason"
LEADER = "leader"
CRAWL_ID_KEY = "id"
CRAWL_ID_BYTES = 4

log = logging.getLogger("drumlin.coordinator")


class Dispatcher:
    """Stands between an engine and the nodes. Every method may be called again with the same arguments without harm."""

    may_end: Callable[[], Awaitable[bool]] | None = None  # asked when nothing is left to fetch

    def __init__(
        self,
        engine: Engine,
        config: CrawlConfig,
        seeds: list[str],
        *,
        chance: random.Random,
        elapsed_s: float = 0.0,
        name: str = "coordinator",
        heartbeat_s: float | None = None,
        shards_asked_max: int | None = None,
        ends: bool = True,
    ) -> None:
        """`shards_asked_max` bounds how many shards are asked for one request for work; it is set where asking costs a
        round trip. `ends` says whether the crawl is finished when nothing is left; a fleet may wait for more seeds."""
        self.engine = engine
        self.steering = Steering(engine, config, name)
        self.name = name
        self.crawl_id = ""
        """Tells crawls apart in logs."""
        self.state, self.stop_reason = CrawlState.RUNNING, ""
        self.happened = Happenings()
        self.nodes = NodeRegistry(heartbeat_s, self.happened)
        self.elapsed_s, self.leads = elapsed_s, False
        self.latest = add_up([])
        """The totals of the last tick."""
        self.ends = ends
        self.lanes = Lanes()
        """Let other requests have their turn between the parts of long work. Calls to an embedded engine never wait, so
        without this a long request would block all others. Whoever runs an event loop sets it."""
        self._part_weight = PART_WEIGHT if shards_asked_max is None else PART_WEIGHT_REMOTE
        self.seals = Seals()
        self.misdeeds = Misdeeds()
        self.findings = Findings(engine, config, seeds, chance)
        self.orders = Orders(engine)
        self.losses = Losses(engine)
        self._granting = Granting(
            engine,
            self.steering,
            self.nodes,
            self.orders,
            name,
            chance,
            shards_asked_max,
            self.seals,
            self.misdeeds,
            Narrowing(engine, self.steering, self.findings),
            lambda weight: self.lanes.lane(weight),
        )
        self._settler, self._owed = Settler(engine, self.steering, chance), Owed(engine, self.nodes)
        self._chance, self._margin_s = chance, agreed_s(engine)
        self._moving = asyncio.Lock()
        """Held while the state is read or changed, or else what was read before a change could undo it."""
        self._heeded_version, self._settled_since_tick, self._reviewed = 0, 0, 0.0
        self.settled_at = float("-inf")
        """When this coordinator last took results."""
        self._config_hash = config.config_hash()

    def __repr__(self) -> str:
        role = "leads" if self.leads else "follows"
        crawl = f"crawl {self.crawl_id} {self.state}, {self.latest.pages} pages, {self.latest.pending} pending"
        return f"<Dispatcher {self.name} {role}: {crawl}, {len(self.nodes)} nodes>"

    async def open(self) -> None:
        """Read what the engine knows about this crawl."""
        candidate = self._chance.randbytes(CRAWL_ID_BYTES).hex().encode()
        self.crawl_id = (await self.engine.put_meta_if_absent(CRAWL_ID_KEY, candidate)).decode()
        await self._follow_state()
        await self._follow_orders()
        await self._follow_settings()
        await self.findings.open()
        await self.seals.refresh(self.engine)
        await self.losses.follow()

    # Settings

    @property
    def config(self) -> CrawlConfig:
        return self.steering.config

    @property
    def budget(self) -> Budget:
        return self.steering.budget

    async def change_settings(self, values: Mapping[str, object], now: float) -> tuple[CrawlConfig, CrawlConfig]:
        """Change settings of the crawl for all coordinators and nodes; returns the settings before and after."""
        before, after = await self.steering.change(values, now)
        self._heed_settings()
        if after != before:
            self.happened.note(Event.SETTINGS_CHANGED)
        return before, after

    async def _follow_settings(self) -> None:
        await self.steering.follow()
        self._heed_settings()

    def _heed_settings(self) -> None:
        if self.steering.version != self._heeded_version:
            self._heeded_version = self.steering.version
            self._config_hash = self.config.config_hash()
            self.findings.follow(self.config)

    def settings_after(self, version: int) -> ChangedSettings | None:
        """The settings in force, for a node that follows this version; None if it follows the latest already."""
        if version >= self.steering.version:
            return None
        return ChangedSettings(self.steering.version, msgspec.to_builtins(self.config), self.scope_of_seeds())

    # Seeds

    async def seed(self, urls: Iterable[str], now: float) -> int:
        """Offer seed URLs to the frontier; returns how many are new to it."""
        new = 0
        every = iter(urls)
        while batch := list(islice(every, SEED_BATCH)):
            offered = [NewURLs(host, mine, priority_of(0)) for host, mine in by_host(batch).items()]
            new += sum(added.count(Added.ADDED) for added in (await self._offer(offered, now)).values())
        return new

    async def enqueue(self, offered: Sequence[NewURLs], now: float) -> list[Added]:
        """Offer URLs that a person or another program names; returns for each what became of it, unless it was removed
        on request. They widen the scope: whoever names a URL wants the pages around it too."""
        offered = self.findings.allowed(offered)
        outside = [url for new in offered for url in new.urls if not self.findings.allows(url)]
        if outside and self.config.scope != "page":
            await self.findings.widen(outside)
        answers = {shard: iter(added) for shard, added in (await self._offer(offered, now)).items()}
        return [next(answers[self.engine.shard_of(new.host)]) for new in offered for _ in new.urls]

    async def add(self, offered: Sequence[NewURLs], now: float) -> None:
        """Offer URLs that are known to be in scope."""
        if offered:
            await self._offer(offered, now)

    async def _offer(self, offered: Sequence[NewURLs], now: float) -> dict[int, list[Added]]:
        """Offer URLs to the frontier; returns by shard, in the order given, what became of them."""
        answers: dict[int, list[Added]] = defaultdict(list)
        for number, part in enumerate(parts(self.findings.allowed(offered), self._part_weight)):
            if number:
                await self.lanes.breathe()
            batches: dict[int, list[NewURLs]] = defaultdict(list)
            shard_of = self.engine.shard_of
            for new in part:
                batches[shard_of(new.host)].append(new)
            for shard, added in (
                await self.engine.add_all(batches, now, host_urls_max=self.config.host_urls_max)
            ).items():
                answers[shard] += added
        if self.config.host_urls_max is not None:
            for shard, added in answers.items():
                if capped := added.count(Added.CAPPED):
                    await self.engine.count(shard, {"refused.host_urls_max": capped})
        return answers

    # Nodes

    async def register(
        self, message: Register, now: float, *, address: str = "", proof: Proof = Proof.NONE
    ) -> NodeRecord:
        """A node begins. If instance and boot prove that the earlier process of this id is gone, the leases that it
        still holds end at once; otherwise they are left to run out."""
        node = message.node_id or f"node-{self.name}-{self._chance.getrandbits(NAME_BITS):x}"
        before = await self.nodes.stored(self.engine, node)
        successor = before is not None and bool(before.instance) and before.instance == message.instance
        if before is not None:
            self.nodes.check_entry(before, message, successor, proof, now)
        record = self.nodes.register(node, message, address, before, now)
        record.status = self.orders.nodes.get(node, record.status)
        same_process = before is not None and before.boot == message.boot
        done = before is not None and before.released and same_process
        # Leases are released once per process: a registration that arrives late must not end leases that are at work.
        record.released = done or not message.recovering
        await self.nodes.keep(self.engine, record)
        if successor and record.released and not done:
            await self.engine.release_nodes([node], now + self._margin_s)
        if not message.recovering:
            self.nodes.joined(node, address, again=done)
        return record

    async def leave(self, node: str, now: float, *, boot: int = LATEST_BOOT) -> None:
        """A node leaves cleanly; its leases return at once. If a later process than `boot` has registered meanwhile,
        this does nothing: the leases belong to that one."""
        before = await self.nodes.stored(self.engine, node)
        if before is not None and boot < before.boot:
            return
        await self.engine.release_nodes([node], now + self._margin_s)
        await self.nodes.leave(self.engine, node, now)

    async def has_registered(self, node: str) -> bool:
        return await self.nodes.has_registered(self.engine, node)

    async def node(self, node: str) -> NodeRecord | None:
        return await self.nodes.find(self.engine, node)

    async def node_records(self) -> list[NodeRecord]:
        return await self.nodes.all(self.engine, self.lanes.breathe)

    async def change_node(self, node: str, event: NodeEvent) -> bool:
        """Drain, quarantine or release a node; False when no node has this id."""
        if (record := await self.nodes.find(self.engine, node)) is None:
            return False
        self.nodes.note_order(record, event)
        await self.orders.order(node, event)
        self.nodes.change(node, event)
        await self.nodes.flush(self.engine)
        return True

    async def heartbeat(self, node: str, beat: Heartbeat, now: float) -> HeartbeatReply:
        record = await self.nodes.beat(self.engine, node, beat, now)
        revoke = self._granting.revoked(record, beat, self.state, now)
        state = CrawlState.DRAINING if record.status is NodeStatus.DRAINING else self.state
        changed = None if beat.config_version is None else self.settings_after(beat.config_version)
        return HeartbeatReply("ok", self.nodes.heartbeat_s, self._config_hash, revoke, state, settings=changed)

    # Work and results

    async def work(self, node: str, request: WorkRequest, now: float) -> Work:
        """Renew the leases that the node names and give it further hosts, from its own shards first."""
        record = await self.nodes.seen(self.engine, node, now)
        state = CrawlState.DRAINING if record.status is NodeStatus.DRAINING else self.state
        work = Work([], [], 0.0, state)
        work.scope_version = len(self.scope_seeds)
        work.lost_at = self.losses.last
        if request.scope_version != work.scope_version:
            work.scope_seeds = self.scope_seeds
        if state is CrawlState.RUNNING and record.status is NodeStatus.ACTIVE:
            await self._granting.fill(work, record, request, self.latest, now)
        else:
            work.lost = [host for _, host in request.renew]
        return work

    async def known(self, request: KnownRequest) -> Known:
        known = Known([])
        async with self.lanes.lane(KNOWN_WEIGHT * len(request.contents)) as breathe:
            for start in range(0, len(request.contents), KNOWN_AT_ONCE):
                part = request.contents[start : start + KNOWN_AT_ONCE]
                known.duplicates += await self.engine.contents.known([(name, bytes.fromhex(one)) for name, one in part])
                await breathe()
        return known

    async def take(self, node: str | None, results: Results, now: float) -> Taken:
        """Find out which results will count, add the links of those, record their contents, and settle them. In this
        order a crash loses no link (an unsettled page is sent again), and results that do not count add none. A node
        may settle its own leases and those of nodes that are gone; a `node` of None may settle every lease."""
        weight = RESULT_WEIGHT * (len(results.results) + len(results.hosts))
        weight += sum(len(result.links) for result in results.results)
        async with self.lanes.lane(weight) as breathe:
            try:
                return await self._take(node, results, now, breathe)
            except ValueError:
                if node is None:
                    raise
                said = event(Event.REFUSED, node=node)
                log.warning("cannot make sense of results of node %s", node, exc_info=True, extra=said)
                return self._refuse(node, results, Misdeed.MALFORMED, Rejection.MALFORMED)

    async def _take(self, node: str | None, results: Results, now: float, breathe: Breathe) -> Taken:
        genuine = await self._read(results, now)
        batch = of_owners(genuine, await self._owners(node, genuine))
        if node is not None:
            self.misdeeds.note(node, Misdeed.MADE_UP, batch.made_up)
            self.misdeeds.note(node, Misdeed.FOREIGN_HOST, len(genuine.reports) - len(batch.reports))
        apart = await links_apart(batch.kept, breathe) if results.canonical_links else None
        if apart is not None and not await self._are_honest(batch, apart):
            return self._refuse(node, results, Misdeed.FOREIGN_LINKS, Rejection.FOREIGN_LINKS)
        await breathe()
        prospects = await self._settler.foresee(batch, every=bool(results.segment))
        if results.segment:
            await self._owed.note(results.segment, prospects.that_count(batch.kept), now, node)
        await breathe()
        offered = await self.findings.of(batch, prospects, apart, breathe)
        await self._offer(offered, now)
        taken = await self._settler.settle(batch, prospects, now)
        await strike_late(self.engine, batch, taken, now)
        self._settled_since_tick += taken.accepted.accepted_count
        self.settled_at = now
        return taken

    def _refuse(self, node: str | None, results: Results, misdeed: Misdeed, reason: Rejection) -> Taken:
        if node is not None:
            self.misdeeds.note(node, misdeed)
        return Taken(refused(results, reason), frozenset())

    async def _read(self, results: Results, now: float) -> ResultBatch:
        """Separate genuine results from made-up ones. Another coordinator may have begun to use a key that is new to
        this one, so the keys are read again before anything is called made up."""
        batch = read_results(results, self.seals)
        if batch.made_up and await self.seals.read_again(self.engine, now):
            batch = read_results(results, self.seals)
        return batch

    async def _are_honest(self, batch: ResultBatch, apart: list[LinksApart]) -> bool:
        """Whether links are in scope, as claimed. The node may have heard of a wider scope before this coordinator."""
        if await self.findings.are_honest(batch.kept, apart):
            return True
        version = self.steering.version
        await self._follow_settings()
        return self.steering.version != version and await self.findings.are_honest(batch.kept, apart)

    @property
    def may_be_finished(self) -> bool:
        """Whether as many URLs were settled as were pending at the last tick: perhaps nothing is left now."""
        return self.ends and self._settled_since_tick >= self.latest.pending

    async def _owners(self, node: str | None, batch: ResultBatch) -> set[str] | None:
        """The nodes whose leases the sender may settle; None for all."""
        if node is None or self.state in ENDED:
            return None
        return {node} | await self.nodes.gone_among(self.engine, batch.nodes - {node})

    @property
    def scope_seeds(self) -> list[str]:
        """Seeds that joined the scope during the crawl."""
        return self.findings.scope_seeds

    def in_scope(self, url: str) -> bool:
        return self.findings.allows(url)

    def scope_of_seeds(self) -> list[str]:
        """The seeds from which a node can work out the scope; none if the scope does not depend on them."""
        return [] if self.config.scope in ("any", "page") else self.findings.seeds

    # Time

    async def tick(self, now: float, elapsed_s: float) -> Totals:
        """What happens by itself as time passes. The leader ends leases that ran out, makes retries due, and watches
        for spent budgets and for the end; the other coordinators read the outcome from the engine."""
        self.elapsed_s = elapsed_s
        self._follow_lead(await self.engine.claim(LEADER, self.name, now, until=now + LEADER_S))
        await self._follow_state()
        await self._follow_orders()
        await self._follow_settings()
        await self.findings.refresh()
        await self._granting.follow_scope(now)
        await self.seals.refresh(self.engine)
        await self.losses.follow()
        await self.nodes.flush(self.engine)
        if self.leads:
            self._granting.hand_on(await self.engine.expire_all(now), now)
        self._settled_since_tick = 0
        shards = await self.engine.stats_all(now)
        self._granting.heed(shards)
        await self._granting.follow_others(now, leads=self.leads)
        if self.state is not CrawlState.RUNNING:
            self._granting.paused(now)
        totals = self.latest = add_up(shards)
        # Reading the records of 10,000 nodes takes long, and in so large a fleet heartbeats are rare: so do it seldom.
        if now - self._reviewed >= max(REVIEW_EVERY_S, self.nodes.heartbeat_s):
            self._reviewed = now
            await self.nodes.follow(self.engine, now, self.lanes.breathe, leads=self.leads)
        if self.leads:
            await self._lead(totals)
        return totals

    async def _lead(self, totals: Totals) -> None:
        if self.state is not CrawlState.RUNNING:
            return
        spent = self.budget.exhausted(totals.pages, totals.bytes, self.elapsed_s)
        if spent:
            await self.stop(spent)
        elif self.ends and await self._nothing_left(totals) and (self.may_end is None or await self.may_end()):
            await self._move(CrawlEvent.DONE)

    async def _nothing_left(self, totals: Totals) -> bool:
        """Whether nothing is left to do. URLs that are queued beyond their host's budget do not count."""
        if not totals.pending or totals.pending > totals.queued or not self.orders.budgets:
            return not totals.pending
        return totals.queued <= await self._granting.host_budgets.queued_beyond()

    def _follow_lead(self, leads: bool) -> None:
        if leads != self.leads:
            self.leads = leads
            sentence, kind = ("leads the coordinators now", Event.LEADS) if leads else ("leads no more", Event.FOLLOWS)
            log.info("this coordinator %s", sentence, extra=event(kind))

    async def _follow_state(self) -> None:
        async with self._moving:
            saved = await self.engine.get_meta(STATE_KEY)
            if saved is not None:
                reason = await self.engine.get_meta(STOP_REASON_KEY)
                self._enter(CrawlState(saved.decode()), (reason or b"").decode())

    def _enter(self, state: CrawlState, reason: str) -> None:
        if state is not self.state:
            said = event(Event.CRAWL_STATE, state=state, reason=reason)
            log.info("the crawl is %s%s", state, f" ({reason})" if reason else "", extra=said)
        self.state, self.stop_reason = state, reason

    async def _follow_orders(self) -> None:
        """Apply what people ordered through any coordinator: drain nodes, keep them out, or let them in again."""
        before = self.orders.nodes
        await self.orders.refresh()
        for node in before.keys() | self.orders.nodes.keys():
            record = self.nodes.get(node)
            if record is not None and record.status not in GONE:
                self.nodes.change(node, self.orders.event_of(node))

    async def _move(self, event: CrawlEvent, reason: str = "") -> None:
        """Enter the state that follows, if one does, and let the other coordinators know."""
        async with self._moving:
            if (state := CRAWL_MOVES[event].get(self.state)) is None:
                return
            if state is not self.state:
                self.happened.note(Event.CRAWL_STATE, state)
            self._enter(state, reason)
            await self.engine.put_meta(STOP_REASON_KEY, reason.encode())
            await self.engine.put_meta(STATE_KEY, state.encode())

    async def stop(self, reason: str) -> None:
        """Give out nothing more; nodes finish what is in flight and leave."""
        await self._move(CrawlEvent.STOP, reason)

    async def pause(self) -> None:
        """Give out nothing until `resume`; nodes stay, and give back what they have not begun."""
        await self._move(CrawlEvent.PAUSE)

    async def resume(self) -> None:
        """Go on after a pause, a stop or the end."""
        await self._move(CrawlEvent.RESUME)

    async def totals(self, now: float) -> Totals:
        return add_up(await self.engine.stats_all(now))
