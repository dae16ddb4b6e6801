"""Hosts with a budget of pages: what several coordinators give out of them."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import cast

from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.giving.host_budgets import HostBudgets
from drumlin.engines import Engine
from drumlin.model import HostState, Lease, NewURLs
from drumlin.protocol import CrawlState, HostReport, Result, Results, WorkLease, WorkRequest
from tests.harness.dispatching import with_dispatchers

NOW = 1_000_000.0


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
                assert (await dispatchers[0].take(node, fetched(lease, now), now)).accepted.rejected_count == 0
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
        await one.take("n1", results, NOW)
        state = await one.engine.host_state(one.engine.shard_of("a.example"), "a.example")
        assert state is not None
        assert state.pages == (await one.totals(NOW)).pages == 2

    with_dispatchers(test)


def test_a_spent_budget_keeps_no_crawl_from_ending_and_a_raised_one_is_given_out_again() -> None:
    async def test(one: Dispatcher, _: Dispatcher) -> None:
        ending = Dispatcher(one.engine, one.config, [], chance=random.Random(1), name="c", ends=True)
        urls = {host: [f"http://{host}/{n}" for n in range(2)] for host in ("a.example", "b.example")}
        await ending.enqueue([NewURLs(host, mine) for host, mine in urls.items()], NOW)
        await ending.orders.limit("a.example", 1)
        for now in (NOW + 1, NOW + 2):
            for lease in (await ending.work("n1", WorkRequest(10), now)).leases:
                await ending.take("n1", fetched(lease, now), now)
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
    """An engine in which a host's budget is removed while a coordinator looks at the host."""

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


def test_a_blocked_host_is_given_to_nobody_whatever_its_budget() -> None:
    async def test(one: Dispatcher, _: Dispatcher) -> None:
        await one.enqueue([NewURLs("a.example", ["http://a.example/"])], NOW)
        await one.orders.limit("a.example", 9)
        await one.orders.block("a.example")
        assert (await one.work("n1", WorkRequest(10), NOW)).leases == []
        await one.orders.unblock("a.example")
        assert len((await one.work("n1", WorkRequest(10), NOW + 1)).leases) == 1

    with_dispatchers(test)
