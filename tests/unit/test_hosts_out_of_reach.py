"""Hosts that are down, and robots.txt that is down, for an hour and for a day on a clock that the test owns."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from drumlin.api.explaining.why import hosts_in_backoff
from drumlin.coordinator.taking.host_reports import backoffs_of
from tests.harness.simulated import RULES, Answer, Simulation

HOUR_S, DAY_S = 3600.0, 86_400.0
SEEDS = [f"http://a.test/{number}" for number in range(20)]
AFTER_S = 4 * HOUR_S
"""More than the longest pause, and twenty pages."""


def down_for(seconds: float, while_down: Answer, *, robots_only: bool) -> Simulation:
    """A crawl of a site that is down at first, and of another that is not."""

    def site(url: str, at: float) -> Answer:
        down = at < seconds and "a.test" in url and (url.endswith("/robots.txt") or not robots_only)
        if down:
            return while_down
        return Answer(body=RULES) if url.endswith("/robots.txt") else Answer()

    return Simulation(site, [*SEEDS, "http://b.test/"], seconds + AFTER_S + DAY_S)


def check(simulation: Simulation, down_s: float) -> list[float]:
    """Check that everything was fetched and nothing is dead. Returns when the site was asked while it was down."""
    totals = simulation.coordinator.totals(simulation.now)
    assert (totals.pages, totals.dead, totals.pending) == (len(SEEDS) + 1, 0, 0)
    assert not any(dead for _, _, dead in simulation.seen)
    assert simulation.elapsed_s < down_s + AFTER_S + DAY_S
    shown = [count for at, count, _ in simulation.seen if 15.0 < at < down_s]
    assert shown
    assert set(shown) == {1}, "it is shown for as long as it lasts"
    assert totals.hosts_in_backoff == 0
    # Nothing is allowed without robots.txt.
    pages = [at for at, url in simulation.asked if "a.test" in url and not url.endswith("/robots.txt")]
    assert min(pages) >= down_s
    assert len(pages) == len(SEEDS)
    return [at for at, url in simulation.asked if "a.test" in url and at < down_s]


@pytest.mark.parametrize(("down_s", "asked_max"), [(600.0, 8), (HOUR_S, 10), (DAY_S, 35)])
@pytest.mark.parametrize(
    "while_down",
    [Answer(503), Answer(429), Answer(failure="reset"), Answer(failure="timeout")],
    ids=["503", "429", "reset", "timeout"],
)
def test_a_robots_txt_that_is_down_is_asked_for_ever_less_often(
    tmp_path: Path, down_s: float, asked_max: int, while_down: Answer
) -> None:
    simulation = down_for(down_s, while_down, robots_only=True)
    simulation.run(tmp_path)
    asked = check(simulation, down_s)
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert 3 < len(asked) <= asked_max
    assert min(pauses) >= 10.0
    assert max(pauses) <= 1.1 * HOUR_S + 30.0


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("asked_s", "down_s"), [(600, HOUR_S), (40_000, DAY_S)])
def test_retry_after_on_robots_txt_is_kept_to(tmp_path: Path, status: int, asked_s: int, down_s: float) -> None:
    wait = Answer(status, headers={"Retry-After": str(asked_s)})
    simulation = down_for(down_s, wait, robots_only=True)
    simulation.run(tmp_path)
    asked = check(simulation, down_s)
    assert all(later - earlier >= asked_s for earlier, later in itertools.pairwise(asked))
    assert len(asked) <= down_s / asked_s + 1


@pytest.mark.parametrize(("down_s", "asked_max"), [(600.0, 8), (HOUR_S, 10), (DAY_S, 35)])
@pytest.mark.parametrize("failure", ["dns", "connect", "tls", "timeout"])
def test_a_host_that_is_down_is_probed_ever_less_often(
    tmp_path: Path, down_s: float, asked_max: int, failure: str
) -> None:
    simulation = down_for(down_s, Answer(failure=failure, sent=False), robots_only=False)
    simulation.run(tmp_path)
    asked = check(simulation, down_s)
    assert 3 < len(asked) <= asked_max


@pytest.mark.parametrize("sent", [False, True], ids=["unreached", "silent"])
@pytest.mark.parametrize("failure", ["timeout", "reset"])
def test_a_host_that_goes_down_in_the_middle_loses_no_url(tmp_path: Path, failure: str, sent: bool) -> None:
    """It answered five pages, was gone for a day, and came back. Two URLs may have been tried before it was clear."""

    def site(url: str, at: float) -> Answer:
        if 6.0 < at < DAY_S:
            return Answer(failure=failure, sent=sent)
        return Answer(body=RULES) if url.endswith("/robots.txt") else Answer()

    simulation = Simulation(site, SEEDS, 3 * DAY_S)
    simulation.run(tmp_path)
    totals = simulation.coordinator.totals(simulation.now)
    assert (totals.pages, totals.dead, totals.pending) == (len(SEEDS), 0, 0)
    assert len([at for at, _ in simulation.asked if 6.0 < at < DAY_S]) < 40


def test_urls_that_are_never_answered_are_dead_in_the_end_and_others_of_their_host_are_not(tmp_path: Path) -> None:
    """The host answers other requests, so these URLs are to blame, and the host is not left alone because of them."""

    def site(url: str, at: float) -> Answer:
        if url.endswith("/robots.txt"):
            return Answer(body=RULES)
        return Answer(failure="reset") if int(url.rpartition("/")[2]) % 2 else Answer()

    simulation = Simulation(site, SEEDS, DAY_S)
    simulation.run(tmp_path)
    totals = simulation.coordinator.totals(simulation.now)
    assert (totals.pages, totals.dead, totals.pending) == (len(SEEDS) // 2, len(SEEDS) // 2, 0)
    assert totals.group("dead.") == {"reset": len(SEEDS) // 2}
    assert not any(count for _, count, _ in simulation.seen)


def test_a_bad_certificate_keeps_nothing_of_http_waiting(tmp_path: Path) -> None:
    secure = [url.replace("http:", "https:") for url in SEEDS]
    mixed = [url for pair in zip(secure, SEEDS, strict=True) for url in pair]

    def site(url: str, at: float) -> Answer:
        if url.startswith("https:") and at < DAY_S:
            return Answer(failure="tls", sent=False)
        return Answer(body=RULES) if url.endswith("/robots.txt") else Answer()

    simulation = Simulation(site, mixed, 3 * DAY_S)
    simulation.run(tmp_path)
    totals = simulation.coordinator.totals(simulation.now)
    assert (totals.pages, totals.dead, totals.pending) == (2 * len(SEEDS), 0, 0)
    plain = [at for at, url in simulation.asked if url.startswith("http:")]
    assert max(plain) < 600.0
    assert len([at for at, url in simulation.asked if url.startswith("https:") and at < DAY_S]) <= 35


def test_a_host_out_of_reach_for_too_long_gives_dead_letters_with_the_cause(tmp_path: Path) -> None:
    simulation = Simulation(lambda url, at: Answer(failure="dns"), SEEDS, 3 * DAY_S, host_patience_s=DAY_S)
    simulation.run(tmp_path)
    totals = simulation.coordinator.totals(simulation.now)
    assert (totals.dead, totals.pending) == (len(SEEDS), 0)
    assert totals.group("dead.") == {"dns": len(SEEDS)}
    assert DAY_S <= simulation.elapsed_s < DAY_S + 3 * HOUR_S
    assert totals.hosts_in_backoff == 0


def test_people_are_told_why_since_when_and_when_next(tmp_path: Path) -> None:
    simulation = Simulation(lambda url, at: Answer(503), SEEDS, 600.0)
    simulation.run(tmp_path)
    state = simulation.host("a.test")
    assert state.in_backoff
    assert backoffs_of(state.note)["http"].kind == "robots_unreachable"
    (reason,) = hosts_in_backoff(simulation.coordinator.totals(simulation.now), [state], simulation.now)
    assert "1 host is out of reach. a.test: It has been out of reach for 10 min" in reason.message
    assert "(its robots.txt could not be fetched (status 503); 6 tries in vain). It is tried again in" in reason.message
