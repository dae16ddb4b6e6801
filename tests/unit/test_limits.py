"""Senders that ask too much have to wait, those that do not wait end in quarantine, and a busy honest node never
does."""

from __future__ import annotations

import heapq
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.access.limits import (
    LATE_GRACE,
    POINTS_MAX,
    QUARANTINE_S,
    RELEASED_WITHIN_S,
    REQUESTS_BURST,
    SUBJECTS_MAX,
    Limits,
)
from drumlin.access.misdeeds import Misdeed
from drumlin.http.refusal import Refused

NODE = "node/n1"
# The requests of the busiest node of drumlin: seconds between two of each kind.
WORK_EVERY_S, RESULTS_EVERY_S, KNOWN_EVERY_S, HEARTBEAT_EVERY_S = 0.05, 0.02, 0.02, 0.5


def refusal(limits: Limits, now: float, subject: str = NODE) -> Refused | None:
    try:
        limits.admit(subject, now)
    except Refused as refused:
        return refused
    return None


def charge(limits: Limits, now: float, subject: str = NODE) -> str:
    """What a request that costs nothing is told when its sender is in quarantine, "" when it is not."""
    try:
        limits.admit(subject, now, cost=0.0)
    except Refused as refused:
        return refused.message if refused.code == "quarantined" else ""
    return ""


def use_up(limits: Limits, now: float) -> Refused:
    """Ask until refused."""
    for _ in range(int(REQUESTS_BURST) + 1):
        refused = refusal(limits, now)
        if refused is not None:
            return refused
    raise AssertionError("nothing was refused")


def busy_node(duration_s: float) -> list[float]:
    """When a busy node's requests come."""
    kinds = (WORK_EVERY_S, RESULTS_EVERY_S, KNOWN_EVERY_S, HEARTBEAT_EVERY_S)
    return list(heapq.merge(*([step * every for step in range(int(duration_s / every))] for every in kinds)))


def test_a_busy_node_is_never_refused() -> None:
    limits = Limits()
    assert [at for at in busy_node(600) if refusal(limits, at)] == []


def test_a_busy_node_whose_requests_were_held_up_is_not_refused_either() -> None:
    """Every 20 seconds the coordinator hangs for 4, and everything sent meanwhile arrives at once."""
    limits = Limits()
    arrivals = [at if at % 20 < 16 else at - at % 20 + 20 for at in busy_node(600)]
    assert [at for at in sorted(arrivals) if refusal(limits, at)] == []


def test_who_asks_too_fast_is_told_when_to_come_back_and_then_served() -> None:
    limits = Limits()
    refused = use_up(limits, 0.0)
    assert (refused.status, refused.code) == (429, "too_fast")
    assert refused.retry_after_s is not None
    assert refusal(limits, refused.retry_after_s) is None


def test_who_waits_as_told_is_never_put_into_quarantine() -> None:
    limits = Limits()
    now = 0.0
    for _ in range(2_000):
        refused = use_up(limits, now)
        assert refused.code == "too_fast"
        now += refused.retry_after_s or 0.0
    assert charge(limits, now) == ""


def test_who_goes_on_when_told_to_wait_is_put_into_quarantine_and_begins_anew_after_it() -> None:
    limits = Limits()
    use_up(limits, 0.0)
    codes = [refused.code for _ in range(2 * int(POINTS_MAX)) if (refused := refusal(limits, 0.0))]
    assert codes[0] == "too_fast"
    assert codes[-1] == "quarantined"
    assert "asked too fast, and went on when told to wait" in charge(limits, 0.0)
    first = refusal(limits, 1.0)
    assert first is not None
    assert first.retry_after_s == RELEASED_WITHIN_S, "a sender that waited longer would not notice its release"
    last = refusal(limits, QUARANTINE_S - 1)
    assert last is not None
    assert (last.status, last.retry_after_s) == (429, 1.0)
    assert refusal(limits, QUARANTINE_S) is None
    assert charge(limits, QUARANTINE_S) == ""


