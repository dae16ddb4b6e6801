"""Whichever coordinator writes and whichever reads, their times up to `AGREED_S` apart: the pace at a host holds.

True time is `now`; one of two coordinators shows `AGREED_S` less.
"""

from __future__ import annotations

import random

import pytest

from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import AGREED_S
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.protocol import Register, WorkLease, WorkRequest
from tests.harness.dispatching import batch_of, release, result

DELAY_S = 1.0
LEASE_S = 10.0
URLS = ["http://a.test/1", "http://a.test/2"]
TINY_S = 1e-6


class SharedEngine(MemoryEngine):
    shared = True


class Two:
    """Two dispatchers on one engine: one shows the true time, the other is behind."""

    def __init__(self) -> None:
        engine = SharedEngine(1)
        config = CrawlConfig(delay_s=DELAY_S, lease_s=LEASE_S)
        self.true, self.late = (Dispatcher(engine, config, URLS, chance=random.Random(1), name=name) for name in "ab")
        for one in (self.true, self.late):
            drive(one.open())
        drive(self.true.seed(URLS, 0.0))
        self.requests = 0

    def lease(self, one: Dispatcher, now: float) -> list[WorkLease]:
        self.requests += 1
        request = WorkRequest(1, max_hosts=1, request_id=str(self.requests))
        return drive(one.work("n0", request, now - self.behind_s(one))).leases

    def behind_s(self, one: Dispatcher) -> float:
        return AGREED_S if one is self.late else 0.0


def test_a_host_given_back_through_one_is_not_contacted_too_early_through_the_other() -> None:
    two = Two()
    (lease,) = two.lease(two.true, 100.0)
    done = batch_of([result(task) for task in lease.assignments], [release(lease, next_contact_s=DELAY_S)])
    drive(two.late.take(None, done, 101.0 - AGREED_S))
    (again,) = two.lease(two.true, 101.5)
    assert 101.5 + again.wait_s >= 101.0 + DELAY_S


@pytest.mark.parametrize("ender", ["true", "late"])
def test_a_lost_lease_ends_after_its_node_stopped_and_a_delay_later_the_host_is_contacted(ender: str) -> None:
    two = Two()
    (lease,) = two.lease(two.late, 100.0)
    stops = 100.0 + lease.ttl_s
    one: Dispatcher = getattr(two, ender)
    assert drive(one.engine.expire_all(stops - TINY_S - two.behind_s(one))) == []
    ended = stops + 2 * AGREED_S
    assert drive(one.engine.expire_all(ended - two.behind_s(one))) == ["a.test"]
    (again,) = two.lease(two.true, ended)
    assert ended + again.wait_s >= stops + DELAY_S


def test_the_hosts_of_a_node_that_leaves_wait_a_whole_delay() -> None:
    two = Two()
    drive(two.true.register(Register(0.0, "n0"), 99.0))
    two.lease(two.true, 100.0)
    drive(two.late.leave("n0", 101.0 - AGREED_S))
    drive(two.true.register(Register(0.0, "n0"), 101.0))
    (again,) = two.lease(two.true, 101.0)
    assert 101.0 + again.wait_s >= 101.0 + DELAY_S
