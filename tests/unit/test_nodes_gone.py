"""Nodes that are not at work any more are shown without the figures of when they were."""

from __future__ import annotations

import logging

import pytest

from drumlin.coordinator.nodes import NODES_AT_ONCE, NodeRegistry
from drumlin.engines.blocking import drive
from drumlin.logs.events import FIELDS
from drumlin.protocol import Heartbeat, NodeRecord, NodeStatus
from tests.harness.dispatching import Driven, dispatcher

BUSY = {"hosts": 17, "unstarted": 40, "lag_s": 1.0}


def at_work() -> Driven:
    """A crawl whose node n0 has just reported that it is busy."""
    made = dispatcher()
    made.register("n0", 0.0)
    for second in (1.0, 2.0):
        made.heartbeat("n0", Heartbeat("active", 3.0, int(second) * 40, **BUSY), second)  # type: ignore[arg-type]
    assert node(made).pages_per_s > 0
    return made


def node(made: Driven) -> NodeRecord:
    (record,) = drive(made.made.node_records())
    return record


def figures(record: NodeRecord) -> tuple[float, ...]:
    return record.pages_per_s, record.current_load, record.leases, record.unstarted, record.lag_s


def test_a_node_that_has_failed_fetches_nothing_and_holds_nothing() -> None:
    made = at_work()
    made.tick(60.0)
    assert (node(made).status, node(made).total_crawled) == (NodeStatus.FAILED, 80)
    assert figures(node(made)) == (0, 0, 0, 0, 0)


def test_a_node_that_has_left_fetches_nothing_and_holds_nothing() -> None:
    made = at_work()
    made.leave("n0", 3.0)
    assert node(made).status is NodeStatus.INACTIVE
    assert figures(node(made)) == (0, 0, 0, 0, 0)


def test_a_node_that_comes_back_is_shown_with_its_figures_again() -> None:
    made = at_work()
    made.tick(60.0)
    made.heartbeat("n0", Heartbeat("active", 2.0, 120, hosts=5), 61.0)
    assert (node(made).status, node(made).leases, node(made).current_load) == (NodeStatus.ACTIVE, 5, 2.0)


def test_a_node_that_was_silent_is_said_to_be_back(caplog: pytest.LogCaptureFixture) -> None:
    made = at_work()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "drumlin.coordinator"):
        made.tick(60.0)
        made.tick(61.0)
        made.heartbeat("n0", Heartbeat("active", 2.0, 120), 61.5)
        made.tick(62.0)
        made.tick(63.0)
    assert [getattr(entry, FIELDS)["event"] for entry in caplog.records] == ["silent", "back"]


def test_reading_the_records_of_a_large_fleet_lets_others_have_their_turn() -> None:
    made = dispatcher()
    for number in range(NODES_AT_ONCE + 1):
        made.register(f"n{number}", 0.0)
    turns: list[str] = []

    async def turn() -> None:
        # A node that was silent for long calls while the records are read.
        await made.made.nodes.seen(made.made.engine, "n0", 1_000.0)
        turns.append("others")

    drive(made.made.nodes.review(made.made.engine, 1_000.0, turn))
    assert len(turns) == 2
    present = [one.node_id for one in drive(made.made.node_records()) if one.status is NodeStatus.ACTIVE]
    assert present == ["n0"]


def test_what_one_reader_does_to_a_record_no_other_reader_sees() -> None:
    made = at_work()
    made.tick(3.0)
    engine, registry = made.made.engine, NodeRegistry()
    (first,) = drive(registry.all(engine))
    first.status, first.leases = NodeStatus.QUARANTINED, 0
    (second,) = drive(registry.all(engine))
    assert (second.status, second.leases) == (NodeStatus.ACTIVE, BUSY["hosts"])
    made.heartbeat("n0", Heartbeat("active", 2.0, 120, hosts=5), 4.0)
    drive(made.made.nodes.flush(engine))
    (third,) = drive(registry.all(engine))
    assert third.leases == 5, "what has changed is read again"
    drive(engine.delete_entries("nodes", ["n0"]))
    drive(engine.delete_entries("beats", ["n0"]))
    assert drive(registry.all(engine)) == []
