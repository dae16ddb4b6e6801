"""Each cause that can bound a crawl is made on purpose, and two at once: `drumlin why` names the right ones."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drumlin.protocol import paths
from drumlin.testing import FakeWeb, Response
from tests.harness.crawls import benchmark_web, wait_until
from tests.harness.cutting import CuttingProxy
from tests.harness.redis import redis_server
from tests.harness.standing import Standing, standing

NAMED_WITHIN_S = 90.0
PAGES = 500
SLOW_SYNC = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int file) { usleep(200000); return syscall(SYS_fsync, file); }
int fdatasync(int file) { usleep(200000); return syscall(SYS_fdatasync, file); }
"""


def sites(web: FakeWeb, count: int, **manner: Any) -> list[str]:
    """Sites with many pages, which are answered in this manner."""
    links = "".join(f"<a href='/{number}'>{number}</a>" for number in range(PAGES))
    for number in range(count):
        web.respond(f"site{number}", "/*", Response(body=f"a page of site {number}", **manner))
        web.respond(f"site{number}", "/robots.txt", Response(status=404))
        web.page(f"site{number}", "/", links)
    return [web.url(f"site{number}") for number in range(count)]


def asked(place: Standing) -> dict[str, Any]:
    answer: dict[str, Any] = place.remote.get(paths.WHY_IDLE)
    return answer


def codes(place: Standing) -> list[str]:
    answer = asked(place)
    return [reason["code"] for reason in (*answer["reasons"], *answer["bound_by"])]


def check_that_it_says(place: Standing, *expected: str, beside: tuple[str, ...] = ()) -> None:
    """Wait until these causes are named, and no others except those that may stand beside them."""
    seen: list[list[str]] = []

    def named() -> bool:
        seen.append(codes(place))
        return set(expected) <= set(seen[-1]) <= {*expected, *beside}

    try:
        wait_until(named, NAMED_WITHIN_S, "the causes to be named")
    except AssertionError as late:
        raise AssertionError(f"{expected} were not named, but {seen[-3:]}: {asked(place)}") from late
    said = place.drumlin("why", "--coordinator", place.endpoint).stdout
    assert said.splitlines(), "people are told too"


@contextmanager
def crawl_of(folder: Path, *arguments: str) -> Iterator[Standing]:
    with standing(folder, *arguments) as place:
        place.node("n0")
        yield place


def test_politeness(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web, crawl_of(tmp_path, "--delay", "1", *sites(web, 3)) as place:
        check_that_it_says(place, "politeness")
        (reason,) = asked(place)["bound_by"]
        assert reason["figures"]["hosts"] == 3


def test_slow_sites(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web, crawl_of(tmp_path, "--delay", "0", *sites(web, 3, delay_s=1.0)) as place:
        check_that_it_says(place, "slow_sites")


def test_politeness_and_slow_sites_at_once(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web, crawl_of(tmp_path, "--delay", "1", *sites(web, 3, delay_s=1.0)) as place:
        check_that_it_says(place, "politeness", "slow_sites")


def test_bandwidth(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web, crawl_of(tmp_path, "--delay", "0", *sites(web, 3, drip_s=0.08)) as place:
        check_that_it_says(place, "bandwidth")


def test_politeness_and_hosts_out_of_reach_at_once(tmp_path: Path) -> None:
    nowhere = [f"http://127.99.0.{number}:1/" for number in range(1, 4)]
    with FakeWeb(hosts=0) as web, crawl_of(tmp_path, "--delay", "1", *sites(web, 3), *nowhere) as place:
        check_that_it_says(place, "politeness", "backoff")


def test_hosts_out_of_reach_alone(tmp_path: Path) -> None:
    with crawl_of(tmp_path, "--delay", "0", "http://127.99.0.1:1/", "http://127.99.0.2:1/") as place:
        check_that_it_says(place, "backoff", beside=("all_scheduled",))


def test_no_active_node(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web, standing(tmp_path, "--delay", "1", *sites(web, 2)) as place:
        check_that_it_says(place, "no_nodes")
        node = place.node("n0")
        check_that_it_says(place, "politeness")
        node.kill()
        node.wait()
        check_that_it_says(place, "no_active_nodes", beside=("all_leased", "all_waiting"))


def test_cpu(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, 200, 500) as web,
        crawl_of(tmp_path, "--delay", "0", "-i", str(web.seeds)) as place,
    ):
        # The coordinator may be short of cores as well, since all share this machine.
        check_that_it_says(place, "cpu", beside=("coordinator_cpu", "engine"))


def test_a_slow_engine(tmp_path: Path) -> None:
    with (
        FakeWeb(hosts=0) as web,
        redis_server(tmp_path / "redis") as server,
        CuttingProxy(server.port) as proxy,
        crawl_of(tmp_path, "--engine", f"redis://127.0.0.1:{proxy.port}/slow", "--delay", "0", *sites(web, 9)) as place,
    ):
        proxy.slow_down(0.03)
        check_that_it_says(place, "engine", beside=("settling", "politeness"))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="a slow disk is made with gcc")
def test_a_slow_disk(tmp_path: Path) -> None:
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW_SYNC)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    with FakeWeb(hosts=0) as web, standing(tmp_path, "--delay", "0", *sites(web, 9)) as place:
        place.node("n0", "--sync", environment={"LD_PRELOAD": str(library)})
        check_that_it_says(place, "disk", beside=("settling",))
