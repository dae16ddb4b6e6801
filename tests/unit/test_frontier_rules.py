"""Retries, budgets and priorities: the rules of the frontier that are plain arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.frontier import RETRY_RULES, Budget, next_step, priority_of
from drumlin.frontier.pauses import ASKED_MAX_S, pause_s
from drumlin.frontier.reference import MEANINGS, page
from drumlin.model import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN, FailureKind

ROOT = Path(__file__).parents[2]


def wait_s(kind: FailureKind, attempts: int, *, retry_after_s: float = 0.0, chance: float = 0.5) -> float | None:
    return next_step(kind, attempts, retries_max=3, base_s=5.0, max_s=300.0, retry_after_s=retry_after_s, chance=chance)


def test_every_kind_of_failure_has_a_rule_a_reason_and_a_meaning() -> None:
    assert set(RETRY_RULES) == set(FailureKind) == set(MEANINGS)
    assert all(rule.why for rule in RETRY_RULES.values())


def test_the_page_of_failures_is_current() -> None:
    assert (ROOT / "docs/reference/failures.md").read_text() == page(), "run `make docs`"


def test_waits_double_from_the_base_and_stop_at_the_longest() -> None:
    assert [wait_s(FailureKind.RESET, attempts) for attempts in (1, 2, 3)] == [5.0, 10.0, 20.0]
    assert wait_s(FailureKind.ROBOTS_UNREACHABLE, 3) == 240.0
    assert next_step(FailureKind.DNS, 9, retries_max=20, base_s=5.0, max_s=300.0, retry_after_s=0, chance=0.5) == 300.0


def test_retries_run_out() -> None:
    assert wait_s(FailureKind.TIMEOUT, 3) is not None
    assert wait_s(FailureKind.TIMEOUT, 4) is None


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if not RETRY_RULES[kind].retries])
def test_what_repeating_cannot_mend_is_dead_at_once(kind: FailureKind) -> None:
    assert wait_s(kind, 1) is None


def test_retry_after_is_a_lower_bound_but_not_without_end() -> None:
    assert wait_s(FailureKind.RATE_LIMITED, 1, retry_after_s=100.0) == 100.0
    assert wait_s(FailureKind.RATE_LIMITED, 1, retry_after_s=1.0) == 30.0
    assert wait_s(FailureKind.RATE_LIMITED, 1, retry_after_s=10.0**9) == ASKED_MAX_S


@given(st.sampled_from(FailureKind), st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_jitter_stays_within_half_of_the_wait(kind: FailureKind, attempts: int, chance: float) -> None:
    plain, spread = wait_s(kind, attempts), wait_s(kind, attempts, chance=chance)
    assert (plain is None) == (spread is None)
    if plain is not None and spread is not None:
        assert 0.5 * plain <= spread <= 1.5 * plain


def test_without_budgets_everything_is_allowed() -> None:
    assert Budget().pages_allowed(10**9, 10**9, 7) == 7
    assert Budget().exhausted(10**9, 10**15, 1e9) == ""


@given(st.integers(1, 1000), st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 2000))
def test_what_is_allowed_never_exceeds_the_page_budget(limit: int, pages: int, leased: int, wanted: int) -> None:
    allowed = Budget(pages_max=limit).pages_allowed(pages, leased, wanted)
    assert 0 <= allowed <= wanted
    assert allowed == 0 or pages + leased + allowed <= limit


def test_the_budget_that_is_used_up_is_named() -> None:
    budget = Budget(10, 1000, 60.0)
    assert budget.exhausted(9, 999, 59.9) == ""
    assert budget.exhausted(10, 0, 0.0) == "pages_max"
    assert budget.exhausted(0, 1000, 0.0) == "bytes_max"
    assert budget.exhausted(0, 0, 60.0) == "time_max"


def test_priority_falls_with_depth_and_no_further_than_three() -> None:
    assert [priority_of(depth) for depth in (0, 1, 2, 3, 4, 100)] == [5, 4, 3, 2, 2, 2]
    assert priority_of(0) == PRIORITY_DEFAULT


def test_a_sitemap_raises_or_lowers_a_page_by_one() -> None:
    assert [priority_of(1, sitemap_hint=hint) for hint in (0.0, 0.5, 1.0)] == [3, 4, 5]


@given(st.integers(0, 10**6), st.none() | st.floats(0, 1))
def test_a_priority_is_always_within_its_bounds(depth: int, hint: float | None) -> None:
    assert PRIORITY_MIN <= priority_of(depth, sitemap_hint=hint) <= PRIORITY_MAX


# Hosts that could not be asked


def test_pauses_double_up_to_an_hour() -> None:
    assert [pause_s(tries, 0.0, 0.0) for tries in range(1, 12)] == [
        10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 3600.0, 3600.0
    ]  # fmt: skip
    assert pause_s(10**9, 0.0, 0.0) == 3600.0


def test_pauses_are_spread_and_never_shorter() -> None:
    assert pause_s(1, 0.0, 0.999) == pytest.approx(11.0, abs=0.01)


def test_a_pause_that_a_site_asks_for_is_kept_up_to_a_day() -> None:
    assert pause_s(1, 600.0, 0.5) == 600.0
    assert pause_s(9, 5.0, 0.0) == 2560.0
    assert pause_s(1, 1e9, 0.0) == ASKED_MAX_S
