"""Hosts of which people want no more than so many pages.

They stand apart from the common line, and are given out one at a time: with as many URLs as their budget has left, and
no more until these are settled. So a budget holds over all coordinators. Only pages of a lease that was lost, and whose
results come late, can exceed it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from drumlin.coordinator.orders import Orders
from drumlin.engines.base import Engine
from drumlin.model import HostState, Lease

LOOK_AGAIN_S = 0.25
LOOKS_MAX = 4
"""Hosts looked at for one request, each of which costs some round trips."""
CLAIM = "host_budget"
CLAIM_S = 10.0

Take = Callable[[str, int], Awaitable[list[Lease]]]
"""Leases a host with at most so many URLs."""


class HostBudgets:
    """Gives out hosts that are on a budget."""

    def __init__(self, engine: Engine, orders: Orders, name: str) -> None:
        self._engine = engine
        self._orders = orders
        self._name = name
        self._looked: dict[str, float] = {}
        self._requests = 0

    async def lease(self, take: Take, now: float) -> list[Lease]:
        """The next in turn that has something to give, if any has."""
        for host in self._in_turn(now):
            if leases := await self._lease(host, take, now):
                return leases
        return []

    def _in_turn(self, now: float) -> Iterator[str]:
        """Those not looked at for longest."""
        budgets = self._orders.budgets
        self._looked = {host: self._looked.get(host, 0.0) for host in budgets}
        due = [
            host for host in sorted(budgets, key=self._looked.__getitem__) if self._looked[host] + LOOK_AGAIN_S <= now
        ]
        for host in due[:LOOKS_MAX]:
            self._looked[host] = now
            yield host

    async def _lease(self, host: str, take: Take, now: float) -> list[Lease]:
        """Under a claim, since another coordinator may be about to give the same pages."""
        self._requests += 1
        claim, holder = f"{CLAIM}:{host}", f"{self._name}/{self._requests}"
        if not await self._engine.claim(claim, holder, now, until=now + CLAIM_S):
            return []
        try:
            state = await self._engine.host_state(self._engine.shard_of(host), host)
            left = pages_left(state, self._orders.budgets[host]) if state is not None and not state.token else 0
            return await take(host, left) if left > 0 else []
        finally:
            await self._engine.claim(claim, holder, now, until=now)


def pages_left(state: HostState, budget: int) -> int:
    return max(0, budget - state.pages)
