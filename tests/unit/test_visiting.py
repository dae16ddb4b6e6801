"""Visits of hosts that the frontier does not know: for whom, how many, and for how long they are remembered."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from drumlin.coordinator.giving import visiting
from drumlin.coordinator.giving.visiting import STRANGER_NOTE_BYTES_MAX, STRANGERS_KEPT_S, STRANGERS_PER_SPONSOR
from drumlin.engines.blocking import drive
from drumlin.protocol import HostNote, Work, WorkLease, WorkRequest
from drumlin.robots import Decision
from tests.harness.dispatching import Asker, Driven, batch_of, dispatcher, release

LONG_S = 1e4


@pytest.fixture
def made() -> Driven:
    return dispatcher(lease_s=LONG_S)


def visit(made: Driven, host: str, sponsor: WorkLease | None, now: float = 1.0, node: str = "n0") -> Work:
    sponsors = [(sponsor.lease_id, sponsor.host)] if sponsor else []
    return made.work(node, WorkRequest(0, max_hosts=0, visits=[host], visits_for=sponsors), now)


def remembered(made: Driven, host: str) -> bool:
    """Whether the engine keeps anything of a host."""
    engine = made.made.engine
    return any(host in shard.hosts for shard in engine._shards)  # type: ignore[attr-defined]


def note(rules: bytes) -> bytes:
    decision = Decision(rules, False, False, 100.0, False, "rules")
    return msgspec.msgpack.encode(HostNote({"http": msgspec.msgpack.encode(decision)}))


def test_an_unknown_host_is_visited_only_for_a_host_that_the_node_holds(made: Driven) -> None:
    own, _ = Asker(made).work(0.0, hosts=2)
    other = Asker(made, "n1").work(0.0, hosts=1)[0]
    forged = msgspec.structs.replace(own, host=other.host)
    for sponsor in (None, other, forged):
        assert visit(made, "new.test", sponsor).leases == []
        assert not remembered(made, "new.test")
    (lease,) = visit(made, "new.test", own).leases
    assert (lease.host, lease.assignments) == ("new.test", [])


def test_a_host_that_the_crawl_knows_is_visited_for_nothing_in_particular(made: Driven) -> None:
    assert [lease.host for lease in visit(made, "h0.test", None).leases] == ["h0.test"]


def test_a_lease_that_was_given_back_brings_no_unknown_host(made: Driven) -> None:
    (own,) = Asker(made).work(0.0, hosts=1)
    made.results(batch_of([], [release(own)]), 1.0)
    assert visit(made, "new.test", own, 2.0).leases == []
    assert not remembered(made, "new.test")


def test_one_host_brings_only_as_many_unknown_ones_as_its_robots_could_lead_through(made: Driven) -> None:
    (own,) = Asker(made).work(0.0, hosts=1)
    names = [f"invented{number}.test" for number in range(4 * STRANGERS_PER_SPONSOR)]
    given = [name for name in names if visit(made, name, own).leases]
    assert given == names[:STRANGERS_PER_SPONSOR]
    assert [name for name in names if remembered(made, name)] == given


def test_requests_at_the_same_time_do_not_share_a_place(made: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    (own,) = Asker(made).work(0.0, hosts=1)
    engine = made.made.engine
    put_entries = engine.put_entries

    async def put_slowly(table: str, entries: dict[str, bytes]) -> None:
        await asyncio.sleep(0)
        await put_entries(table, entries)

    monkeypatch.setattr(engine, "put_entries", put_slowly)

    async def visit_all() -> list[Work]:
        names = [f"invented{number}.test" for number in range(4 * STRANGERS_PER_SPONSOR)]
        sponsors = [(own.lease_id, own.host)]
        requests = [WorkRequest(0, max_hosts=0, visits=[name], visits_for=sponsors) for name in names]
        return await asyncio.gather(*(made.made.work("n0", request, 1.0) for request in requests))

    assert sum(len(work.leases) for work in asyncio.run(visit_all())) == STRANGERS_PER_SPONSOR


@pytest.mark.parametrize(("bound", "value"), [("STRANGERS_PER_NODE", 3), ("STRANGERS_MAX", 3)])
def test_a_node_and_all_nodes_bring_only_so_many(
    made: Driven, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    monkeypatch.setattr(visiting, bound, value)
    leases = Asker(made).work(0.0, hosts=2)
    names = [f"invented{number}.test" for number in range(6)]
    given = [name for number, name in enumerate(names) if visit(made, name, leases[number % 2]).leases]
    assert len(given) == value


def test_an_unknown_host_is_forgotten_after_a_while_but_never_its_next_contact(made: Driven) -> None:
    (own,) = Asker(made).work(0.0, hosts=1)
    (lease,) = visit(made, "new.test", own).leases
    made.tick(STRANGERS_KEPT_S + 2)
    assert remembered(made, "new.test"), "it is held"
    made.results(batch_of([], [release(lease, next_contact_s=500.0, note=note(b"User-agent: *"))]), 100.0)
    made.tick(599.0)
    assert visit(made, "new.test", own, 590.0).leases == []
    assert remembered(made, "new.test")
    made.tick(590.0 + STRANGERS_KEPT_S + 1)
    assert not remembered(made, "new.test")
    assert drive(made.made.engine.get_entries(visiting.STRANGERS_TABLE)) == {}


def test_an_unknown_host_that_becomes_known_makes_room_for_others(made: Driven) -> None:
    (own,) = Asker(made).work(0.0, hosts=1)
    for number in range(STRANGERS_PER_SPONSOR):
        visit(made, f"new{number}.test", own)
    made.seed(["http://new0.test/"], 2.0)
    made.tick(10.0)
    assert visit(made, "one-more.test", own, 11.0).leases
    assert not visit(made, "two-more.test", own, 11.0).leases
    made.tick(STRANGERS_KEPT_S + 20)
    assert remembered(made, "new0.test")


def test_of_an_unknown_host_no_long_rules_are_kept(made: Driven) -> None:
    (own,) = Asker(made).work(0.0, hosts=1)
    engine = made.made.engine
    for name, rules, kept in (("a.new", b"#short", True), ("b.new", b"#" * STRANGER_NOTE_BYTES_MAX, False)):
        (lease,) = visit(made, name, own).leases
        made.results(batch_of([], [release(lease, note=note(rules))]), 1.0)
        assert bool(drive(engine.host_note(engine.shard_of(name), name))) is kept
