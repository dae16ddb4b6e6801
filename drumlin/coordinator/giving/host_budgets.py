"""Hosts with a page budget: people want at most so many pages of them.

Such hosts are kept out of the common queue and are given out one lease at a time, with no more URLs than their budget
has left, and with no further ones until these are settled. So the budget holds over all coordinators once they have
heard of it. A lease that exists at that moment keeps its URLs, and late results of a lost lease count on top.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from drumlin.coordinator.orders import Orders
from drumlin.engines.base import Engine
from drumlin.model import HostState, Lease

LOOK_AGAIN_S = 0.25
LOOKS_MAX = 4
"""How many hosts are examined for one request; each costs round trips."""
CLAIM = "host_budget"
CLAIM_S = 10.0

Take = Callable[[str, int], Awaitable[list[Lease]]]
"""Leases the named host with at most the given number of URLs."""


class HostBudgets:
    """Gives out hosts that have a page budget."""

    def __init__(self, engine: Engine, orders: Orders, name: str) -> None:
        self._engine = engine
        self._orders = orders
        self._name = name
        self._looked: dict[str, float] = {}
        self._spent: dict[str, int] = {}
        """Budgets that turned out to be spent. They stay spent until they are raised, since pages are never taken
        back."""
        self._requests = 0

    async def lease(self, take: Take, now: float) -> list[Lease]:
        """Lease the next host that has something to give, if any has."""
        for host in self._in_turn(now):
            # Most have nothing to give at the moment; finding that out needs no claim.
            if await self._pages_to_give(host) and (leases := await self._lease(host, take, now)):
                return leases
        return []

    def _in_turn(self, now: float) -> Iterator[str]:
        """The hosts to examine now, beginning with the one that was examined longest ago."""
        blocked, budgets = self._orders.blocked, self._orders.budgets.items()
        open_ones = [host for host, budget in budgets if host not in blocked and self._spent.get(host) != budget]
        self._looked = {host: self._looked.get(host, 0.0) for host in open_ones}
        due = [host for host in open_ones if self._looked[host] + LOOK_AGAIN_S <= now]
        for host in sorted(due, key=self._looked.__getitem__)[:LOOKS_MAX]:
            self._looked[host] = now
            yield host

    async def _pages_to_give(self, host: str) -> int:
        """How many pages of a host may be given out: none while it is leased."""
        state = await self._engine.host_state(self._engine.shard_of(host), host)
        # Read only after the call: the budget may have been lifted meanwhile.
        budget = self._orders.budgets.get(host)
        if state is None or budget is None or state.lease_id:
            return 0
        left = pages_left(state, budget)
        if not left:
            self._spent[host] = budget
        return left if state.queued else 0

    async def _lease(self, host: str, take: Take, now: float) -> list[Lease]:
        """Lease a host under a claim, since another coordinator may be about to give out the same pages."""
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
        """How many queued URLs belong to hosts whose budget is spent."""
        beyond = 0
        for host in list(self._orders.budgets):
            state = await self._engine.host_state(self._engine.shard_of(host), host)
            budget = self._orders.budgets.get(host)
            if state is not None and budget is not None and not pages_left(state, budget):
                beyond += state.queued
        return beyond


def pages_left(state: HostState, budget: int) -> int:
    return max(0, budget - state.pages)
