"""What `bench.reality` makes of what the web has seen, and that its simulated side is hurt as planned."""

from __future__ import annotations

import argparse

import pytest

from bench.reality import doubles, figures_of, pauses_s, plan_of, rate, waits_s
from bench.reality_plan import FREEZE, KILL, Plan, Record
from bench.reality_sim import run_simulation

OPTIONS = argparse.Namespace(
    lease=6.0, hosts=24, pages=150, delay=0.5, latency_ms=200.0, concurrency=16, warm_up=8.0, runs=1
)


@pytest.fixture
def plan() -> Plan:
    return plan_of(0, OPTIONS)


@pytest.fixture
def record(plan: Plan) -> Record:
    """Three hosts; the first two were held by the node that was killed after 10 s."""
    contacts = [
        (9.0, 0, 100),
        (9.5, 1, 200),
        (10.2, 2, 300),
        (14.0, 1, 200),
        (15.0, 0, 101),
        (15.5, 0, -1),
        (16.0, 2, 7),
    ]
    return Record(plan, contacts, {KILL: (10.0, [0, 1]), FREEZE: (10.0, [])})


def test_hosts_of_a_dead_node_wait_for_their_next_contact(record: Record) -> None:
    assert sorted(waits_s(record, KILL, 30.0)) == [4.0, 5.0]
    assert sorted(waits_s(record, KILL, 14.5)) == [4.0, 4.5]


def test_a_page_that_was_asked_for_before_is_a_double_at_the_time_of_the_second_request(record: Record) -> None:
    assert doubles(record, 10.0, 20.0) == 1
    assert doubles(record, 14.5, 20.0) == 0


def test_pauses_are_told_by_when_they_end_and_rates_leave_out_robots(record: Record) -> None:
    assert sorted(pauses_s(record, 10.0, 20.0)) == pytest.approx([4.5, 5.8, 6.0])
    assert rate(record, 16.0) == 2 / 5.0


def test_the_simulated_fleet_loses_a_node_and_others_take_its_hosts(plan: Plan) -> None:
    figures = figures_of(run_simulation(plan))
    assert figures["hosts of the killed node"] > 0
    assert OPTIONS.lease / 2 - 1 < figures["kill: s until the last of them was"] < 2 * OPTIONS.lease
    assert figures["freeze: s until the last of them was"] < 2 * OPTIONS.lease
    assert figures["pages/s at the end"] > 0.8 * figures["pages/s before the kill"]
