"""Giving work out: which hosts a node gets, how many, and what is taken back for others."""

from __future__ import annotations

import msgspec
import pytest

from drumlin.coordinator.giving.crowd import UNWAITED_NODES_MAX
from drumlin.coordinator.giving.placement import Placement
from drumlin.engines.blocking import drive
from drumlin.protocol import Heartbeat, HostNote, Work, WorkLease, WorkRequest
from tests.harness.dispatching import HOSTS, SEEDS, Asker, batch_of, dispatcher, release


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_no_host_is_out_of_every_nodes_reach(nodes: int) -> None:
    made = dispatcher(shards=4)
    askers = [Asker(made, f"n{number}") for number in range(nodes)]
    leased = [lease.host for asker in askers for lease in asker.work(0.0)]
    assert sorted(leased) == HOSTS


def test_a_node_gets_the_hosts_of_domains_it_prefers_first() -> None:
    made = dispatcher(["http://www.blue.test/", "http://green.test/", *SEEDS], scope="any")
    (lease,) = Asker(made).work(0.0, hosts=1, preferred_domains=["blue.test"])
    assert lease.host == "www.blue.test"


def test_in_spread_mode_a_host_goes_to_a_node_that_has_not_had_it_lately() -> None:
    made = dispatcher(SEEDS[:1], affinity="spread", delay_s=0.0)
    made.seed([f"http://h0.test/{number}" for number in range(30)], 0.0)
    asker = Asker(made)
    (lease,) = asker.work(0.0)
    made.results(batch_of([], [release(lease)]), 1.0)
    assert asker.work(2.0) == []
    assert Asker(made, "n1").work(2.0)


def test_a_slow_node_is_asked_to_give_back_what_it_has_not_begun_when_others_have_nothing() -> None:
    made = dispatcher()
    beat = Heartbeat("active", 1.0, 0, leases=["n0:1", "n0:2", "n0:3", "n0:4"], hosts=4, unstarted=400)
    Asker(made).work(0.0)
    assert made.heartbeat("n0", beat, 1.0).revoke == []
    assert Asker(made, "n1").work(2.0) == []
    assert made.heartbeat("n0", beat, 2.1).revoke == ["n0:1", "n0:2"]
    assert made.heartbeat("n0", beat, 10.0).revoke == [], "that was long ago"


def renewal(leases: list[WorkLease]) -> WorkRequest:
    return WorkRequest(100, max_hosts=0, renew=[(lease.lease_id, lease.host) for lease in leases])


def test_without_a_delay_a_node_shares_its_hosts_with_one_that_has_none() -> None:
    made = dispatcher(SEEDS[:1], delay_s=0.0)
    made.seed([f"http://h{host}.test/{path}" for host in range(4) for path in range(30)], 0.0)
    leases = Asker(made).work(0.0)
    made.heartbeat("n0", Heartbeat("active", 1.0, 0, hosts=4), 0.5)
    kept = made.work("n0", renewal(leases), 1.0)
    assert (len(kept.leases), kept.lost) == (4, [])
    assert all(lease.assignments for lease in kept.leases)
    assert Asker(made, "n1").work(1.0) == []
    shared = made.work("n0", renewal(leases), 1.1)
    assert (len(shared.leases), len(shared.lost)) == (2, 2)
    assert not any(lease.assignments for lease in shared.leases)


def test_a_node_with_one_host_keeps_it_and_one_with_much_to_do_is_not_given_others() -> None:
    made = dispatcher(SEEDS[:1], delay_s=0.0)
    made.seed([f"http://h0.test/{path}" for path in range(30)], 0.0)
    leases = Asker(made).work(0.0)
    made.heartbeat("n0", Heartbeat("active", 1.0, 0, hosts=1), 0.5)
    assert Asker(made, "n1").work(1.0) == []
    alone = made.work("n0", renewal(leases), 1.1)
    assert alone.lost == []
    assert alone.leases[0].assignments
    made.heartbeat("n0", Heartbeat("active", 1.0, 0, hosts=2), 2.0)
    made.work("n1", WorkRequest(100, max_hosts=10, unstarted=1000), 2.0)
    busy = made.work("n0", renewal(leases), 2.1)
    assert busy.leases[0].assignments


