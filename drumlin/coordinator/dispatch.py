"""What a coordinator does: leases out, results in. Pure of clocks and sockets: `now` and chance are arguments."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from drumlin.config import CrawlConfig
from drumlin.coordinator.totals import Totals, add_up
from drumlin.engines.base import Added, Engine
from drumlin.frontier import Budget, next_step, priority_of
from drumlin.model import (
    Content,
    Duplicate,
    Lease,
    NewURL,
    Outcome,
    Settled,
    Settlement,
    TaskState,
    Verdict,
)
from drumlin.protocol import (
    Accepted,
    CrawlState,
    Heartbeat,
    HeartbeatReply,
    HostReport,
    Known,
    KnownRequest,
    Result,
    Results,
    Work,
    WorkLease,
    WorkRequest,
)
from drumlin.urls import Scope, host_of

LEASE_URLS_MAX = 100
LEASE_URLS_UNDELAYED = 8
LEASE_FILL_SHARE = 0.75
GRANT_AHEAD_S = 1.0
HOSTS_FROM_OTHERS = 8
SEED_BATCH = 5_000
HEARTBEAT_S = 0.5
CRASHES_MAX = 2
KILLS_MAX = 3
SCOPE_SEEDS_KEY = "scope_seeds"


class NodeRecord(msgspec.Struct):
    """What the coordinator remembers of a node between two heartbeats."""

    node_id: str
    last_seen: float
    in_flight: int = 0
    hosts: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    turn: int = 0


class Dispatcher:
    """Between an engine and the nodes. Every method may be called again with the same arguments without harm."""

    def __init__(
        self, engine: Engine, config: CrawlConfig, seeds: list[str], *, chance: random.Random, elapsed_s: float = 0.0
    ) -> None:
        self.engine = engine
        self.config = config
        self.state = CrawlState.RUNNING
        self.stop_reason = ""
        self.nodes: dict[str, NodeRecord] = {}
        self.budget = Budget(config.pages_max, config.bytes_max, config.time_max_s)
        self.elapsed_s = elapsed_s
        self.hungry: set[str] = set()
        """Nodes whose request for hosts waits because none was free."""
        self._chance = chance
        self._seeds = seeds
        saved = engine.get_meta(SCOPE_SEEDS_KEY)
        self.scope_seeds: list[str] = msgspec.msgpack.decode(saved, type=list[str]) if saved else []
        self._scope = self._make_scope()

    # Seeds

    def seed(self, urls: Iterable[str], now: float) -> int:
        """Offer seed URLs to the frontier; returns how many are new to it."""
        new = 0
        batch: list[NewURL] = []
        for url in urls:
            batch.append(NewURL(url, host_of(url), priority_of(0), 0))
            if len(batch) >= SEED_BATCH:
                new += self._add(batch, now)
                batch = []
        return new + self._add(batch, now)

    def _add(self, urls: list[NewURL], now: float) -> int:
        shards: dict[int, list[NewURL]] = defaultdict(list)
        for new in urls:
            shards[self.engine.shard_of(new.host)].append(new)
        added = 0
        for shard, members in shards.items():
            answers = self.engine.add(shard, members, now, host_urls_max=self.config.host_urls_max)
            added += answers.count(Added.ADDED)
            capped = answers.count(Added.CAPPED)
            if capped:
                self.engine.count(shard, {"refused.host_urls_max": capped})
        return added

    # Work

    def register(self, node: str, now: float) -> None:
        """A node starts afresh: whatever leases its name still holds belonged to a process that is gone."""
        for shard in range(self.engine.shard_count):
            self.engine.release_node(shard, node, now)
        self.nodes[node] = NodeRecord(node, now)

    def leave(self, node: str, now: float) -> None:
        for shard in range(self.engine.shard_count):
            self.engine.release_node(shard, node, now)
        self.nodes.pop(node, None)

    def work(self, node: str, request: WorkRequest, now: float) -> Work:
        """Renew the leases that the node names and give it further hosts, from its own shards first."""
        record = self._seen(node, now)
        work = Work(self.state, [], [], 0.0, self.scope_seeds[request.scope_version :], len(self.scope_seeds))
        if self.state is not CrawlState.RUNNING:
            return work
        room = self._room(request.max_tasks)
        # A lease renewed without further URLs ends when the node is done with those it has, and others get the host.
        room_to_renew = 0 if self._should_share(node) else room
        for token, host in request.renew:
            given = self._renew(host, token, now, room_to_renew, work)
            room, room_to_renew = room - given, room_to_renew - given
        if request.max_hosts > 0 and room > 0:
            for lease in self._lease(record, request, now, room):
                work.leases.append(_work_lease(lease, now, self.config.lease_s))
        return work

    def _should_share(self, node: str) -> bool:
        """Others have nothing to do, and nodes are the bound: with a delay hosts are, and they best stay put."""
        return self.config.delay_s <= 0 and bool(self.hungry - {node})

    def _room(self, wanted: int) -> int:
        if self.budget.pages_max is None:
            return wanted
        totals = self.totals(0.0)
        return self.budget.pages_allowed(totals.pages, totals.leased, wanted)

    def _renew(self, host: str, token: str, now: float, room: int, work: Work) -> int:
        shard = self.engine.shard_of(host)
        wanted = min(room, self._urls_per_host())
        lease = self.engine.extend(shard, host, token, now, until=now + self.config.lease_s, urls_max=wanted)
        if lease is None:
            work.lost.append(host)
            return 0
        renewed = _work_lease(lease, now, self.config.lease_s)
        work.leases.append(renewed)
        return len(renewed.tasks)

    def _lease(self, record: NodeRecord, request: WorkRequest, now: float, room: int) -> list[Lease]:
        """Hosts of the node's own shards; only a node that finds none there gets a few of another's.

        So hosts stay with a node while there is enough for all, no node idles while another's hosts wait, and none
        takes at once what two could work on.
        """
        own, others = self._shards_for(record)
        leases = self._lease_from(own, record, request, now, request.max_hosts, room)
        if leases or not others:
            return leases
        return self._lease_from(others, record, request, now, min(request.max_hosts, HOSTS_FROM_OTHERS), room)

    def _lease_from(
        self, shards: list[int], record: NodeRecord, request: WorkRequest, now: float, hosts: int, room: int
    ) -> list[Lease]:
        leases: list[Lease] = []
        for shard in shards:
            found = self.engine.lease(
                shard,
                record.node_id,
                f"{request.request_id}.{shard}",
                now,
                until=now + self.config.lease_s,
                hosts_max=hosts,
                urls_max=room,
                urls_per_host=self._urls_per_host(),
                horizon_s=min(GRANT_AHEAD_S, self.config.delay_s),
                delay_default_s=self.config.delay_s,
            )
            leases += found
            hosts -= len(found)
            room -= sum(len(lease.tasks) for lease in found)
            if hosts <= 0 or room <= 0:
                break
        return leases

    def _shards_for(self, record: NodeRecord) -> tuple[list[int], list[int]]:
        """The node's own shards, beginning with another each time, and the others'."""
        names = sorted(self.nodes)
        count, mine = len(names), names.index(record.node_id)
        own = [shard for shard in range(self.engine.shard_count) if shard % count == mine]
        others = [shard for shard in range(self.engine.shard_count) if shard % count != mine]
        record.turn += 1
        start = record.turn % max(1, len(own))
        return own[start:] + own[:start], others

    def _urls_per_host(self) -> int:
        """As many URLs as a host can be asked for in most of a lease's time."""
        if self.config.delay_s <= 0:
            return LEASE_URLS_UNDELAYED
        return max(1, min(LEASE_URLS_MAX, int(self.config.lease_s * LEASE_FILL_SHARE / self.config.delay_s)))

    # Results

    def known(self, request: KnownRequest) -> Known:
        return Known(self.engine.contents.known(request.contents))

    def results(self, results: Results, now: float) -> Accepted:
        """Add what was found, record the contents, and settle: in this order, so that a crash loses no link."""
        self._add(self._found(results), now)
        duplicates = self._record_contents(results.results)
        verdicts = self._settle(results, duplicates, now)
        return Accepted(verdicts, duplicates)

    def _found(self, results: Results) -> list[NewURL]:
        found: list[NewURL] = []
        for result in results.results:
            depth = result.depth + 1
            plain = priority_of(depth)
            hints = result.link_hints
            for index, url in enumerate(result.links):
                hint = hints[index] if index < len(hints) else -1.0
                priority = plain if hint < 0 else priority_of(depth, sitemap_hint=hint)
                found.append(NewURL(url, host_of(url), priority, depth, result.url))
            if result.redirect_to and self._may_follow(result):
                chain = (*result.redirects, result.url)
                target = result.redirect_to
                found.append(
                    NewURL(target, host_of(target), priority_of(result.depth), result.depth, result.url, chain)
                )
        for report in results.hosts:
            found += [NewURL(url, host_of(url), priority_of(0), 0, "robots.txt") for url in report.sitemaps]
        return found

    def _may_follow(self, result: Result) -> bool:
        """A redirect stays in scope, except that where a seed leads is a seed too: the site has moved, say to www."""
        if self._scope.allows(result.redirect_to):
            return True
        if result.depth > 0 or self.config.scope == "page":
            return result.depth == 0
        self.scope_seeds.append(result.redirect_to)
        self.engine.put_meta(SCOPE_SEEDS_KEY, msgspec.msgpack.encode(self.scope_seeds))
        self._scope = self._make_scope()
        return True

    def _make_scope(self) -> Scope:
        config = self.config
        return Scope(config.scope, [*self._seeds, *self.scope_seeds], config.include, config.exclude)

    def scope_of_seeds(self) -> list[str]:
        """The seeds a node needs to know the scope; none where the scope does not depend on them."""
        return [] if self.config.scope in ("any", "page") else self._seeds

    def _record_contents(self, results: list[Result]) -> list[Duplicate | None]:
        """Remember the content of each page; for each result the earlier page it repeats."""
        pages = [index for index, result in enumerate(results) if _has_content(result)]
        contents = [_content(results[index]) for index in pages]
        answers: list[Duplicate | None] = [None] * len(results)
        for index, duplicate in zip(pages, self.engine.contents.record(contents), strict=True):
            answers[index] = duplicate
        return answers

    def _settle(self, results: Results, duplicates: list[Duplicate | None], now: float) -> list[Verdict]:
        reports = {report.lease_id: report for report in results.hosts if report.release}
        notes = [report for report in results.hosts if not report.release]
        by_lease: dict[tuple[str, str], list[int]] = defaultdict(list)
        for index, result in enumerate(results.results):
            by_lease[result.host, result.lease_id].append(index)
        for report in reports.values():
            by_lease.setdefault((report.host, report.lease_id), [])
        shards: dict[int, list[tuple[Settlement, list[int]]]] = defaultdict(list)
        for report in notes:
            shards[self.engine.shard_of(report.host)].append((_settlement(report, [], now), []))
        for (host, lease_id), members in by_lease.items():
            settled = [self._settled(results.results[index], duplicates[index], now) for index in members]
            report = reports.get(lease_id) or HostReport(lease_id, host, False, 0.0)
            shards[self.engine.shard_of(host)].append((_settlement(report, settled, now), members))
        verdicts = [Verdict.STALE] * len(results.results)
        for shard, entries in shards.items():
            answers = self.engine.settle(shard, [settlement for settlement, _ in entries], now)
            for (_, members), answer in zip(entries, answers, strict=True):
                for index, verdict in zip(members, answer, strict=True):
                    verdicts[index] = verdict
        return verdicts

    def _settled(self, result: Result, duplicate: Duplicate | None, now: float) -> Settled:
        counts = _counts(result, duplicate)
        state, retry_at = TaskState.DONE, 0.0
        if result.outcome == Outcome.FAILED:
            wait_s = next_step(
                result.kind,
                result.attempts + 1,
                retries_max=self.config.retries_max,
                base_s=self.config.backoff_base_s,
                max_s=self.config.backoff_max_s,
                retry_after_s=result.retry_after_s,
                chance=self._chance.random(),
            )
            state = TaskState.DEAD if wait_s is None else TaskState.SCHEDULED
            retry_at = now + (wait_s or 0.0)
            counts["dead." + result.kind if wait_s is None else "retried." + result.kind] = 1
        return Settled(
            result.task_id,
            result.url,
            state,
            result.capture_id,
            retry_at,
            result.kind,
            result.error,
            result.size,
            counts,
        )

    def strike(self, url: str, now: float, *, kind: str, error: str, limit: int = CRASHES_MAX) -> bool:
        """A process died while it parsed this URL; the second time the URL is a dead letter."""
        shard = self.engine.shard_of(host_of(url))
        dead = self.engine.strike(shard, url, now, limit=limit, kind=kind, error=error)
        if dead:
            self.engine.count(shard, {"dead." + kind: 1})
        return dead

    # Time

    def heartbeat(self, node: str, beat: Heartbeat, now: float) -> HeartbeatReply:
        record = self._seen(node, now)
        record.in_flight, record.hosts = beat.in_flight, beat.hosts
        record.fetched, record.fetched_bytes = beat.fetched, beat.fetched_bytes
        return HeartbeatReply("ok", self.state, HEARTBEAT_S)

    def tick(self, now: float, elapsed_s: float) -> Totals:
        """What happens by itself as time passes: leases expire, retries come due, budgets end, the crawl finishes."""
        self.elapsed_s = elapsed_s
        for shard in range(self.engine.shard_count):
            self.engine.expire(shard, now)
        totals = self.totals(now)
        if self.state is CrawlState.RUNNING:
            spent = self.budget.exhausted(totals.pages, totals.bytes, elapsed_s)
            if spent:
                self.drain(spent)
            elif not totals.pending:
                self.state = CrawlState.FINISHED
        return totals

    def drain(self, reason: str) -> None:
        """Give out nothing more; nodes finish what is in flight and leave."""
        if self.state is CrawlState.RUNNING:
            self.state = CrawlState.DRAINING
            self.stop_reason = reason

    def totals(self, now: float) -> Totals:
        return add_up(self.engine.stats(shard, now) for shard in range(self.engine.shard_count))

    def _seen(self, node: str, now: float) -> NodeRecord:
        record = self.nodes.get(node)
        if record is None:
            record = self.nodes[node] = NodeRecord(node, now)
        record.last_seen = now
        return record


