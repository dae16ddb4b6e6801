"""Hosts of which people want no more than so many pages.

They stand apart from the common line, and are given out one lease at a time: with no more URLs than their budget has
left, and no further ones until these are settled. So a budget holds over all coordinators, from when they have heard
of it. A lease that is out at that moment keeps its URLs, and late results of a lease that was lost count on top.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from drumlin.coordinator.orders import Orders
from drumlin.engines.base import Engine
from drumlin.model import HostState, Lease

LOOK_AGAIN_S = 0.25
LOOKS_MAX = 4
"""Hosts looked at for one request, each of which costs round trips."""
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
        self._spent: dict[str, int] = {}
        """Budgets that were found spent. They stay so until they are raised, since pages only become more."""
        self._requests = 0

    async def lease(self, take: Take, now: float) -> list[Lease]:
        """The next in turn that has something to give, if any has."""
        for host in self._in_turn(now):
            # Most have nothing to give just now, which is found out without a claim.
            if await self._pages_to_give(host) and (leases := await self._lease(host, take, now)):
                return leases
        return []

    def _in_turn(self, now: float) -> Iterator[str]:
        """Those not looked at for longest."""
        blocked, budgets = self._orders.blocked, self._orders.budgets.items()
        open_ones = [host for host, budget in budgets if host not in blocked and self._spent.get(host) != budget]
        self._looked = {host: self._looked.get(host, 0.0) for host in open_ones}
        due = [host for host in open_ones if self._looked[host] + LOOK_AGAIN_S <= now]
        for host in sorted(due, key=self._looked.__getitem__)[:LOOKS_MAX]:
            self._looked[host] = now
            yield host

    async def _pages_to_give(self, host: str) -> int:
        """How many pages of a host may be given out: none while somebody has it."""
        state = await self._engine.host_state(self._engine.shard_of(host), host)
        # Looked up only now: the budget may have been lifted meanwhile.
        budget = self._orders.budgets.get(host)
        if state is None or budget is None or state.token:
            return 0
        left = pages_left(state, budget)
        if not left:
            self._spent[host] = budget
        return left if state.queued else 0

    async def _lease(self, host: str, take: Take, now: float) -> list[Lease]:
        """Under a claim, since another coordinator may be about to give the same pages."""
        self._requests += 1
        claim, holder = f"{CLAIM}:{host}", f"{self._name}/{self._requests}"
        if not await self._engine.claim(claim, holder, now, until=now + CLAIM_S):
            return []
        try:
            pages = await self._pages_to_give(host)
            return await take(host, pages) if pages else []
        finally:
            await self._engine.claim(claim, holder, now, until=now)

    async def queued_beyond(self) -> int:
        """How many URLs are queued that no budget allows to be fetched."""
        beyond = 0
        for host in list(self._orders.budgets):
            state = await self._engine.host_state(self._engine.shard_of(host), host)
            budget = self._orders.budgets.get(host)
            if state is not None and budget is not None and not pages_left(state, budget):
                beyond += state.queued
        return beyond


def pages_left(state: HostState, budget: int) -> int:
    return max(0, budget - state.pages)
