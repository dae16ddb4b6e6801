"""A fleet under load, and what is done to it: in the end every page is stored once, and no host was hurried.

A host that two nodes held at once would be contacted twice within its delay, so that the web's own clock is the witness
that no lease was given twice.
"""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drumlin.client.remote import CoordinatorError
from drumlin.fleet.layout import FleetProcess, ProcessRole
from tests.harness.crawls import Web, benchmark_web, wait_until
from tests.harness.cutting import CuttingProxy
from tests.harness.fleet import Fleet, check_every_page_stored_once, check_politeness, fleet, kill, needs_redis

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), needs_redis]

HOSTS = 200
DELAY_S = 0.2
POLITE = ("--delay", str(DELAY_S))
TMPFS = Path("/dev/shm")
STALL_S_MAX = 180.0
CRAWL_S_MAX = 600.0
REASSIGN_S_MAX = 30.0
RECOVER_S_MAX = 15.0
SHORT_LEASE_S = 6.0
KILLS = 12
OUTAGE_S = 30.0
DOUBLES_MAX = 100
SEED = 3


@pytest.fixture
def fast_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if there is room for the archive of about a gigabyte."""
    folder = Path(tempfile.mkdtemp(prefix="drumlin-fleet-", dir=TMPFS if TMPFS.is_dir() else tmp_path))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def polite_web(fast_disk: Path) -> Iterator[Web]:
    """200 hosts of 60 pages that notice contacts which come sooner than allowed."""
    with benchmark_web(fast_disk, HOSTS, 60, "--gap-s", str(DELAY_S)) as web:
        yield web


def wait_for_pages(web: Web, one: Fleet, share: float) -> None:
    def reached() -> bool:
        assert not one.record.finished, "the crawl ended before it was hurt"
        return bool(web.accounts()["pages_distinct"] >= share * web.pages)

    wait_until(reached, STALL_S_MAX, f"{share:.0%} of the pages asked for")


def leased_by(one: Fleet, nodes: set[str]) -> set[str]:
    """The hosts that these nodes hold; all hosts while no coordinator answers."""
    try:
        hosts = one.remote().get("/api/v1/hosts", state="leased", limit=1000)["hosts"]
    except CoordinatorError:
        return {"unknown"}
    return {host["host"] for host in hosts if host["lease_node"] in nodes}


def seconds_until(happened: Any, seconds_max: float, what: str) -> float:
    started = time.monotonic()
    wait_until(happened, seconds_max, what, poll_s=0.1)
    return time.monotonic() - started


def end_well(web: Web, one: Fleet, delay_s: float = DELAY_S) -> dict[str, Any]:
    one.wait_until_finished(CRAWL_S_MAX)
    figures = check_every_page_stored_once(web, one.store)
    if delay_s:
        figures["least gap"] = round(check_politeness(web, one.store, delay_s), 4)
    return figures


def test_four_nodes_and_two_coordinators_store_20000_pages_once(fast_disk: Path) -> None:
    with benchmark_web(fast_disk, HOSTS, 100) as web:
        with fleet(fast_disk, "--nodes", "4", "--coordinators", "2", "--delay", "0", "-i", str(web.seeds)) as one:
            print(end_well(web, one, delay_s=0.0))


def test_random_kills_of_nodes_and_coordinators_lose_nothing_and_hurry_no_host(
    fast_disk: Path, polite_web: Web
) -> None:
    chance = random.Random(SEED)
    with fleet(fast_disk, "--nodes", "4", "--coordinators", "2", *POLITE, "-i", str(polite_web.seeds)) as one:
        story = []
        for number in range(KILLS):
            wait_for_pages(polite_web, one, (number + 1) / (KILLS + 2))
            role = chance.choice([ProcessRole.NODE, ProcessRole.NODE, ProcessRole.COORDINATOR])
            wait_until(lambda role=role: bool(one.of(role)), STALL_S_MAX, f"a {role} to kill")  # type: ignore[misc]
            victim = chance.choice(one.of(role))
            kill(victim)
            story.append(victim.name)
        print(story, end_well(polite_web, one))


def test_losing_thirty_percent_of_the_nodes_for_good_loses_nothing(fast_disk: Path, polite_web: Web) -> None:
    shape = ("--nodes", "10", "--coordinators", "2", "--no-restart", "--concurrency", "64")
    with fleet(fast_disk, *shape, *POLITE, "-i", str(polite_web.seeds)) as one:
        wait_for_pages(polite_web, one, 0.2)
        victims = one.of(ProcessRole.NODE)[:3]
        for victim in victims:
            kill(victim)
        names = {victim.name for victim in victims}
        held = len(leased_by(one, names))
        spent_s = seconds_until(lambda: not leased_by(one, names), STALL_S_MAX, "the leases of the dead to end")
        print(f"{held} hosts of 3 dead nodes were free again after {spent_s:.1f} s", end_well(polite_web, one))
        assert spent_s < REASSIGN_S_MAX


def test_losing_a_coordinator_for_good_loses_nothing(fast_disk: Path, polite_web: Web) -> None:
    shape = ("--nodes", "4", "--coordinators", "2", "--no-restart")
    with fleet(fast_disk, *shape, *POLITE, "-i", str(polite_web.seeds)) as one:
        wait_for_pages(polite_web, one, 0.3)
        kill(one.of(ProcessRole.COORDINATOR)[0])
        print(end_well(polite_web, one))


def test_half_a_minute_without_any_coordinator_costs_hardly_a_page_twice(fast_disk: Path) -> None:
    shape = ("--nodes", "4", "--coordinators", "2", "--delay", "0")
    with benchmark_web(fast_disk, HOSTS, 100) as web, fleet(fast_disk, *shape, "-i", str(web.seeds)) as one:
        wait_for_pages(web, one, 0.3)
        until = time.monotonic() + OUTAGE_S
        while time.monotonic() < until:
            # The supervisor starts them again and again; none lives long enough to answer.
            for coordinator in one.of(ProcessRole.COORDINATOR):
                if coordinator.mark is not None:
                    coordinator.mark.send(signal.SIGKILL)
            time.sleep(0.1)
        figures = end_well(web, one, delay_s=0.0)
        print(figures)
        assert figures["asked again"] < DOUBLES_MAX


@pytest.mark.parametrize("frozen_s", [10.0, 40.0])
def test_coordinators_that_freeze_cost_hardly_a_page_twice(fast_disk: Path, frozen_s: float) -> None:
    shape = ("--nodes", "4", "--coordinators", "2", "--delay", "0")
    with benchmark_web(fast_disk, HOSTS, 100) as web, fleet(fast_disk, *shape, "-i", str(web.seeds)) as one:
        wait_for_pages(web, one, 0.3)
        frozen = one.of(ProcessRole.COORDINATOR)
        for coordinator in frozen:
            kill(coordinator, signal.SIGSTOP)
        time.sleep(frozen_s)
        for coordinator in frozen:
            kill(coordinator, signal.SIGCONT)
        figures = end_well(web, one, delay_s=0.0)
        print(figures)
        assert figures["asked again"] < DOUBLES_MAX


def test_losing_a_redis_master_for_good_loses_nothing(fast_disk: Path, polite_web: Web) -> None:
    shape = ("--nodes", "3", "--coordinators", "2", "--replicas", "2", "--no-restart")
    with fleet(fast_disk, *shape, *POLITE, "-i", str(polite_web.seeds)) as one:
        wait_for_pages(polite_web, one, 0.3)
        before = one.stats()["pages"]
        kill(one.redis_masters()[0])
        spent_s = seconds_until(lambda: _goes_on(one, before), STALL_S_MAX, "the fleet to go on")
        print(f"the fleet went on {spent_s:.1f} s after it lost a master", end_well(polite_web, one))
        assert spent_s < RECOVER_S_MAX


def _goes_on(one: Fleet, before: int) -> bool:
    """Whether all shards answer again, and pages are settled. The figures are of all shards at this moment."""
    try:
        crawl = one.remote().get("/api/v1/crawl")
    except CoordinatorError:
        return False
    return len(one.redis_masters()) == one.record.plan.masters and bool(crawl["budgets"]["pages"] > before)


def test_a_node_frozen_past_its_leases_hurries_no_host_when_it_wakes(fast_disk: Path, polite_web: Web) -> None:
    shape = ("--nodes", "4", "--coordinators", "2", "--lease", str(SHORT_LEASE_S))
    with fleet(fast_disk, *shape, *POLITE, "-i", str(polite_web.seeds)) as one:
        wait_for_pages(polite_web, one, 0.2)
        victim = one.of(ProcessRole.NODE)[0]
        kill(victim, signal.SIGSTOP)
        spent_s = seconds_until(lambda: not leased_by(one, {victim.name}), STALL_S_MAX, "its leases to end")
        _let_others_work(one, victim)
        kill(victim, signal.SIGCONT)
        print(f"a frozen node's hosts were free after {spent_s:.1f} s", end_well(polite_web, one))
        assert spent_s < REASSIGN_S_MAX


def _let_others_work(one: Fleet, frozen: FleetProcess) -> None:
    """Wait until other nodes have hosts of the frozen node, so it could do harm when it wakes up."""
    before = one.stats()["pages"]
    wait_until(lambda: one.stats()["pages"] > before + HOSTS or one.record.finished, STALL_S_MAX, "others to go on")
    assert frozen.alive


def test_a_node_cut_off_from_its_coordinators_hurries_no_host_and_loses_nothing(
    fast_disk: Path, polite_web: Web
) -> None:
    shape = ("--nodes", "3", "--coordinators", "2", "--lease", str(SHORT_LEASE_S))
    with fleet(fast_disk, *shape, *POLITE, "-i", str(polite_web.seeds)) as one:
        ports = one.record.plan.coordinator_ports
        with CuttingProxy(ports[0]) as first, CuttingProxy(ports[1]) as second:
            one.start_node("far", *(f"https://127.0.0.1:{proxy.port}" for proxy in (first, second)))
            wait_until(lambda: bool(leased_by(one, {"far"}) - {"unknown"}), STALL_S_MAX, "the far node to work")
            first.cut()
            second.cut()
            spent_s = seconds_until(lambda: not leased_by(one, {"far"}), STALL_S_MAX, "its leases to end")
            first.mend()
            second.mend()
            print(f"a node cut off had its hosts taken after {spent_s:.1f} s", end_well(polite_web, one))
            assert spent_s < REASSIGN_S_MAX