def _work_lease(lease: Lease, now: float, ttl_s: float) -> WorkLease:
    wait_s = max(0.0, lease.not_before - now)
    return WorkLease(lease.token, lease.host, ttl_s, wait_s, lease.delay_s, lease.tasks, lease.note)


def _settlement(report: HostReport, settled: list[Settled], now: float) -> Settlement:
    return Settlement(
        report.host,
        report.lease_id,
        settled,
        report.release,
        now + report.next_contact_s if report.next_contact_s > 0 else 0.0,
        report.delay_s,
        report.note,
    )


def _has_content(result: Result) -> bool:
    return result.outcome == Outcome.FETCHED and result.status < 300 and result.size > 0


def _content(result: Result) -> Content:
    return Content(result.domain, result.url, result.digest, result.simhash, result.fetched, result.record_id)


def _counts(result: Result, duplicate: Duplicate | None) -> dict[str, int]:
    """What this result adds to the crawl's counters once it counts."""
    counts = {"outcome." + result.outcome: 1}
    if result.status and result.outcome != Outcome.DENIED:
        counts[f"status.{result.status}"] = 1
    if result.outcome == Outcome.FETCHED:
        counts["pages"] = 1
        counts["bytes"] = result.size
    if duplicate is not None:
        counts["duplicates.exact" if duplicate.distance is None else "duplicates.near"] = 1
    for reason, count in result.traps.items():
        counts["refused." + reason] = count
    return counts