def test_one_subject_does_not_use_up_what_another_may_ask() -> None:
    limits = Limits()
    use_up(limits, 0.0)
    assert refusal(limits, 0.0, "node/n2") is None


def test_a_request_may_cost_more_than_another() -> None:
    limits = Limits(requests_per_s=1, burst=10)
    limits.admit(NODE, 0.0, cost=10)
    with pytest.raises(Refused) as refused:
        limits.admit(NODE, 0.0, cost=5)
    assert refused.value.retry_after_s == pytest.approx(5.0)


# Conduct


def test_results_that_were_never_asked_for_end_in_quarantine() -> None:
    limits = Limits()
    for call in range(4):
        assert charge(limits, 0.0) == "", call
        limits.reported(NODE, 0.0, foreign=1_000)
    assert "never had" in charge(limits, 0.0)


def test_one_call_alone_never_ends_in_quarantine() -> None:
    limits = Limits()
    limits.reported(NODE, 0.0, foreign=10**9, late=10**9)
    limits.lied("node/n2", 0.0, {Misdeed.FOREIGN_HOST: 1, Misdeed.MADE_UP: 10**9})
    assert charge(limits, 0.0) == charge(limits, 0.0, "node/n2") == ""


def test_a_rare_mistake_fades() -> None:
    limits = Limits()
    for hour in range(100):
        limits.reported(NODE, 3600.0 * hour, foreign=20)
        limits.lied(NODE, 3600.0 * hour + 600, {Misdeed.FOREIGN_HOST: 1})
    assert charge(limits, 3600.0 * 100) == ""


def test_speaking_for_the_hosts_of_others_ends_in_quarantine() -> None:
    limits = Limits()
    for _ in range(4):
        limits.lied(NODE, 0.0, {Misdeed.FOREIGN_HOST: 1})
    assert "hosts" in charge(limits, 0.0)


def test_a_node_that_comes_back_with_a_spool_of_late_results_is_welcome() -> None:
    limits = Limits()
    for batch in range(LATE_GRACE // 100):
        limits.reported(NODE, batch * 0.02, late=100)
    assert charge(limits, 10.0) == ""


def test_a_node_that_is_often_late_but_mostly_in_time_is_welcome() -> None:
    limits = Limits()
    for batch in range(100_000):
        limits.reported(NODE, batch * 0.02, settled=60, late=40)
    assert charge(limits, 2_000.0) == ""


def test_a_node_that_only_ever_sends_late_results_ends_in_quarantine() -> None:
    limits = Limits()
    for batch in range(LATE_GRACE // 100 * 2):
        limits.reported(NODE, batch * 0.02, late=100)
    assert "late" in charge(limits, 10.0)


def test_who_is_released_begins_anew() -> None:
    limits = Limits()
    for _ in range(4):
        limits.lied(NODE, 0.0, {Misdeed.FOREIGN_HOST: 1})
    assert charge(limits, 0.0)
    limits.release(NODE)
    assert refusal(limits, 0.0) is None


# Bounds


def test_memory_is_bounded_and_who_was_seen_lately_is_remembered() -> None:
    limits = Limits()
    use_up(limits, 0.0)
    tracemalloc.start()
    for number in range(3 * SUBJECTS_MAX):
        limits.admit(f"node/x{number}", 0.0)
        if number % 1_000 == 0:
            assert refusal(limits, 0.0) is not None
    used_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(limits) == SUBJECTS_MAX
    assert used_bytes < 20 * 1024 * 1024


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 3)), max_size=60))
def test_a_clock_that_steps_back_gives_nobody_more_and_breaks_nothing(steps: list[tuple[float, int]]) -> None:
    limits = Limits(requests_per_s=10, burst=10)
    now, latest = 1000.0, 1000.0
    admitted = int(refusal(limits, now) is None)  # from now on it is known
    for step_s, asks in steps:
        now += step_s
        latest = max(latest, now)
        admitted += sum(refusal(limits, now) is None for _ in range(asks))
    assert admitted <= 10 + 10 * (latest - 1000.0) + 1e-6
