"""What becomes of queued URLs when a crawl's scope is narrowed while it runs.

They were in scope when they were queued, so they are looked at again when they are leased. Those that are out of scope
by now are settled without a contact, and counted as `refused.scope_changed`.
"""

from __future__ import annotations

import msgspec

from drumlin.coordinator.findings import Findings
from drumlin.coordinator.steering import Steering
from drumlin.engines.base import Engine
from drumlin.model import Lease, Settled, Settlement, Task, TaskState
from drumlin.urls import Scope

ROUNDS_MAX = 100
"""How often one request looks further into queues from which nothing was left. The next request goes on there."""
COUNTER = "refused.scope_changed"
CAPTURE_ID = b"out of scope"
"""Stands in for the id of a capture, since there is none."""


class Narrowing:
    """Takes URLs out of leases that the scope of today does not allow. Nothing is looked at in a crawl whose scope has
    never changed."""

    def __init__(self, engine: Engine, steering: Steering, findings: Findings) -> None:
        self._engine = engine
        self._steering = steering
        self._findings = findings

    @property
    def _scope(self) -> Scope | None:
        return self._findings.scope if self._steering.scope_changed else None

    def _is_out(self, scope: Scope, task: Task) -> bool:
        """Seeds and what people enqueued (depth 0) are in every scope, and what pages show may be anywhere."""
        if scope.excludes(task.url):
            return True
        return task.depth > 0 and not self._steering.config.assets and not scope.allows(task.url)

    async def clear(self, lease: Lease, now: float) -> Lease:
        """The lease without the URLs that are out of scope, which are settled."""
        scope = self._scope
        out = [task for task in lease.tasks if self._is_out(scope, task)] if scope is not None else []
        if not out:
            return lease
        await self._settle(lease, out, now)
        return msgspec.structs.replace(lease, tasks=[task for task in lease.tasks if task not in out])

    async def clear_all(self, leases: list[Lease], now: float) -> list[Lease]:
        """New leases without such URLs. One that has none left is given further ones of its host; when there are no
        more, or after many, the host is given back."""
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
                await self._engine.settle(lease.shard, [Settlement(lease.host, lease.token, [], release=True)], now)
        return kept

    async def _further(self, lease: Lease, now: float) -> tuple[Lease, bool]:
        """The next URLs of a host, as many as it was to have, and whether there were any."""
        count, until = len(lease.tasks), lease.deadline
        got = await self._engine.extend(lease.shard, lease.host, lease.token, now, until=until, urls_max=count)
        tasks = got.tasks if got is not None else []
        return await self.clear(msgspec.structs.replace(lease, tasks=tasks), now), bool(tasks)

    async def _settle(self, lease: Lease, out: list[Task], now: float) -> None:
        settled = [Settled(task.id, task.url, TaskState.DONE, CAPTURE_ID, counts={COUNTER: 1}) for task in out]
        await self._engine.settle(lease.shard, [Settlement(lease.host, lease.token, settled)], now)
