"""Wall clocks that are stepped while a crawl runs, and coordinators that stand still: no host is hurried, nothing is
fetched twice, and the crawl ends as if nothing had been.

Redis needs no such clock: it is never asked for the time, and no key of it expires.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumlin.coordinator.engine_time import AGREED_S
from drumlin.node.calling.client import RETRY_WAIT_MAX_S
from tests.harness.balanced import NAMESPACE
from tests.harness.crawls import ROOT
from tests.harness.fleet import needs_redis
from tests.harness.redis import redis_server, url_of
from tests.harness.stepped_crawls import Shape, crawl_on_one_machine, finish, stepped, stepped_fleet
from tests.harness.stepping import needs_faketime

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), needs_faketime]

SHAPE = Shape(hosts=10, pages=40)
STEPS_S = (60.0, -60.0, 3_600.0, -3_600.0, None)
"""None: back and forth."""
FROZEN_S = 25.0
"""Longer than a lease."""
SHOWN_S = 20.0
STARTED_EVERY_S = 3.7


def as_long_as(unstepped_s: float) -> float:
    return 1.1 * unstepped_s + 5.0


@pytest.fixture(scope="module")
def one_machine_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """How long a crawl takes if no clock is stepped."""
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


@needs_redis
def test_coordinators_on_a_busy_machine_agree_from_the_moment_they_join(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis") as redis, busy(2 * (os.cpu_count() or 1)):
        engine, clocks = url_of(redis, namespace="agreement"), []
        for number in range(4):
            clocks.append(_clock(engine, SHOWN_S - number * STARTED_EVERY_S))
            time.sleep(STARTED_EVERY_S)
        shown: list[list[list[float]]] = [json.loads(clock.communicate()[0]) for clock in clocks]
    apart = sorted(_apart(shown))
    print(f"{len(apart)} comparisons, median {apart[len(apart) // 2] * 1000:.1f} ms, most {apart[-1] * 1000:.1f} ms")
    assert len(apart) > 1_000
    assert apart[-1] < AGREED_S


def _clock(engine: str, seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.harness.engine_clock", engine, str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Run so many processes that use all the CPU they can get."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def _apart(shown: list[list[list[float]]]) -> Iterator[float]:
    """How far each clock was from the last reading of every other clock."""
    for one in shown:
        for other in shown:
            if one is not other:
                for at, ahead_s in one:
                    if other[0][0] <= at <= other[-1][0]:
                        yield abs(ahead_s - other[bisect_right(other, [at, math.inf]) - 1][1])
