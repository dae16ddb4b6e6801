"""Nodes that talk to several coordinators, which come and go: what one knows of a node no other undoes, and a node that
has the right to its name gets it."""

from __future__ import annotations

import random

import msgspec
import pytest

from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.nodes import BEATS_TABLE, TABLE, Beat, Proof, SupersededError
from drumlin.engines.blocking import drive
from drumlin.errors import BusyError
from drumlin.protocol import Heartbeat, NodeEvent, NodeRecord, NodeStatus, Register, WorkRequest
from tests.harness.dispatching import SEEDS, Asker, Driven, dispatcher

BEAT = Heartbeat("active", 1.0, 7, hosts=2)


def another(first: Driven, name: str = "another") -> Driven:
    """A coordinator that was just started on the same engine."""
    engine, config = first.made.engine, first.made.config
    made = Driven(Dispatcher(engine, config, SEEDS, chance=random.Random(2), name=name))
    drive(made.made.open())
    return made


def stored(made: Driven, node: str = "n0") -> NodeRecord:
    """The record of a node as a coordinator reads it that has not met the node."""
    record = drive(another(made).made.node(node))
    assert record is not None
    return record


# What one coordinator knows, another does not undo


@pytest.mark.parametrize("call", ["heartbeat", "work"])
def test_a_look_at_a_coordinator_that_does_not_know_the_node_changes_nothing_of_who_it_is(call: str) -> None:
    first = dispatcher()
    first.register("n0", 1.0, boot=3, metadata={"pid": "7"})
    second = another(first)
    if call == "heartbeat":
        second.heartbeat("n0", BEAT, 2.0)
    else:
        second.work("n0", WorkRequest(1), 2.0)
    drive(second.made.nodes.flush(second.made.engine))
    record = stored(first)
    assert (record.instance, record.boot, record.released) == ("spool of n0", 3, True)
    assert (record.registered_at, record.metadata) == (1.0, {"pid": "7"})
    second.register("n0", 3.0, boot=3)


def test_a_coordinator_that_knew_an_earlier_process_writes_it_over_no_later_one() -> None:
    first = dispatcher()
    second = another(first)
    first.register("n0", 1.0, boot=1)
    second.heartbeat("n0", BEAT, 2.0)
    first.register("n0", 3.0, boot=2)
    second.heartbeat("n0", BEAT, 4.0)
    second.tick(5.0)
    assert (stored(first).boot, stored(first).released, stored(first).total_crawled) == (2, True, 7)
    with pytest.raises(SupersededError):
        second.register("n0", 6.0, boot=1)


def test_a_beat_that_is_written_late_does_not_bring_back_a_node_that_left() -> None:
    first = dispatcher()
    second = another(first)
    first.register("n0", 1.0)
    second.heartbeat("n0", BEAT, 2.0)
    first.leave("n0", 3.0)
    drive(second.made.nodes.flush(second.made.engine))
    assert stored(first).status is NodeStatus.INACTIVE
    assert [record.status for record in drive(second.made.node_records())] == [NodeStatus.INACTIVE]


def test_the_figures_of_a_node_are_the_latest_that_any_coordinator_heard() -> None:
    first = dispatcher()
    second = another(first)
    first.register("n0", 1.0)
    first.heartbeat("n0", BEAT, 2.0)
    second.heartbeat("n0", msgspec.structs.replace(BEAT, total_crawled=9), 3.0)
    for made in (second, first):
        drive(made.made.nodes.flush(made.made.engine))
    assert drive(second.made.node_records())[0].total_crawled == 9


def test_whatever_a_heartbeat_says_of_a_node_other_coordinators_hear() -> None:
    said = set(Heartbeat.__struct_fields__) & set(NodeRecord.__struct_fields__)
    assert said <= set(Beat.__struct_fields__) <= set(NodeRecord.__struct_fields__)


def test_a_quarantined_node_stays_so_at_a_coordinator_that_was_just_started() -> None:
    first = dispatcher()
    first.register("n0", 1.0)
    drive(first.made.change_node("n0", NodeEvent.QUARANTINE))
    second = another(first)
    assert second.made.orders.nodes == {"n0": NodeStatus.QUARANTINED}
    assert second.register("n0", 3.0, boot=2).status is NodeStatus.QUARANTINED
    assert second.work("n0", WorkRequest(10), 4.0).leases == []


