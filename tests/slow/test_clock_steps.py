"""Wall clocks that are stepped while a crawl runs, and coordinators that stand still: no host is hurried, nothing is
fetched twice, and the crawl ends as if nothing had been.

Redis needs no such clock: it is never asked for the time, and no key of it expires.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.harness.balanced import Balanced, balanced, wait_for_progress
from tests.harness.crawls import Crawl, Web, benchmark_web
from tests.harness.fleet import check_every_page_stored_once, check_politeness, needs_redis
from tests.harness.stepping import BackAndForth, SteppedClocks, needs_faketime

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), needs_faketime]

HOSTS = 10
PAGES = 40
DELAY_S = 0.2
POLITE = ("--delay", str(DELAY_S))
STEPS_S = (60.0, -60.0, 3_600.0, -3_600.0)
FROZEN_S = 25.0
"""Longer than a lease."""
CRAWL_S_MAX = 240.0
ONE_MACHINE = "machine"


@contextmanager
def stepped(clocks: SteppedClocks, name: str, step_s: float | None) -> Iterator[None]:
    """Step a clock once by so much, or there and back for as long as this lasts."""
    if step_s is not None:
        clocks.set(name, step_s)
    with BackAndForth(clocks, name, 3_600.0, 0.0, -3_600.0, 60.0) if step_s is None else nullcontext():
        yield


def end_well(web: Web, store: Path, took_s: float, longest_s: float) -> None:
    figures: dict[str, Any] = check_every_page_stored_once(web, store)
    least_s = check_politeness(web, store, DELAY_S)
    print(f"{figures}, least gap {least_s:.4f} s, {took_s:.1f} s of at most {longest_s:.1f} s")
    assert figures["asked again"] == 0
    assert took_s <= longest_s


# One machine


def crawl_on_one_machine(folder: Path, step_s: float | None = 0.0, *, frozen_s: float = 0.0) -> float:
    """Crawl while the machine's wall clock is stepped; the seconds that it took."""
    clocks = SteppedClocks(folder / "clocks")
    with benchmark_web(folder, HOSTS, PAGES, "--gap-s", str(DELAY_S)) as web:
        arguments = (*POLITE, "--nodes", "2", "-i", str(web.seeds))
        crawl = Crawl(folder / "crawl", *arguments, environment=clocks.environment(ONE_MACHINE))
        try:
            started = time.monotonic()
            crawl.start()
            _wait_for_pages(web, HOSTS * 5)
            with stepped(clocks, ONE_MACHINE, step_s):
                if frozen_s:
                    crawl.process.send_signal(signal.SIGSTOP)
                    time.sleep(frozen_s)
                    crawl.process.send_signal(signal.SIGCONT)
                assert crawl.wait(CRAWL_S_MAX) == 0, crawl.errors
            took_s = time.monotonic() - started
        finally:
            crawl.end()
        end_well(web, crawl.out, took_s, CRAWL_S_MAX)
    return took_s


def _wait_for_pages(web: Web, pages: int) -> None:
    while web.accounts()["pages_distinct"] < pages:
        time.sleep(0.05)


@pytest.fixture(scope="module")
def one_machine_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """How long it takes when no clock is stepped."""
    return crawl_on_one_machine(tmp_path_factory.mktemp("unstepped"))


@pytest.mark.parametrize("step_s", [*STEPS_S, None])
def test_one_machine_does_not_notice_that_its_wall_clock_is_stepped(
    tmp_path: Path, one_machine_s: float, step_s: float | None
) -> None:
    took_s = crawl_on_one_machine(tmp_path, step_s)
    assert took_s <= 1.1 * one_machine_s + 5.0


def test_a_coordinator_frozen_for_longer_than_a_lease_costs_no_second_fetch(
    tmp_path: Path, one_machine_s: float
) -> None:
    took_s = crawl_on_one_machine(tmp_path, frozen_s=FROZEN_S)
    assert took_s <= 1.1 * one_machine_s + FROZEN_S + 5.0


# A fleet


@contextmanager
def a_fleet(folder: Path) -> Iterator[tuple[Balanced, Web, SteppedClocks]]:
    clocks = SteppedClocks(folder / "clocks")
    with (
        benchmark_web(folder, HOSTS, PAGES, "--gap-s", str(DELAY_S)) as web,
        balanced(folder, "-i", str(web.seeds), *POLITE, coordinators=2, environment=clocks.environment) as fleet,
    ):
        for number in range(2):
            fleet.node(f"node-{number}")
        wait_for_progress(fleet, web, HOSTS * 5)
        yield fleet, web, clocks


def finish(fleet: Balanced, web: Web, longest_s: float) -> float:
    """Wait for the end, and see that it is a good one; the seconds from when the crawl had begun."""
    started = time.monotonic()
    fleet.wait_for_nodes(CRAWL_S_MAX)
    took_s = time.monotonic() - started
    end_well(web, fleet.store, took_s, longest_s)
    return took_s


@pytest.fixture(scope="module")
def fleet_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    with a_fleet(tmp_path_factory.mktemp("unstepped")) as (fleet, web, _):
        took_s = finish(fleet, web, CRAWL_S_MAX)
        asked = fleet.redis.info("commandstats")
        assert "cmdstat_fcall" in asked
        assert "cmdstat_time" not in asked
        keys = fleet.redis.command("KEYS", "*")
        assert {fleet.redis.command("PTTL", key) for key in keys} == {-1}
        return took_s


@needs_redis
@pytest.mark.parametrize("name", ["coordinator-0", "coordinator-1", "node-0"])
@pytest.mark.parametrize("step_s", [*STEPS_S, None])
def test_a_fleet_does_not_notice_that_a_wall_clock_is_stepped(
    tmp_path: Path, fleet_s: float, name: str, step_s: float | None
) -> None:
    with a_fleet(tmp_path) as (fleet, web, clocks), stepped(clocks, name, step_s):
        finish(fleet, web, 1.1 * fleet_s + 5.0)


@needs_redis
def test_coordinators_frozen_for_longer_than_a_lease_cost_no_second_fetch(tmp_path: Path, fleet_s: float) -> None:
    with a_fleet(tmp_path) as (fleet, web, _):
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for name in ("coordinator-0", "coordinator-1"):
                fleet.signal(name, number)
            time.sleep(FROZEN_S if number is signal.SIGSTOP else 0.0)
        finish(fleet, web, 1.1 * fleet_s + 5.0)


@needs_redis
def test_a_failover_to_a_replica_whose_time_is_behind_hurries_no_host(tmp_path: Path, fleet_s: float) -> None:
    """Of a failover the time that is kept is all that matters here: it is set back as by a replica that was behind."""
    with a_fleet(tmp_path) as (fleet, web, _):
        key = "{balanced}time"
        for behind_s in (1.0, 30.0, 3_600.0):
            kept = float(fleet.redis.command("GET", key))
            fleet.redis.command("SET", key, repr(kept - behind_s))
            fleet.kill(1)
            fleet.start(1)
            assert float(fleet.redis.command("GET", key)) >= kept
        finish(fleet, web, 1.1 * fleet_s + 15.0)