def test_a_node_with_far_fewer_hosts_than_its_share_gets_some_of_anothers() -> None:
    made = dispatcher(SEEDS[:1], delay_s=0.0)
    for node in ("n0", "n1"):
        made.register(node, 0.0)
    made.seed([f"http://h{host}.test/{path}" for host in range(10) for path in range(30)], 0.0)
    asker = Asker(made)
    leases = asker.work(0.0) + asker.work(0.0)
    assert len(leases) == 10
    made.heartbeat("n0", Heartbeat("active", 1.0, 0, hosts=10), 0.5)
    made.heartbeat("n1", Heartbeat("active", 1.0, 0, hosts=1), 0.5)
    made.tick(0.6)
    made.work("n1", WorkRequest(100, max_hosts=10, unstarted=1000), 1.0)
    assert len(made.work("n0", renewal(leases), 1.1).lost) == 5


def test_a_host_whose_lease_was_lost_goes_to_the_next_node_that_asks() -> None:
    made = dispatcher(SEEDS[:1], delay_s=1.0, lease_s=20.0)
    (lost,) = Asker(made).work(0.0)
    made.seed([f"http://h{host}.test/" for host in range(1, 40)], 1.0)
    made.tick(30.0)
    assert lost.host not in {lease.host for lease in Asker(made, "n1").work(30.5)}, "its delay counts from its end"
    assert lost.host in {lease.host for lease in Asker(made, "n2").work(31.0)}


def test_a_host_is_visited_by_one_node_at_a_time_and_others_hear_what_is_known_of_it() -> None:
    made = dispatcher([*SEEDS, "http://rules.test/"])

    def ask(node: str, request: str, now: float) -> Work:
        visits = ["rules.test", "no host"]
        return made.work(node, WorkRequest(0, max_hosts=0, request_id=request, visits=visits), now)

    first = ask("n0", "1", 0.0)
    (lease,) = first.leases
    assert (lease.host, lease.assignments, first.notes) == ("rules.test", [], {})
    second = ask("n1", "1", 0.0)
    assert (second.leases, second.notes) == ([], {"rules.test": b""})
    note = msgspec.msgpack.encode(HostNote(slow_s=1.0))
    made.results(batch_of([], [release(lease, 5.0, note=note)]), 1.0)
    assert ask("n1", "2", 2.0).notes == {"rules.test": note}, "its next contact is not due"
    (later,) = ask("n1", "3", 5.5).leases
    assert (later.wait_s, later.note) == (0.5, note)


def test_a_host_that_is_blocked_is_not_visited() -> None:
    made = dispatcher()
    drive(made.made.orders.block("rules.test"))
    work = made.work("n0", WorkRequest(0, max_hosts=0, visits=["rules.test"]), 0.0)
    assert (work.leases, work.notes) == ([], {"rules.test": b""})


def test_a_node_gets_no_more_than_it_can_do_in_a_lease() -> None:
    made = dispatcher(SEEDS[:1], delay_s=0.0, lease_s=10.0)
    made.seed([f"http://h{host}.test/{path}" for host in range(200) for path in range(8)], 0.0)
    asker = Asker(made)
    given = sum(len(lease.assignments) for lease in asker.work(0.0, hosts=1000, tasks=5000))
    assert 190 <= given <= 200


def test_shards_are_dealt_evenly_and_a_node_that_goes_moves_few() -> None:
    placement = Placement(64)
    names = [f"n{number}" for number in range(8)]
    before = {shard: name for name in names for shard in placement.own(name, names, 1)}
    assert sorted(before) == list(range(64))
    after = {shard: name for name in names[:-1] for shard in placement.own(name, names[:-1], 2)}
    moved = [shard for shard in before if before[shard] != "n7" and before[shard] != after[shard]]
    assert len(moved) <= 16


def test_how_fast_a_node_is_does_not_depend_on_how_often_it_asks() -> None:
    made = dispatcher()
    made.register("n0", 0.0)
    for second in range(1, 61):
        for part in range(10):
            made.work("n0", WorkRequest(0), second + part / 10)
        if second % 5 == 0:
            made.heartbeat("n0", Heartbeat("active", 1.0, 36 * second), second + 0.95)
    (record,) = drive(made.made.node_records())
    assert record.pages_per_s == pytest.approx(36, rel=0.05)


def test_nodes_wait_when_others_have_all_that_the_page_budget_allows() -> None:
    made = dispatcher(pages_max=3)
    made.seed([f"http://h0.test/{number}" for number in range(30)], 0.0)
    for number in range(UNWAITED_NODES_MAX + 1):
        made.register(f"n{number}", 0.0)
    leases = [lease for number in range(3) for lease in Asker(made, f"n{number}").work(0.0)]
    assert sum(len(lease.assignments) for lease in leases) == 3
    left_out = made.work("n9", WorkRequest(100, max_hosts=10), 1.0)
    assert (left_out.leases, left_out.retry_after_s > 0) == ([], True)