def test_a_worker_that_never_registered_is_seen_and_is_still_to_register() -> None:
    made = dispatcher()
    assert Asker(made, "worker").work(1.0)
    made.tick(2.0)
    assert [record.node_id for record in drive(made.made.node_records())] == ["worker"]
    assert not drive(another(made).made.has_registered("worker"))


# Who gets a name


def register(made: Driven, proof: Proof, now: float, **more: object) -> NodeRecord:
    message = Register(0.0, "n0", **more)  # type: ignore[arg-type]
    return drive(made.made.register(message, now, proof=proof))


@pytest.mark.parametrize("proof", Proof)
def test_its_own_instance_opens_the_door_at_once_unless_a_later_process_is_at_work(proof: Proof) -> None:
    made = dispatcher()
    made.register("n0", 1.0, instance="mine", boot=2)
    assert register(made, proof, 1.1, instance="mine", boot=2).boot == 2
    assert register(made, proof, 1.2, instance="mine", boot=3).boot == 3
    with pytest.raises(SupersededError):
        register(made, proof, 1.3, instance="mine", boot=2)


def test_its_own_token_opens_the_door_at_once_and_ends_no_lease() -> None:
    made = dispatcher()
    made.register("n0", 1.0, instance="mine")
    Asker(made).work(1.0)
    leased = made.totals(1.0).leased
    assert register(made, Proof.OWN_TOKEN, 1.1).instance == "mine"
    assert made.totals(1.1).leased == leased > 0


@pytest.mark.parametrize("instance", ["", "guessed"])
@pytest.mark.parametrize("of_the_node", ["", "mine"])
def test_a_join_token_does_not_open_the_door_of_a_node_at_work(instance: str, of_the_node: str) -> None:
    made = dispatcher()
    made.register("n0", 1.0, instance=of_the_node)
    with pytest.raises(BusyError, match="another --name"):
        register(made, Proof.JOIN_TOKEN, 1.1, instance=instance)
    drive(made.made.change_node("n0", NodeEvent.FALLS_SILENT))
    assert register(made, Proof.JOIN_TOKEN, 3.0, instance=instance).node_id == "n0"


def test_a_node_of_which_redis_lost_the_last_record_joins_at_its_first_start() -> None:
    """The coordinators go on; what they wrote in the second before the failover is gone."""
    made = dispatcher()
    made.register("n0", 1.0, boot=1)
    before = {table: drive(made.made.engine.get_entries(table)) for table in (TABLE, BEATS_TABLE)}
    made.register("n0", 2.0, boot=2)
    for table, entries in before.items():
        drive(made.made.engine.delete_entries(table, ["n0"]))
        drive(made.made.engine.put_entries(table, entries))
    for coordinator in (made, another(made)):
        assert register(coordinator, Proof.JOIN_TOKEN, 3.0, instance="spool of n0", boot=3).boot == 3


def test_what_a_coordinator_remembers_counts_where_the_engine_has_lost_it() -> None:
    made = dispatcher()
    made.register("n0", 1.0, boot=2)
    drive(made.made.engine.delete_entries(TABLE, ["n0"]))
    with pytest.raises(SupersededError):
        made.register("n0", 2.0, boot=1)
    assert [record.boot for record in drive(made.made.node_records())] == [2]


def test_a_good_bye_that_comes_after_the_successor_has_registered_ends_none_of_its_leases() -> None:
    made = dispatcher()
    made.register("n0", 1.0, boot=1)
    made.register("n0", 2.0, boot=2)
    Asker(made).work(2.0)
    leased = made.totals(2.0).leased
    drive(made.made.leave("n0", 3.0, boot=1))
    assert (made.totals(3.0).leased, stored(made).status) == (leased, NodeStatus.ACTIVE)
    drive(made.made.leave("n0", 3.0, boot=2))
    assert (made.totals(3.0).leased, stored(made).status) == (0, NodeStatus.INACTIVE)
