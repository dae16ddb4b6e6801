"""The gate: senders that ask too fast or lie have to wait, then are in quarantine; orders of people hold at every
coordinator."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from drumlin.access.audit import AuditLog
from drumlin.access.misdeeds import Misdeed
from drumlin.access.tokens import Identity, Role
from drumlin.api.gate import NOWHERE, Gate, Origin
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.http.refusal import Refused
from drumlin.model import NewURLs
from drumlin.protocol import Heartbeat, HostReport, NodeEvent, NodeStatus, Register, Results, WorkRequest
from tests.harness.dispatching import with_dispatchers

NOW = 1_000_000.0
NODE = Identity(Role.NODE, "n1")
BEAT = Heartbeat("active", 0, 0)


def gate_of(dispatcher: Dispatcher) -> Gate:
    return Gate(dispatcher, AuditLog(dispatcher.engine))


async def refusal(work: Awaitable[object]) -> Refused:
    with pytest.raises(Refused) as caught:
        await work
    return caught.value


async def refusals(gate: Gate, who: Identity, times: list[float]) -> list[tuple[int, str]]:
    """Status and code of each request that is refused."""
    refused = []
    for now in times:
        try:
            await gate.admit(who, now)
        except Refused as one:
            refused.append((one.status, one.code))
    return refused


def test_an_honest_node_is_never_told_to_wait() -> None:
    async def test(dispatcher: Dispatcher, _: Dispatcher) -> None:
        gate = gate_of(dispatcher)
        times = [NOW + step / 130 for step in range(20_000)]
        assert await refusals(gate, NODE, times) == []

    with_dispatchers(test)


def test_who_goes_on_when_told_to_wait_is_put_into_quarantine_for_all_to_see() -> None:
    async def test(dispatcher: Dispatcher, _: Dispatcher) -> None:
        await dispatcher.register(Register(1.0, "n1"), NOW)
        codes = await refusals(gate_of(dispatcher), NODE, [NOW] * 3_000)
        assert codes[0] == (429, "too_fast")
        assert codes[-1] == (429, "quarantined")
        record = await dispatcher.node("n1")
        assert record is not None
        assert record.status is NodeStatus.QUARANTINED

    with_dispatchers(test)


def test_who_does_what_no_honest_node_does_is_put_out_and_the_audit_log_says_why() -> None:
    async def test(dispatcher: Dispatcher, other: Dispatcher) -> None:
        await dispatcher.register(Register(1.0, "n1"), NOW)
        gate = gate_of(dispatcher)
        for call in range(2):
            await gate.admit(NODE, NOW + call / 10)
            dispatcher.misdeeds.note("n1", Misdeed.MADE_UP, 600)
            dispatcher.misdeeds.note("n1", Misdeed.FOREIGN_HOST)
            dispatcher.misdeeds.note("n1", Misdeed.FOREIGN_LINKS)
            await gate.account(NODE, NOW + call / 10, Origin("192.0.2.7", 7.0))
        assert (await refusal(gate.admit(NODE, NOW + 5))).code == "quarantined"
        (entry,) = await AuditLog(dispatcher.engine).read()
        assert (entry.action, entry.token_id, entry.address) == ("node.quarantine", "n1", "192.0.2.7")
        assert (entry.time, "n1: " in entry.target) == (7.0, True)
        assert "foreign_host 2, foreign_links 2, made_up 1200" in entry.target
        assert (gate.misdeeds, gate.quarantines) == ({"made_up": 1200, "foreign_host": 2, "foreign_links": 2}, 1)
        await other.tick(NOW + 6, 0.0)
        assert (await refusal(gate_of(other).admit(NODE, NOW + 6))).code == "quarantined"

    with_dispatchers(test)


def test_one_bad_call_alone_and_what_people_try_out_are_forgiven() -> None:
    async def test(dispatcher: Dispatcher, _: Dispatcher) -> None:
        await dispatcher.register(Register(1.0, "n1"), NOW)
        gate = gate_of(dispatcher)
        dispatcher.misdeeds.note("n1", Misdeed.MADE_UP, 5_000)
        await gate.account(NODE, NOW, NOWHERE)
        person = Identity(Role.OPERATOR, "someone")
        for _call in range(20):
            dispatcher.misdeeds.note("someone", Misdeed.FOREIGN_URL)
            await gate.account(person, NOW, NOWHERE)
        assert await refusals(gate, NODE, [NOW]) == []
        assert await refusals(gate, person, [NOW]) == []

    with_dispatchers(test)


def test_a_whole_fleet_may_join_at_once_with_one_token() -> None:
    async def test(dispatcher: Dispatcher, _: Dispatcher) -> None:
        assert await refusals(gate_of(dispatcher), Identity(Role.JOIN, "one"), [NOW] * 10_000) == []

    with_dispatchers(test)


def test_an_order_given_at_one_coordinator_binds_the_other() -> None:
    async def test(one: Dispatcher, other: Dispatcher) -> None:
        await other.register(Register(1.0, "n1"), NOW)
        await other.tick(NOW, 0.0)
        assert await one.change_node("n1", NodeEvent.QUARANTINE)
        await other.heartbeat("n1", BEAT, NOW + 1)
        await other.tick(NOW + 1, 0.0)
        assert (await refusal(gate_of(other).admit(NODE, NOW + 1))).code == "quarantined"
        await other.register(Register(1.0, "n1"), NOW + 2)
        assert (await refusal(gate_of(other).admit(NODE, NOW + 2))).code == "quarantined"
        await one.change_node("n1", NodeEvent.RELEASE)
        await other.tick(NOW + 3, 0.0)
        await gate_of(other).admit(NODE, NOW + 3)

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


def test_a_node_that_came_back_at_another_coordinator_is_not_gone() -> None:
    """A coordinator remembered that the node had left. So another node that knew the id of its lease could give its
    host away, which was asked again too soon."""

    async def test(dispatcher: Dispatcher, other: Dispatcher) -> None:
        await other.register(Register(1.0, "n2"), NOW)
        await dispatcher.register(Register(1.0, "n1", instance="i", boot=1), NOW)
        await dispatcher.leave("n1", NOW + 1)
        assert await dispatcher.nodes.gone_among(dispatcher.engine, ["n1", "n2", "n3"]) == {"n1", "n3"}
        await other.register(Register(1.0, "n1", instance="i", boot=2), NOW + 2)
        await other.add([NewURLs("h.test", ["http://h.test/"], 5, 0, "")], NOW + 2)
        (lease,) = (await other.work("n1", WorkRequest(10, max_hosts=1, request_id="1"), NOW + 3)).leases
        assert await dispatcher.nodes.gone_among(dispatcher.engine, ["n1"]) == set()
        told = Results([], [HostReport(lease.lease_id, "h.test", True)])
        await dispatcher.take("n2", told, NOW + 4)
        state = await dispatcher.engine.host_state(dispatcher.engine.shard_of("h.test"), "h.test")
        assert state is not None
        assert state.lease_id

    with_dispatchers(test)
