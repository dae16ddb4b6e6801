"""What a coordinator does: leases out, results in. Pure of clocks and sockets: `now` and chance are arguments.

Any number of dispatchers may work on one engine. What they must agree on (the crawl's state and settings, the seeds
that joined its scope, the nodes) lives in the engine and is read again at every `tick`; one of them, the leader, lets
time pass: it ends leases, watches budgets and notices the end.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import islice

import msgspec

from drumlin.config import CrawlConfig
from drumlin.coordinator.breathing import PART_WEIGHT, PART_WEIGHT_REMOTE, Breathe, Lanes, parts
from drumlin.coordinator.engine_time import agreed_s
from drumlin.coordinator.findings import Findings
from drumlin.coordinator.granting import Granting
from drumlin.coordinator.losses import Losses
from drumlin.coordinator.misdeeds import Misdeed, Misdeeds
from drumlin.coordinator.narrowing import Narrowing
from drumlin.coordinator.nodes import PRESENT, SILENT_HEARTBEATS, NodeRegistry
from drumlin.coordinator.orders import ORDERED, Orders
from drumlin.coordinator.seals import Seals
from drumlin.coordinator.settling import FOREIGN_LINKS, Batch, Settler, Taken, by_host, of_owners, read_results, refused
from drumlin.coordinator.steering import Steering
from drumlin.coordinator.totals import Totals, add_up
from drumlin.engines.base import Added, Engine
from drumlin.errors import BusyError
from drumlin.frontier import Budget, priority_of
from drumlin.model import NewURLs
from drumlin.protocol import (
    LATEST_BOOT,
    Accepted,
    ChangedSettings,
    CrawlState,
    Heartbeat,
    HeartbeatReply,
    Known,
    KnownRequest,
    NodeRecord,
    NodeStatus,
    Register,
    Results,
    Work,
    WorkRequest,
)
from drumlin.urls import host_of

SEED_BATCH = 5_000
CRASHES_MAX = 2
KILLS_MAX = 3
LEADER_S = 5.0
NAME_BITS = 48
REVIEW_EVERY_S = 2.0
KNOWN_AT_ONCE = 500
KNOWN_WEIGHT = 4
RESULT_WEIGHT = 10
"""What a question after a content, and a result or report, weigh; a link weighs 1."""
STATE_KEY = "state"
STOP_REASON_KEY = "stop_reason"
LEADER = "leader"
ENDED = frozenset({CrawlState.DRAINING, CrawlState.FINISHED})


class Proof(Enum):
    """What a node that registers has shown, beside its instance."""

    NONE = 0
    """Nothing, because nobody asks, or a person's token."""
    JOIN_TOKEN = 1
    """That it may join; not that it is the node that it names."""
    OWN_TOKEN = 2
    """That it is the node that it names."""


class SupersededError(BusyError):
    """A process registers after its own successor."""


