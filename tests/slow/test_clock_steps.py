"""Wall clocks that are stepped while a crawl runs, and coordinators that stand still: no host is hurried, nothing is
fetched twice, and the crawl ends as if nothing had been.

Redis needs no such clock: it is never asked for the time, and no key of it expires.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from drumlin.node.client import RETRY_WAIT_MAX_S
from tests.harness.balanced import NAMESPACE
from tests.harness.fleet import needs_redis
from tests.harness.stepped_crawls import Shape, crawl_on_one_machine, finish, stepped, stepped_fleet
from tests.harness.stepping import needs_faketime

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), needs_faketime]

SHAPE = Shape(hosts=10, pages=40)
STEPS_S = (60.0, -60.0, 3_600.0, -3_600.0, None)
"""None: back and forth."""
FROZEN_S = 25.0
"""Longer than a lease."""


def as_long_as(unstepped_s: float) -> float:
    return 1.1 * unstepped_s + 5.0


@pytest.fixture(scope="module")
def one_machine_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """How long it takes when no clock is stepped."""
    return crawl_on_one_machine(tmp_path_factory.mktemp("unstepped"), SHAPE)


@pytest.mark.parametrize("step_s", STEPS_S)
def test_one_machine_does_not_notice_that_its_wall_clock_is_stepped(
    tmp_path: Path, one_machine_s: float, step_s: float | None
) -> None:
    assert crawl_on_one_machine(tmp_path, SHAPE, step_s) <= as_long_as(one_machine_s)


def test_a_coordinator_frozen_for_longer_than_a_lease_costs_no_second_fetch(
    tmp_path: Path, one_machine_s: float
) -> None:
    assert crawl_on_one_machine(tmp_path, SHAPE, frozen_s=FROZEN_S) <= as_long_as(one_machine_s) + FROZEN_S


@pytest.fixture(scope="module")
def fleet_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The same for a fleet."""
    with stepped_fleet(tmp_path_factory.mktemp("unstepped"), SHAPE) as (fleet, web, _):
        took_s = finish(fleet, web)
        asked = fleet.redis.info("commandstats")
        assert "cmdstat_fcall" in asked
        assert "cmdstat_time" not in asked
        keys = fleet.redis.command("KEYS", "*")
        assert {fleet.redis.command("PTTL", key) for key in keys} == {-1}
        return took_s


@needs_redis
@pytest.mark.parametrize("name", ["coordinator-0", "coordinator-1", "node-0"])
@pytest.mark.parametrize("step_s", STEPS_S)
def test_a_fleet_does_not_notice_that_a_wall_clock_is_stepped(
    tmp_path: Path, fleet_s: float, name: str, step_s: float | None
) -> None:
    with stepped_fleet(tmp_path, SHAPE) as (fleet, web, clocks), stepped(clocks, name, step_s):
        assert finish(fleet, web) <= as_long_as(fleet_s)


@needs_redis
def test_coordinators_frozen_for_longer_than_a_lease_cost_no_second_fetch(tmp_path: Path, fleet_s: float) -> None:
    with stepped_fleet(tmp_path, SHAPE) as (fleet, web, _):
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for name in ("coordinator-0", "coordinator-1"):
                fleet.signal(name, number)
            time.sleep(FROZEN_S if number is signal.SIGSTOP else 0.0)
        assert finish(fleet, web) <= as_long_as(fleet_s) + RETRY_WAIT_MAX_S


@needs_redis
def test_a_failover_to_a_replica_whose_time_is_behind_hurries_no_host(tmp_path: Path) -> None:
    """Of a failover only the time that is kept matters here: it is set back, as by a replica that was behind. Then a
    coordinator is started that knows no other."""
    with stepped_fleet(tmp_path, SHAPE) as (fleet, web, _):
        key = f"{{{NAMESPACE}}}time"
        for behind_s in (1.0, 30.0, 3_600.0):
            kept = float(fleet.redis.command("GET", key))
            fleet.redis.command("SET", key, repr(kept - behind_s))
            fleet.kill(1)
            fleet.start(1)
            assert float(fleet.redis.command("GET", key)) >= kept
        finish(fleet, web)
