"""Crawls whose processes have wall clocks that a test can step, on one machine and as a fleet, and how they must
end."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from tests.harness.balanced import Balanced, balanced, wait_for_progress
from tests.harness.crawls import Crawl, Web, benchmark_web, wait_until
from tests.harness.fleet import check_every_page_stored_once, check_politeness
from tests.harness.stepping import BackAndForth, SteppedClocks, sweep

DELAY_S = 0.2
POLITE = ("--delay", str(DELAY_S))
ONE_MACHINE = "machine"
CRAWL_S_MAX = 240.0
BEGUN_SHARE = 0.1


class Shape(NamedTuple):
    """How large the web is."""

    hosts: int
    pages: int


@contextmanager
def stepped(clocks: SteppedClocks, name: str, step_s: float | None) -> Iterator[None]:
    """Step a clock once by `step_s`; if that is None, step it back and forth for as long as the context lasts."""
    if step_s is not None:
        clocks.set(name, step_s)
    with BackAndForth(clocks, name, 3_600.0, 0.0, -3_600.0, 60.0) if step_s is None else nullcontext():
        yield


def check_the_end(web: Web, store: Path, took_s: float) -> None:
    figures = check_every_page_stored_once(web, store)
    least_s = check_politeness(web, store, DELAY_S)
    print(f"{figures}, least gap {least_s:.4f} s, {took_s:.1f} s")
    assert figures["asked again"] == 0


def crawl_on_one_machine(folder: Path, shape: Shape, step_s: float | None = 0.0, *, frozen_s: float = 0.0) -> float:
    """Crawl while the machine's wall clock is stepped or its coordinator is frozen, and check how it ends
    (`check_the_end`). Returns the seconds that it took."""
    clocks = SteppedClocks(folder / "clocks")
    with benchmark_web(folder, *shape, "--gap-s", str(DELAY_S)) as web:
        arguments = (*POLITE, "--nodes", "2", "-i", str(web.seeds))
        crawl = Crawl(folder / "crawl", *arguments, environment=clocks.environment(ONE_MACHINE))
        try:
            started = time.monotonic()
            crawl.start()
            has_begun(web)
            with stepped(clocks, ONE_MACHINE, step_s):
                if frozen_s:
                    crawl.process.send_signal(signal.SIGSTOP)
                    time.sleep(frozen_s)
                    crawl.process.send_signal(signal.SIGCONT)
                assert crawl.wait(CRAWL_S_MAX) == 0, crawl.errors
            took_s = time.monotonic() - started
        finally:
            crawl.end()
            sweep()
        check_the_end(web, crawl.out, took_s)
    return took_s


def has_begun(web: Web) -> None:
    wait_until(lambda: web.accounts()["pages_distinct"] >= BEGUN_SHARE * web.pages, CRAWL_S_MAX, "the first pages")


@contextmanager
def stepped_fleet(folder: Path, shape: Shape) -> Iterator[tuple[Balanced, Web, SteppedClocks]]:
    """Two coordinators and two nodes at work, each with a clock of its own; Redis has the machine's."""
    clocks = SteppedClocks(folder / "clocks")
    with (
        benchmark_web(folder, *shape, "--gap-s", str(DELAY_S)) as web,
        balanced(folder, "-i", str(web.seeds), *POLITE, coordinators=2, environment=clocks.environment) as fleet,
    ):
        for number in range(2):
            fleet.node(f"node-{number}")
        wait_for_progress(fleet, web, int(BEGUN_SHARE * web.pages))
        yield fleet, web, clocks
    sweep()


def finish(fleet: Balanced, web: Web) -> float:
    """Wait for the end of the crawl and check it. Returns for how long it had to wait, in seconds."""
    started = time.monotonic()
    fleet.wait_for_nodes(CRAWL_S_MAX)
    took_s = time.monotonic() - started
    check_the_end(web, fleet.store, took_s)
    return took_s
