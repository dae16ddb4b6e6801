"""The gate: who asks too fast or lies is told to wait, then kept out; and people's orders bind every coordinator."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import count
from typing import cast

import pytest

from drumlin.config import CrawlConfig
from drumlin.coordinator.auth import Identity, Role
from drumlin.coordinator.bodies import Refused
from drumlin.coordinator.conduct import Gate
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.host_budgets import HostBudgets
from drumlin.engines import Engine, open_engine
from drumlin.model import HostState, Lease, NewURLs
from drumlin.protocol import (
    CrawlState,
    Heartbeat,
    HostReport,
    NodeStatus,
    Register,
    Result,
    Results,
    WorkLease,
    WorkRequest,
)

NOW = 1_000_000.0
NODE = Identity(Role.NODE, "n1")
BEAT = Heartbeat("active", 0, 0)


def with_dispatchers(test: Callable[[Dispatcher, Dispatcher], Awaitable[None]]) -> None:
    """Run a test with two dispatchers on one engine."""

    async def run() -> None:
        engine = await open_engine("memory:", shard_count=2)
        config = CrawlConfig(delay_s=0.0)
        two = [Dispatcher(engine, config, [], chance=random.Random(1), name=name, ends=False) for name in "ab"]
        await test(*two)

    asyncio.run(run())


async def refusal(work: Awaitable[object]) -> Refused:
    with pytest.raises(Refused) as caught:
        await work
    return caught.value


async def refusals(gate: Gate, who: Identity, times: list[float]) -> list[tuple[int, str]]:
    """Status and code of each request that is not let pass."""
    refused = []
    for now in times:
        try:
            await gate.admit(who, now)
        except Refused as one:
            refused.append((one.status, one.code))
    return refused


def test_an_honest_node_is_never_told_to_wait() -> None:
    async def test(dispatcher: Dispatcher, _: Dispatcher) -> None:
        gate = Gate(dispatcher)
        times = [NOW + step / 130 for step in range(20_000)]
        assert await refusals(gate, NODE, times) == []

    with_dispatchers(test)


def test_who_goes_on_when_told_to_wait_is_put_into_quarantine_for_all_to_see() -> None:
    async def test(dispatcher: Dispatcher, _: Dispatcher) -> None:
        await dispatcher.register(Register(1.0, "n1"), NOW)
        codes = await refusals(Gate(dispatcher), NODE, [NOW] * 3_000)
        assert codes[0] == (429, "too_fast")
        assert codes[-1] == (429, "quarantined")
        record = await dispatcher.node("n1")
        assert record is not None
        assert record.status is NodeStatus.QUARANTINED

    with_dispatchers(test)


def test_a_whole_fleet_may_join_at_once_with_one_token() -> None:
    async def test(dispatcher: Dispatcher, _: Dispatcher) -> None:
        assert await refusals(Gate(dispatcher), Identity(Role.JOIN, "one"), [NOW] * 10_000) == []

    with_dispatchers(test)


def test_an_order_given_at_one_coordinator_binds_the_other() -> None:
    async def test(one: Dispatcher, other: Dispatcher) -> None:
        await other.register(Register(1.0, "n1"), NOW)
        await other.tick(NOW, 0.0)
        assert await one.set_node_status("n1", NodeStatus.QUARANTINED, NOW)
        await other.heartbeat("n1", BEAT, NOW + 1)
        await other.tick(NOW + 1, 0.0)
        assert (await refusal(Gate(other).admit(NODE, NOW + 1))).code == "quarantined"
        await other.register(Register(1.0, "n1"), NOW + 2)
        assert (await refusal(Gate(other).admit(NODE, NOW + 2))).code == "quarantined"
        await one.set_node_status("n1", NodeStatus.ACTIVE, NOW + 3)
        await other.tick(NOW + 3, 0.0)
        await Gate(other).admit(NODE, NOW + 3)

    with_dispatchers(test)


def test_a_blocked_host_is_given_to_nobody_and_its_lease_is_not_renewed() -> None:
    async def test(one: Dispatcher, other: Dispatcher) -> None:
        new = [NewURLs("a.example", ["http://a.example/"]), NewURLs("b.example", ["http://b.example/"])]
        await other.enqueue(new, NOW)
        leases = (await other.work("n1", WorkRequest(10, request_id="1"), NOW)).leases
        assert {lease.host for lease in leases} == {"a.example", "b.example"}
        assert await one.orders.block("a.example")
        await other.tick(NOW, 0.0)
        renew = [(lease.lease_id, lease.host) for lease in leases]
        renewed = await other.work("n1", WorkRequest(10, request_id="2", renew=renew), NOW)
        assert (renewed.lost, [lease.host for lease in renewed.leases]) == (["a.example"], ["b.example"])
        later = NOW + 1_000
        await other.tick(later, 0.0)
        assert {lease.host for lease in (await other.work("n1", WorkRequest(10, request_id="3"), later)).leases} == {
            "b.example"
        }
        await one.orders.unblock("a.example")
        await other.tick(later, 0.0)
        assert {lease.host for lease in (await other.work("n1", WorkRequest(10, request_id="4"), later)).leases} == {
            "a.example"
        }

    with_dispatchers(test)


def fetched(lease: WorkLease, now: float) -> Results:
    """All pages of a lease, which is given back."""
    results = [
        Result(one.assignment_id, one.url, 200, "", [], now, "fetched", size=1, capture_id=one.assignment_id)
        for one in lease.assignments
    ]
    return Results(results, [HostReport(lease.lease_id, lease.host, release=True)])


def test_of_a_host_on_a_budget_no_more_pages_are_given_than_it_has_left() -> None:
    async def test(one: Dispatcher, other: Dispatcher) -> None:
        new = [NewURLs(host, [f"http://{host}/{n}" for n in range(20)]) for host in ("a.example", "b.example")]
        await one.enqueue(new, NOW)
        assert await one.orders.limit("a.example", 11)
        await other.tick(NOW, 0.0)
        assert await fetch_all(one, other) == {"a.example": 11, "b.example": 20}
        assert await other.orders.limit("a.example", 13)
        await one.tick(NOW, 0.0)
        assert await fetch_all(one, other) == {"a.example": 2}
        await one.orders.unlimit("a.example")
        await other.tick(NOW, 0.0)
        assert await fetch_all(one, other) == {"a.example": 7}

    async def fetch_all(*dispatchers: Dispatcher) -> dict[str, int]:
        """Two nodes ask both coordinators in turn, and all at once, until there is nothing more."""
        pages: dict[str, int] = {}
        idle, now = 0, next(hours)
        while idle < 4:
            now += 1.0
            asked = [made.work(node, WorkRequest(50), now) for made in dispatchers for node in ("n1", "n2")]
            leases = [lease for work in await asyncio.gather(*asked) for lease in work.leases]
            idle = 0 if leases else idle + 1
            for lease in leases:
                pages[lease.host] = pages.get(lease.host, 0) + len(lease.assignments)
                node = lease.lease_id.partition(":")[0]
                assert (await dispatchers[0].results(node, fetched(lease, now), now)).rejected_count == 0
        return pages

    hours = count(NOW, 3_600.0)
    with_dispatchers(test)


def test_pages_count_towards_a_budget_whatever_their_size_and_redirects_do_not() -> None:
    async def test(one: Dispatcher, _: Dispatcher) -> None:
        await one.enqueue([NewURLs("a.example", [f"http://a.example/{n}" for n in range(3)])], NOW)
        (lease,) = (await one.work("n1", WorkRequest(3), NOW)).leases
        results = fetched(lease, NOW)
        results.results[0].size = 0
        results.results[1].outcome, results.results[1].status_code = "redirected", 301
        await one.results("n1", results, NOW)
        state = await one.engine.host_state(one.engine.shard_of("a.example"), "a.example")
        assert state is not None
        assert state.pages == (await one.totals(NOW)).pages == 2

    with_dispatchers(test)


def test_spent_budgets_are_not_looked_at_again_and_keep_no_crawl_from_ending() -> None:
    async def test(one: Dispatcher, _: Dispatcher) -> None:
        ending = Dispatcher(one.engine, one.config, [], chance=random.Random(1), name="c", ends=True)
        urls = {host: [f"http://{host}/{n}" for n in range(2)] for host in ("a.example", "b.example")}
        await ending.enqueue([NewURLs(host, mine) for host, mine in urls.items()], NOW)
        await ending.orders.limit("a.example", 1)
        for now in (NOW + 1, NOW + 2):
            for lease in (await ending.work("n1", WorkRequest(10), now)).leases:
                await ending.results("n1", fetched(lease, now), now)
        await ending.tick(NOW + 3, 3.0)
        assert ending.state is CrawlState.FINISHED
        await ending.resume()
        await ending.orders.limit("a.example", 2)
        (lease,) = (await ending.work("n1", WorkRequest(10), NOW + 4)).leases
        assert len(lease.assignments) == 1

    with_dispatchers(test)


def test_a_budget_that_is_lifted_while_its_host_is_looked_at_is_no_accident() -> None:
    async def test(one: Dispatcher, _: Dispatcher) -> None:
        await one.enqueue([NewURLs("a.example", ["http://a.example/"])], NOW)
        await one.orders.limit("a.example", 1)
        budgets = HostBudgets(cast(Engine, Lifting(one)), one.orders, "x")
        assert await budgets.lease(nothing, NOW) == []

    async def nothing(host: str, pages: int) -> list[Lease]:
        raise AssertionError("it has no budget any more")

    with_dispatchers(test)


class Lifting:
    """An engine during whose look at a host its budget is lifted."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.shard_of = dispatcher.engine.shard_of

    async def host_state(self, shard: int, host: str) -> HostState | None:
        await self._dispatcher.orders.unlimit(host)
        return await self._dispatcher.engine.host_state(shard, host)


def test_a_lease_of_a_host_that_gets_a_budget_is_renewed_without_further_urls() -> None:
    async def test(one: Dispatcher, _: Dispatcher) -> None:
        await one.enqueue([NewURLs("a.example", [f"http://a.example/{n}" for n in range(20)])], NOW)
        (lease,) = (await one.work("n1", WorkRequest(3, request_id="1"), NOW)).leases
        await one.orders.limit("a.example", 2)
        renewal = WorkRequest(3, request_id="2", renew=[(lease.lease_id, lease.host)])
        (renewed,) = (await one.work("n1", renewal, NOW + 1)).leases
        assert (renewed.host, renewed.assignments) == ("a.example", [])

    with_dispatchers(test)
