"""The engine in plain Python: the executable specification of the contract, written to be read, not to be fast.

Every task is an `Entry` in the dictionary of its shard. Host queues and time indexes are sorted lists, so the order of
everything is plain to see. Nothing survives the process.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from math import inf

from msgspec.structs import replace

from drumlin.engines.base import EXPIRE_LIMIT, REFUSED, SHARD_COUNT_DEFAULT, Added
from drumlin.engines.embedded import Embedded, EmbeddedContents
from drumlin.engines.kept import SHORT_BITS, Kept, KeptTask, Section
from drumlin.engines.memory.keeping import fill, has_short_marks, told
from drumlin.engines.memory.removing import remove, rewrite
from drumlin.engines.memory.shard import (
    AFTER_EVERY_NAME,
    Entry,
    Grant,
    Host,
    Shard,
    host_state,
    refused_for_good,
    verdict_of,
)
from drumlin.engines.memory.values import DictKeyValue, DictValues
from drumlin.errors import EngineError
from drumlin.model import (
    DeadGroup,
    DeadLetter,
    FailureKind,
    GroupPlace,
    HostStanding,
    HostState,
    HostSummary,
    Lease,
    LetterPlace,
    NewURLs,
    Preview,
    RemovedURLs,
    Renewal,
    Settled,
    Settlement,
    ShardStats,
    Task,
    TaskState,
    TaskStory,
    Verdict,
    Visit,
)
from drumlin.urls import identities, identity


class MemoryEngine(Embedded):
    """See `drumlin.engines.base.Engine`, whose methods these are."""

    ids_of_hosts = True

    def __init__(self, shard_count: int = SHARD_COUNT_DEFAULT) -> None:
        self.shard_count = shard_count
        self._kv = DictKeyValue()
        self.contents = EmbeddedContents(self._kv)
        self._shards = [Shard() for _ in range(shard_count)]
        self.values = DictValues()

    def __repr__(self) -> str:
        return f"<MemoryEngine: {self.shard_count} shards, {sum(len(shard.entries) for shard in self._shards)} URLs>"

    # What is to be fetched

    async def add(
        self, shard: int, found: Sequence[NewURLs], now: float, *, host_urls_max: int | None = None
    ) -> list[Added]:
        state, cap = self._shards[shard], inf if host_urls_max is None else host_urls_max
        return [self._add(state, new, url, now, cap) for new in found for url in new.urls]

    def _add(self, state: Shard, new: NewURLs, url: str, now: float, host_urls_max: float) -> Added:
        if state.entry(url) is not None:
            return Added.SEEN
        host = state.host(new.host)
        if host.urls >= host_urls_max:
            return Added.CAPPED
        task = Task(state.next_id, url, new.priority, new.depth, 0, new.found_on, new.redirects, 0, now)
        state.next_id += 1
        host.urls += 1
        entry = state.entries[identity(url)] = Entry(host.name, task)
        state.put_queued(entry, now)
        return Added.ADDED

    async def lease(
        self,
        shard: int,
        node: str,
        request: str,
        now: float,
        *,
        until: float,
        hosts_max: int,
        urls_max: int,
        urls_per_host: int,
        horizon_s: float = 0.0,
        delay_default_s: float = 0.0,
        skip_hosts: Container[str] = (),
        only_hosts: Sequence[str] = (),
    ) -> list[Lease]:
        state = self._shards[shard]
        leases: list[Lease] = []
        due = state.ready[: bisect_right(state.ready, (now + horizon_s, AFTER_EVERY_NAME))]
        for _, name in due:
            size = min(urls_per_host, urls_max)
            if len(leases) >= hosts_max or size <= 0:
                break
            if name not in skip_hosts and (not only_hosts or name in only_hosts):
                host, grant = state.hosts[name], Grant(f"{request}.{len(leases)}", node, until, delay_default_s)
                state.begin_lease(host, grant)
                leases.append(self._grant_tasks(state, shard, host, grant, size, now))
                urls_max -= len(leases[-1].tasks)
        return leases

    async def visit(self, shard: int, visit: Visit, now: float) -> Lease | None:
        state = self._shards[shard]
        host = state.host(visit.host)
        if host.grant is not None or host.next_contact > visit.due_by:
            return None
        grant = Grant(visit.lease_id, visit.node, visit.until, visit.delay_default_s)
        state.begin_lease(host, grant)
        return self._grant_tasks(state, shard, host, grant, 0, now)

    async def forget(self, shard: int, hosts: Sequence[str], now: float) -> list[str]:
        state, kept = self._shards[shard], []
        for name in hosts:
            host = state.hosts.get(name)
            if host is None or host.urls:
                continue
            if host.grant is not None or host.next_contact > now:
                kept.append(name)
            else:
                state.mark(host, in_backoff=False)
                del state.hosts[name]
        return kept

    def _grant_tasks(self, state: Shard, shard: int, host: Host, grant: Grant, urls_max: int, now: float) -> Lease:
        entries = [state.entries[identity(url)] for _, _, url in host.queue[: max(urls_max, 0)]]
        for entry in entries:
            state.take(entry)
            state.put_leased(entry, grant)
        state.refresh(host)
        return Lease(
            shard,
            host.name,
            grant.lease_id,
            grant.node,
            grant.deadline,
            max(now, host.next_contact),
            host.delay_s,
            [entry.task for entry in entries],
            host.note,
        )

    async def extend_all(
        self, renewals: Sequence[Renewal], now: float, *, until: float, delay_default_s: float = 0.0
    ) -> list[Lease | None]:
        return [self._extend(renewal, now, until, delay_default_s) for renewal in renewals]

    def _extend(self, renewal: Renewal, now: float, until: float, delay_default_s: float) -> Lease | None:
        state = self._shards[renewal.shard]
        host = state.hosts.get(renewal.host)
        grant = host.grant if host else None
        if host is None or grant is None or grant.lease_id != renewal.lease_id or grant.deadline <= now:
            return None
        state.prolong_lease(host, grant, until)
        grant.delay_default_s = max(grant.delay_default_s, delay_default_s)
        return self._grant_tasks(state, renewal.shard, host, grant, renewal.urls_max, now)

    # What became of it

    async def settle(self, shard: int, settlements: Sequence[Settlement], now: float) -> list[list[Verdict]]:
        state = self._shards[shard]
        return [self._settle(state, settlement, now) for settlement in settlements]

    def _settle(self, state: Shard, settlement: Settlement, now: float) -> list[Verdict]:
        host = state.hosts.get(settlement.host)
        if host is None:
            return [Verdict.STALE] * len(settlement.settled)
        live = host.grant is not None and host.grant.lease_id == settlement.lease_id
        verdicts = [self._settle_task(state, host, settled, live, now) for settled in settlement.settled]
        if live:
            self._learn(state, host, settlement)
        return verdicts

    def _settle_task(self, state: Shard, host: Host, settled: Settled, live: bool, now: float) -> Verdict:
        entry = state.entry(settled.url)
        entry = entry if entry and entry.host == host.name else None
        verdict = verdict_of(entry, settled, live)
        if settled.refused and verdict is Verdict.SETTLED:
            return Verdict.OPEN
        if verdict is not Verdict.SETTLED or entry is None:
            if entry is not None and refused_for_good(entry, settled, live):
                entry.attempt_id = REFUSED
            return verdict
        state.take(entry)
        entry.attempt_id = settled.attempt_id
        if settled.state is TaskState.DONE:
            host.pages += settled.size is not None
            state.put(entry, TaskState.DONE)
        else:
            if not settled.put_off:
                entry.first_failed = entry.first_failed or now
                entry.task = replace(entry.task, attempts=entry.task.attempts + 1)
            if settled.state is TaskState.SCHEDULED:
                state.put_scheduled(entry, settled.retry_at)
            else:
                state.put_dead(entry, settled.cause_of_death, settled.error, now)
        host.bytes += settled.size or 0
        state.count(settled.counts)
        return verdict

    async def preview(self, shard: int, settlements: Sequence[Settlement]) -> list[Preview]:
        return [self._preview(self._shards[shard], settlement) for settlement in settlements]

    def _preview(self, state: Shard, settlement: Settlement) -> Preview:
        host = state.hosts.get(settlement.host)
        live = host is not None and host.grant is not None and host.grant.lease_id == settlement.lease_id
        entries = [state.entry(settled.url) for settled in settlement.settled]
        own = [entry if entry and entry.host == settlement.host else None for entry in entries]
        return Preview(live, [verdict_of(*pair, live) for pair in zip(own, settlement.settled, strict=True)])

    def _learn(self, state: Shard, host: Host, settlement: Settlement) -> None:
        if settlement.delay_s is not None:
            host.delay_s = settlement.delay_s
        if settlement.note is not None:
            host.note = settlement.note
        if settlement.in_backoff is not None:
            state.mark(host, settlement.in_backoff)
        if settlement.slow_s is not None:
            host.slow_s = settlement.slow_s
        host.next_contact = max(host.next_contact, settlement.next_contact)
        if settlement.release and host.grant:
            state.end_lease(host, host.grant, host.next_contact)

    async def expire(self, shard: int, now: float, *, limit: int = EXPIRE_LIMIT) -> list[str]:
        state = self._shards[shard]
        over = state.deadlines[: min(limit, bisect_right(state.deadlines, (now, AFTER_EVERY_NAME)))]
        for deadline, name in over:
            state.lose_lease(state.hosts[name], max(deadline, now))
        for retry_at, _, url in state.scheduled[:limit]:
            if retry_at <= now:
                entry = state.entries[identity(url)]
                state.take(entry)
                state.put_queued(entry, now)
        return [name for _, name in over]

    async def release_node(self, shard: int, node: str, now: float) -> int:
        state = self._shards[shard]
        hosts = list(state.leases_of.get(node, {}).values())
        for host in hosts:
            state.lose_lease(host, now)
        return len(hosts)

    async def strike(
        self, shard: int, url: str, now: float, *, limit: int, kind: FailureKind, error: str, counter: str = ""
    ) -> bool:
        state = self._shards[shard]
        entry = state.entry(url)
        if entry is None or entry.state not in (TaskState.QUEUED, TaskState.LEASED):
            return False
        entry.task = replace(entry.task, crashes=entry.task.crashes + 1)
        entry.first_failed = entry.first_failed or now
        if entry.task.crashes < limit:
            return False
        state.take(entry)
        state.put_dead(entry, kind, error, now)
        state.count({counter: 1} if counter else {})
        return True

    async def reprioritise(self, shard: int, changes: Sequence[tuple[str, int]]) -> int:
        state = self._shards[shard]
        changed = 0
        for url, priority in changes:
            entry = state.entry(url)
            if entry and entry.state is TaskState.QUEUED and entry.task.priority != priority:
                state.take(entry)
                entry.task = replace(entry.task, priority=priority)
                state.put_queued(entry)
                changed += 1
        return changed

    # What went wrong for good

    def dead_letters(
        self, shard: int, kind: FailureKind | None, host: str, after: LetterPlace | None, limit: int
    ) -> list[DeadLetter]:
        letters = [entry.letter for entry in self._shards[shard].entries.values() if entry.letter]
        letters = [one for one in letters if kind in (None, one.kind) and host in ("", one.host)]
        letters.sort(key=lambda letter: letter.place)
        return [one for one in letters if after is None or one.place > after][:limit]

    def dead_groups(
        self, shard: int, kind: FailureKind | None, after: GroupPlace | None, limit: int
    ) -> list[DeadGroup]:
        letters = [entry.letter for entry in self._shards[shard].entries.values() if entry.letter]
        counts = Counter((one.kind, one.host) for one in letters if kind in (None, one.kind))
        groups = sorted((DeadGroup(*of, many) for of, many in counts.items()), key=lambda group: group.place)
        return [one for one in groups if after is None or one.place > after][:limit]

    def _take_dead(self, state: Shard, urls: Sequence[str]) -> list[Entry]:
        """Take the dead ones among the URLs from the dead letters; each is returned once."""
        entries = [state.entries[key] for key in dict.fromkeys(identities(urls)) if key in state.entries]
        dead = [entry for entry in entries if entry.state is TaskState.DEAD]
        for entry in dead:
            state.take(entry)
        return dead

    async def revive(self, shard: int, urls: Sequence[str], now: float, *, counter: str = "") -> int:
        dead = self._take_dead(self._shards[shard], urls)
        for entry in dead:
            entry.task = replace(entry.task, attempts=0, crashes=0)
            entry.first_failed = 0.0
            self._shards[shard].put_queued(entry, now)
        self._shards[shard].count({counter: -len(dead)} if counter and dead else {})
        return len(dead)

    async def drop(self, shard: int, urls: Sequence[str], *, counter: str = "") -> int:
        dead = self._take_dead(self._shards[shard], urls)
        for entry in dead:
            self._shards[shard].put(entry, TaskState.DONE)
        self._shards[shard].count({counter: -len(dead)} if counter and dead else {})
        return len(dead)

    async def forget_done(self, shard: int, urls: Sequence[str]) -> int:
        entries = self._shards[shard].entries
        done = [key for key in dict.fromkeys(identities(urls)) if key in entries]
        done = [key for key in done if entries[key].state is TaskState.DONE]
        for key in done:
            del entries[key]
        return len(done)

    # What is known

    async def story(self, shard: int, url: str) -> TaskStory | None:
        entry = self._shards[shard].entry(url)
        if entry is None:
            return None
        task = None if entry.state is TaskState.DONE else entry.task
        return TaskStory(entry.state, task, entry.retry_at, entry.attempt_id, entry.letter)

    async def host_note(self, shard: int, host: str) -> bytes:
        known = self._shards[shard].hosts.get(host)
        return known.note if known else b""

    async def host_state(self, shard: int, host: str) -> HostState | None:
        known = self._shards[shard].hosts.get(host)
        return host_state(known) if known and known.urls else None

    async def hosts(self, shard: int, standing: HostStanding, now: float, *, limit: int) -> list[HostState]:
        state = self._shards[shard]
        if standing is HostStanding.BACKOFF:
            return [host_state(host) for host in state.in_backoff()[:limit]]
        if standing is HostStanding.LEASED:
            return [host_state(state.hosts[name]) for _, name in state.deadlines[:limit]]
        ready = bisect_right(state.ready, (now, AFTER_EVERY_NAME))
        chosen = state.ready[:ready] if standing is HostStanding.READY else state.ready[ready:]
        return [host_state(state.hosts[name]) for _, name in chosen[:limit]]

    def host_names(self, shard: int, prefix: str, after: str, limit: int) -> list[str]:
        names = [host.name for host in self._shards[shard].hosts.values() if host.urls]
        return sorted(name for name in names if name.startswith(prefix) and name > after)[:limit]

    async def set_delay(self, shard: int, host: str, delay_s: float | None) -> None:
        self._shards[shard].host(host).delay_s = delay_s

    async def hurry(self, shard: int, now: float, *, delay_default_s: float = 0.0) -> int:
        state = self._shards[shard]
        hurried = 0
        for host in state.in_backoff():
            soonest = now + host.lost_delay_s(delay_default_s)
            if not host.grant and host.next_contact > soonest:
                host.next_contact = soonest
                state.refresh(host)
                hurried += 1
        return hurried

    async def stats(self, shard: int, now: float) -> ShardStats:
        state = self._shards[shard]
        hosts_ready = bisect_right(state.ready, (now, AFTER_EVERY_NAME))
        events = [state.ready[0][0]] if state.ready else []
        events += [state.scheduled[0][0]] if state.scheduled else []
        events += [state.deadlines[0][0]] if state.deadlines else []
        return ShardStats(
            queued=state.totals[TaskState.QUEUED],
            scheduled=state.totals[TaskState.SCHEDULED],
            leased=state.totals[TaskState.LEASED],
            done=state.totals[TaskState.DONE],
            dead=state.totals[TaskState.DEAD],
            hosts_ready=hosts_ready,
            hosts_waiting=len(state.ready) - hosts_ready,
            hosts_leased=len(state.leased),
            next_event=min(events, default=inf),
            counters=dict(state.counters),
            hosts_in_backoff=len(state.backing_off),
        )

    async def count(self, shard: int, counts: dict[str, int]) -> None:
        self._shards[shard].count(counts)

    async def top_hosts(self, shard: int, n: int) -> list[HostSummary]:
        hosts = self._shards[shard].hosts.values()
        summaries = [HostSummary(host.name, host.pages, host.bytes, len(host.queue)) for host in hosts if host.urls]
        return sorted(summaries, key=lambda one: (-one.pages, -one.queued, one.host))[:n]

    # The engine itself

    def told(self, section: Section, shard: int) -> Iterator[Kept]:
        return told(self._shards[shard], shard, section)

    async def fill(self, shard: int, step: int, kept: Sequence[Kept], now: float) -> None:
        state = self._shards[shard]
        if step > state.step:
            fill(state, kept)
            self._kv.put_many(self.contents.written(kept))
            state.step = step

    async def remove(
        self, shard: int, host: str, urls: Sequence[str] | None, now: float, *, dry_run: bool = False
    ) -> RemovedURLs:
        return remove(self._shards[shard], host, urls, now, dry_run=dry_run)

    async def rewrite(self, shard: int, kept: Sequence[KeptTask]) -> None:
        rewrite(self._shards[shard], kept)

    async def expunge(self) -> None:
        """Does nothing: what was removed is nowhere."""

    @property
    def mark_bits(self) -> int:
        return SHORT_BITS if any(map(has_short_marks, self._shards)) else super().mark_bits

    async def snapshot(self, name: str) -> str:
        raise EngineError("The memory engine keeps nothing on disk.", "Use the rocksdb engine.")

    async def close(self) -> None:
        """Does nothing: this engine holds no resources."""
