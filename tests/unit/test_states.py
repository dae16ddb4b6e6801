"""The states of crawls and nodes: every event in every state, driven through a coordinator."""

from __future__ import annotations

from itertools import product
from typing import get_args, get_type_hints

import pytest

from drumlin.api.messages.hosts import NOT_FOLLOWED, HostsQuery, URLState
from drumlin.api.messages.people import NodesQuery
from drumlin.coordinator.dispatch import STATE_KEY
from drumlin.engines.blocking import drive
from drumlin.model import HostStanding, TaskState
from drumlin.protocol import (
    GONE,
    ORDERS,
    PRESENT,
    CrawlEvent,
    CrawlState,
    Heartbeat,
    NodeEvent,
    NodeStatus,
    Register,
    WorkRequest,
)
from tests.harness.dispatching import Driven, dispatcher

# A row for each state, a column for each event. They are written out here, and not taken from the tables, so that
# changing a table by mistake fails.
CRAWLS = """
            pause     resume    stop      done
running     paused    running   draining  finished
paused      paused    running   draining  paused
draining    draining  running   draining  draining
finished    finished  running   finished  finished
"""
NODES = """
             registers    calls        falls_silent  rests        leaves    drain     quarantine   release
active       active       active       failed        quiet        inactive  draining  quarantined  active
inactive     active       active       inactive      inactive     inactive  draining  quarantined  inactive
failed       active       active       failed        failed       inactive  draining  quarantined  failed
quiet        active       active       quiet         quiet        inactive  draining  quarantined  quiet
quarantined  quarantined  quarantined  quarantined   quarantined  inactive  draining  quarantined  active
draining     active       draining     failed        quiet        inactive  draining  quarantined  active
"""
SILENT_S = 1_000.0


def cells(table: str) -> list[tuple[str, str, str]]:
    """State, event and the state that follows."""
    header, *rows = (line.split() for line in table.strip().splitlines())
    return [(state, event, after) for state, *row in rows for event, after in zip(header, row, strict=True)]


def test_the_tables_name_every_state_and_event() -> None:
    crawls = {(state, event) for state, event, _ in cells(CRAWLS)}
    assert crawls == set(product(CrawlState, CrawlEvent))
    nodes = {(state, event.replace("_", " ")) for state, event, _ in cells(NODES)}
    assert nodes == set(product(NodeStatus, NodeEvent))
    assert PRESENT | GONE | set(ORDERS.values()) == set(NodeStatus)


def move(made: Driven, event: str) -> None:
    match CrawlEvent(event):
        case CrawlEvent.PAUSE:
            drive(made.made.pause())
        case CrawlEvent.RESUME:
            drive(made.made.resume())
        case CrawlEvent.STOP:
            drive(made.made.stop("a test"))
        case CrawlEvent.DONE:
            made.tick(1.0)


def crawl_in(state: str) -> Driven:
    """A crawl without URLs, in this state."""
    made = dispatcher([])
    ways = {"running": [], "paused": ["pause"], "draining": ["stop"], "finished": ["done"]}
    for event in ways[state]:
        move(made, event)
    assert made.state == state
    return made


def stored_state(made: Driven) -> str:
    """The state that other coordinators read; without one, a crawl is running."""
    return (drive(made.made.engine.get_meta(STATE_KEY)) or b"running").decode()


@pytest.mark.parametrize(("state", "event", "after"), cells(CRAWLS))
def test_an_event_moves_a_crawl_as_the_table_says(state: str, event: str, after: str) -> None:
    made = crawl_in(state)
    move(made, event)
    assert made.state == after
    assert stored_state(made) == after


def happen(made: Driven, event: str, now: float) -> None:
    """Let an event happen to node n0, in the same way as in a crawl."""
    match NodeEvent(event.replace("_", " ")):
        case NodeEvent.REGISTERS:
            drive(made.made.register(Register(1.0, "n0"), now))
        case NodeEvent.CALLS:
            made.work("n0", WorkRequest(1), now)
        case NodeEvent.FALLS_SILENT | NodeEvent.RESTS:
            made.tick(now + SILENT_S)
        case NodeEvent.LEAVES:
            made.leave("n0", now)
        case ordered:
            assert drive(made.made.change_node("n0", ordered))


def status_of(made: Driven) -> NodeStatus:
    record = drive(made.made.node("n0"))
    assert record is not None
    return record.status


def crawl_with(status: str, *, sends_heartbeats: bool) -> Driven:
    """A crawl whose node n0 has this status."""
    made = dispatcher()
    drive(made.made.register(Register(1.0, "n0"), 1.0))
    if sends_heartbeats:
        made.heartbeat("n0", Heartbeat("ok", 0.0, 0), 1.0)
    ways = {
        "active": [],
        "inactive": ["leaves"],
        "failed": ["falls_silent"],
        "quiet": ["rests"],
        "quarantined": ["quarantine"],
        "draining": ["drain"],
    }
    for event in ways[status]:
        happen(made, event, 1.0)
    return made


@pytest.mark.parametrize(("status", "event", "after"), cells(NODES))
def test_an_event_changes_a_node_as_the_table_says(status: str, event: str, after: str) -> None:
    silent = {"failed": True, "quiet": False}
    made = crawl_with(status, sends_heartbeats=silent.get(status, event != "rests"))
    assert status_of(made) == status
    if status in ORDERS.values() and event == "registers":
        # What people ordered holds; without it, the table does.
        drive(made.made.orders.order("n0", NodeEvent.RELEASE))
    happen(made, event, SILENT_S + 2.0)
    assert status_of(made) == after


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_outlives_the_process_that_it_was_given_for(order: NodeEvent) -> None:
    made = crawl_with("active", sends_heartbeats=True)
    assert drive(made.made.change_node("n0", order))
    made.leave("n0", 2.0)
    drive(made.made.register(Register(1.0, "n0"), 3.0))
    assert status_of(made) == ORDERS[order]


def test_the_lists_that_messages_spell_out_are_those_of_the_states() -> None:
    """A message cannot name an enumeration and further words together, so it repeats the words."""
    assert set(get_args(get_type_hints(NodesQuery)["status"])) == {"", *NodeStatus}
    assert set(get_args(get_type_hints(HostsQuery)["state"])) == {"all", "blocked", *HostStanding}
    assert set(get_args(URLState)) == {NOT_FOLLOWED, *TaskState}