class Dispatcher:
    """Between an engine and the nodes. Every method may be called again with the same arguments without harm."""

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
        """`shards_asked_max` bounds how many shards one request for work asks, where asking costs a round trip. `ends`
        is whether a crawl with nothing left is finished; a fleet that waits for more seeds goes on."""
        self.engine = engine
        self.steering = Steering(engine, config, name)
        self.name = name
        self.state = CrawlState.RUNNING
        self.stop_reason = ""
        self.nodes = NodeRegistry(heartbeat_s)
        self.elapsed_s = elapsed_s
        self.leads = False
        self.latest = add_up([])
        """The totals of the last tick."""
        self.ends = ends
        self._seeds = seeds
        self.lanes = Lanes()
        """Let others have their turn between the parts of long work. Embedded engines never wait, so that nobody else
        would get one; whoever runs an event loop sets this."""
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
        self._settler = Settler(engine, self.steering, chance)
        self._chance = chance
        self._margin_s = agreed_s(engine)
        self._heeded_version = 0
        self._reviewed = 0.0
        self._settled_since_tick = 0
        self.settled_at = float("-inf")
        """When results last came in here."""
        self._config_hash = config.config_hash()

    async def open(self) -> None:
        """Take up what the engine knows of this crawl."""
        await self._follow_state()
        await self._follow_orders()
        await self._follow_settings()
        await self.findings.refresh()
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
        """Give settings of the crawl other values, for all coordinators and nodes; what they were and are."""
        before, after = await self.steering.change(values, now)
        self._heed_settings()
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
        """For a node that follows the settings of this version: those in force, if they are later ones."""
        if version >= self.steering.version:
            return None
        return ChangedSettings(self.steering.version, msgspec.to_builtins(self.config), self.scope_of_seeds())

    # Seeds

    async def seed(self, urls: Iterable[str], now: float) -> int:
        """Offer seed URLs to the frontier; returns how many are new to it."""
        new = 0
        every = iter(urls)
        while batch := list(islice(every, SEED_BATCH)):
            found = [NewURLs(host, mine, priority_of(0)) for host, mine in by_host(batch).items()]
            new += sum(added.count(Added.ADDED) for added in (await self._offer(found, now)).values())
        return new

    async def enqueue(self, found: Sequence[NewURLs], now: float) -> list[Added]:
        """Offer URLs that a person or another program names; for each what became of it. They widen the scope: who
        names a URL wants what is around it."""
        outside = [url for new in found for url in new.urls if not self.findings.allows(url)]
        if outside and self.config.scope != "page":
            await self.findings.widen(outside)
        answers = {shard: iter(added) for shard, added in (await self._offer(found, now)).items()}
        return [next(answers[self.engine.shard_of(new.host)]) for new in found for _ in new.urls]

    async def add(self, found: Sequence[NewURLs], now: float) -> None:
        """Offer URLs that are known to be in scope."""
        if found:
            await self._offer(found, now)

    async def _offer(self, found: Sequence[NewURLs], now: float) -> dict[int, list[Added]]:
        """Offer URLs to the frontier; for each shard, in the order given, what became of them."""
        answers: dict[int, list[Added]] = defaultdict(list)
        for number, part in enumerate(parts(found, self._part_weight)):
            if number:
                await self.lanes.breathe()
            batches: dict[int, list[NewURLs]] = defaultdict(list)
            for new in part:
                batches[self.engine.shard_of(new.host)].append(new)
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
        """A node begins. Whatever leases its id still holds belonged to a process that is gone, as its instance and
        boot show; where they cannot show it, the leases are left to run out."""
        node = message.node_id or f"node-{self.name}-{self._chance.getrandbits(NAME_BITS):x}"
        before = await self.nodes.stored(self.engine, node)
        successor = before is not None and bool(before.instance) and before.instance == message.instance
        if before is not None:
            self._check_entry(before, message, successor, proof, now)
        record = self.nodes.register(node, message, address, before, now)
        record.status = self.orders.nodes.get(node, record.status)
        same_process = before is not None and before.boot == message.boot
        done = before is not None and before.released and same_process
        # Once per process, and only then: sent again, or arriving late, it would end leases that are at work.
        record.released = done or not message.recovering
        await self.nodes.keep(self.engine, record)
        if successor and record.released and not done:
            await self.engine.release_nodes([node], now + self._margin_s)
        return record

    def _check_entry(self, before: NodeRecord, message: Register, successor: bool, proof: Proof, now: float) -> None:
        """Whether a name is free for who registers. Its own instance, which none but its successor knows, or its own
        token opens the door at once; where nobody asks for tokens, a node without an instance is taken at its word."""
        node = before.node_id
        if successor and message.boot < before.boot:
            raise SupersededError(f"A later process of node {node} is at work.", "There is nothing to do.")
        if successor or proof is Proof.OWN_TOKEN:
            return
        there = before.status in PRESENT | ORDERED if proof is Proof.JOIN_TOKEN else self._is_at_work(before, now)
        if there and (before.instance or proof is Proof.JOIN_TOKEN):
            raise BusyError(f"Another node called {node} is at work.", "Give this one another --name.")

    def _is_at_work(self, record: NodeRecord, now: float) -> bool:
        return now - record.last_seen < SILENT_HEARTBEATS * self.nodes.heartbeat_s

    async def leave(self, node: str, now: float, *, boot: int = LATEST_BOOT) -> None:
        """A node leaves cleanly; its leases return at once. Heard late, when a later process than `boot` has
        registered, it means nothing: the leases are that one's."""
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
        return await self.nodes.all(self.engine)

    async def set_node_status(self, node: str, status: NodeStatus, now: float) -> bool:
        """Drain, quarantine or release a node; False when there is none of this id."""
        if await self.nodes.find(self.engine, node) is None:
            return False
        await self.orders.order(node, status)
        self.nodes.set_status(node, status)
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

    async def results(self, node: str | None, results: Results, now: float) -> Accepted:
        return (await self.take(node, results, now)).accepted

    async def take(self, node: str | None, results: Results, now: float) -> Taken:
        """See which results count, add what those have found, record their contents, and settle: in this order, so that
        a crash loses no link, and what does not count adds none.

        A node's results must be of its own leases, or of a node's that is gone; None stands for whoever may do all.
        """
        weight = RESULT_WEIGHT * (len(results.results) + len(results.hosts))
        weight += sum(len(result.links) for result in results.results)
        async with self.lanes.lane(weight) as breathe:
            return await self._take(node, results, now, breathe)

    async def _take(self, node: str | None, results: Results, now: float, breathe: Breathe) -> Taken:
        genuine = await self._read(results, now)
        batch = of_owners(genuine, await self._owners(node, genuine))
        if node is not None:
            self.misdeeds.note(node, Misdeed.MADE_UP, batch.made_up)
            self.misdeeds.note(node, Misdeed.FOREIGN_HOST, len(genuine.reports) - len(batch.reports))
        if results.canonical_links and not await self._are_honest(batch):
            if node is not None:
                self.misdeeds.note(node, Misdeed.FOREIGN_LINKS)
            return Taken(refused(results, FOREIGN_LINKS), frozenset())
        await breathe()
        prospects = await self._settler.foresee(batch)
        await breathe()
        found = await self.findings.of(batch, prospects, trusted=results.canonical_links, breathe=breathe)
        await self._offer(found, now)
        taken = await self._settler.settle(batch, prospects, now)
        self._settled_since_tick += taken.accepted.accepted_count
        self.settled_at = now
        return taken

    async def _read(self, results: Results, now: float) -> Batch:
        """Tell the genuine from the made up. Another coordinator may have begun to use a key that is new to this one,
        so that the keys are read again before anything is called made up."""
        batch = read_results(results, self.seals)
        if batch.made_up and await self.seals.read_again(self.engine, now):
            batch = read_results(results, self.seals)
        return batch

    async def gave_out(self, assignment_id: str, url: str, now: float) -> bool:
        """Whether some coordinator gave out this URL under this id."""
        if self.seals.assignment(assignment_id, url) is not None:
            return True
        return await self.seals.read_again(self.engine, now) and self.seals.assignment(assignment_id, url) is not None

    async def _are_honest(self, batch: Batch) -> bool:
        """Whether links are in scope as their node says. It may have heard before us that the scope is wider now."""
        if await self.findings.are_honest(batch.kept):
            return True
        version = self.steering.version
        await self._follow_settings()
        return self.steering.version != version and await self.findings.are_honest(batch.kept)

    @property
    def may_be_finished(self) -> bool:
        """As much has been settled as was pending at the last tick: the next one may find that nothing is."""
        return self.ends and self._settled_since_tick >= self.latest.pending

    async def _owners(self, node: str | None, batch: Batch) -> set[str] | None:
        """The nodes whose leases the sender may settle; None for all."""
        if node is None or self.state in ENDED:
            return None
        return {node} | await self.nodes.gone_among(self.engine, batch.nodes - {node})

    @property
    def scope_seeds(self) -> list[str]:
        """Seeds that joined the scope on the way."""
        return self.findings.scope_seeds

    def in_scope(self, url: str) -> bool:
        return self.findings.allows(url)

    def scope_of_seeds(self) -> list[str]:
        """The seeds a node needs to know the scope; none where the scope does not depend on them."""
        return [] if self.config.scope in ("any", "page") else self._seeds

    async def strike(self, url: str, now: float, *, kind: str, error: str, limit: int = CRASHES_MAX) -> bool:
        """A process died while it parsed this URL; the second time the URL is a dead letter."""
        shard = self.engine.shard_of(host_of(url))
        dead = await self.engine.strike(shard, url, now, limit=limit, kind=kind, error=error)
        if dead:
            await self.engine.count(shard, {"dead." + kind: 1})
        return dead

    # Time

    async def tick(self, now: float, elapsed_s: float) -> Totals:
        """What happens by itself as time passes. The leader lets leases expire and retries come due, and watches
        budgets and the end; all others hear of it."""
        self.elapsed_s = elapsed_s
        self.leads = await self.engine.claim(LEADER, self.name, now, until=now + LEADER_S)
        await self._follow_state()
        await self._follow_orders()
        await self._follow_settings()
        await self.findings.refresh()
        await self.seals.refresh(self.engine)
        await self.losses.follow()
        await self.nodes.flush(self.engine)
        if self.leads:
            self._granting.hand_on(await self.engine.expire_all(now), now)
        self._settled_since_tick = 0
        shards = await self.engine.stats_all(now)
        self._granting.heed(shards)
        await self._granting.follow_others(now)
        if self.state is not CrawlState.RUNNING:
            self._granting.paused(now)
        totals = self.latest = add_up(shards)
        # Reading 10,000 nodes takes the better part of a heartbeat's allowed latency, and their heartbeats are rare.
        if now - self._reviewed >= max(REVIEW_EVERY_S, self.nodes.heartbeat_s / 2):
            self._reviewed = now
            await (self.nodes.review(self.engine, now) if self.leads else self.nodes.learn_size(self.engine))
        if self.leads:
            await self._lead(totals)
        return totals

    async def _lead(self, totals: Totals) -> None:
        if self.state is not CrawlState.RUNNING:
            return
        spent = self.budget.exhausted(totals.pages, totals.bytes, self.elapsed_s)
        if spent:
            await self.stop(spent)
        elif self.ends and await self._nothing_left(totals):
            await self._enter(CrawlState.FINISHED)

    async def _nothing_left(self, totals: Totals) -> bool:
        """Whether all is done that is wanted: what is queued beyond the budget of a host is not."""
        if not totals.pending or totals.pending > totals.queued or not self.orders.budgets:
            return not totals.pending
        return totals.queued <= await self._granting.host_budgets.queued_beyond()

    async def _follow_state(self) -> None:
        saved = await self.engine.get_meta(STATE_KEY)
        if saved is not None:
            self.state = CrawlState(saved.decode())
            reason = await self.engine.get_meta(STOP_REASON_KEY)
            self.stop_reason = (reason or b"").decode()

    async def _follow_orders(self) -> None:
        """Drain, keep out or let in again the nodes that people ordered to be, here or at another coordinator."""
        before = self.orders.nodes
        await self.orders.refresh()
        for node in before.keys() | self.orders.nodes.keys():
            record, ordered = self.nodes.get(node), self.orders.nodes.get(node)
            if record is not None and record.status in PRESENT | ORDERED:
                self.nodes.set_status(node, ordered or NodeStatus.ACTIVE)

    async def _enter(self, state: CrawlState, reason: str = "") -> None:
        self.state, self.stop_reason = state, reason
        await self.engine.put_meta(STOP_REASON_KEY, reason.encode())
        await self.engine.put_meta(STATE_KEY, state.encode())

    async def stop(self, reason: str) -> None:
        """Give out nothing more; nodes finish what is in flight and leave."""
        if self.state not in ENDED:
            await self._enter(CrawlState.DRAINING, reason)

    async def pause(self) -> None:
        """Give out nothing until `resume`; nodes stay, and give back what they have not begun."""
        if self.state is CrawlState.RUNNING:
            await self._enter(CrawlState.PAUSED)

    async def resume(self) -> None:
        """Go on after a pause, a stop or the end."""
        await self._enter(CrawlState.RUNNING)

    async def totals(self, now: float) -> Totals:
        return add_up(await self.engine.stats_all(now))
