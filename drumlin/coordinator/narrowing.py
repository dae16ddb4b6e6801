"""What becomes of queued URLs when a crawl's scope is narrowed.

They were in scope when they were queued, so they are checked again when they are leased. Those that are out of scope
now become dead letters without a contact. When the scope changes again all of those are queued again, since it may be
wider now; the ones that are still out of scope become dead letters again when they are leased.
"""

from __future__ import annotations

import msgspec

from drumlin.coordinator.letters import revive_kind
from drumlin.coordinator.steering import Steering, scope_of
from drumlin.coordinator.taking.findings import Findings
from drumlin.engines.base import Engine
from drumlin.frontier.backoff import dead_counter
from drumlin.model import FailureKind, Lease, Renewal, Settled, Settlement, Task, TaskState
from drumlin.urls import Scope

ROUNDS_MAX = 100
"""How often one request fetches further URLs of hosts when all were out of scope. The next request continues there."""
ERROR = "out of scope since the settings changed"


class Narrowing:
    """Takes URLs out of leases that the present scope does not allow. If the scope has never changed, nothing is
    checked."""

    def __init__(self, engine: Engine, steering: Steering, findings: Findings) -> None:
        self._engine = engine
        self._steering = steering
        self._findings = findings
        self._followed: object = None
        """The scope for which dead letters were last queued again."""

    async def follow(self, now: float) -> None:
        """After a change of the scope, queue again what was left out. Every coordinator does this when it learns of the
        new scope, because until then it may have left out more URLs by the old one."""
        scope = scope_of(self._steering.config)
        if self._steering.scope_changed and scope != self._followed:
            await revive_kind(self._engine, FailureKind.SCOPE_CHANGED, now)
            self._followed = scope

    def is_removed(self, host: str) -> bool:
        """Whether a host was removed on request, so it is not even visited."""
        return self._findings.removed.of_host(host) is not None

    @property
    def _scope(self) -> Scope | None:
        return self._findings.scope if self._steering.scope_changed else None

    def _is_out(self, scope: Scope, task: Task) -> bool:
        """Whether a URL is out of scope. Seeds and URLs that people enqueued (depth 0) are always in scope unless they
        are excluded; so are all others if the crawl fetches assets, which may be on any host."""
        if scope.excludes(task.url):
            return True
        config = self._steering.config
        if task.depth == 0 or config.assets:
            return False
        return (config.depth is not None and task.depth > config.depth) or not scope.allows(task.url)

    async def clear(self, lease: Lease, now: float) -> Lease:
        """The lease without the URLs that are out of scope; those are settled as dead letters."""
        scope = self._scope
        out = [task for task in lease.tasks if self._is_out(scope, task)] if scope is not None else []
        if not out:
            return lease
        await self._settle(lease, out, now)
        return msgspec.structs.replace(lease, tasks=[task for task in lease.tasks if task not in out])

    async def clear_all(self, leases: list[Lease], now: float) -> list[Lease]:
        """New leases without URLs that are out of scope. A lease that has none left gets further URLs of its host; if
        there are no more, or after `ROUNDS_MAX` tries, the host is given back."""
        if self._scope is None:
            return leases
        kept: list[Lease] = []
        rounds = ROUNDS_MAX
        for lease in leases:
            cleared, more = await self.clear(lease, now), True
            while not cleared.tasks and lease.tasks and more and rounds > 0:
                rounds -= 1
                cleared, more = await self._further(lease, now)
            if cleared.tasks or not lease.tasks:
                kept.append(cleared)
            else:
                release = Settlement(lease.host, lease.lease_id, [], release=True)
                await self._engine.settle_all({lease.shard: [release]}, now)
        return kept

    async def _further(self, lease: Lease, now: float) -> tuple[Lease, bool]:
        """The next URLs of a host, as many as its lease had, and whether there were any."""
        count, until = len(lease.tasks), lease.deadline
        renewal = Renewal(lease.shard, lease.host, lease.lease_id, count)
        (got,) = await self._engine.extend_all([renewal], now, until=until)
        tasks = got.tasks if got is not None else []
        return await self.clear(msgspec.structs.replace(lease, tasks=tasks), now), bool(tasks)

    async def _settle(self, lease: Lease, out: list[Task], now: float) -> None:
        # Nothing was attempted, but the id must differ each time that a URL is left out.
        attempt_id, kind = f"{ERROR} {lease.lease_id} {now}".encode(), FailureKind.SCOPE_CHANGED
        settled = [
            Settled(task.id, task.url, TaskState.DEAD, attempt_id, 0.0, kind, ERROR, counts={dead_counter(kind): 1})
            for task in out
        ]
        await self._engine.settle_all({lease.shard: [Settlement(lease.host, lease.lease_id, settled)]}, now)
