"""What answers to a request for robots.txt mean."""

from __future__ import annotations

import pytest

from drumlin.model import FailureKind
from drumlin.robots import BODY_BYTES_MAX, policy
from drumlin.robots.policy import Decision, decide

NOW = 1_000_000.0
BODY = b"User-agent: *\nDisallow: /x"


def answer(status: int | None, failure: str = "", redirects: int = 0) -> Decision:
    return decide(status, BODY, redirects, failure, NOW)


@pytest.mark.parametrize("status", [200, 203, 206])
def test_a_success_gives_rules_for_a_day(status: int) -> None:
    decision = answer(status)
    assert decision == Decision(BODY, False, False, NOW + 86_400, False, "rules")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
def test_a_client_error_allows_everything_for_a_day(status: int) -> None:
    decision = answer(status)
    assert (decision.allow_all, decision.deny_all, decision.retry) == (True, False, False)
    assert decision.expires == NOW + policy.UNAVAILABLE_TTL_S
    assert decision.rules_body is None


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (429, ""),
        (500, ""),
        (503, ""),
        (599, ""),
        (304, ""),
        (100, ""),
        (None, ""),
        (None, FailureKind.DNS),
        (None, FailureKind.CONNECT),
        (None, FailureKind.TLS),
        (None, FailureKind.FORBIDDEN_ADDRESS),
        (200, FailureKind.TIMEOUT),
        (200, FailureKind.RESET),
        (200, FailureKind.DECODE),
        (404, FailureKind.TIMEOUT),
    ],
)
def test_no_clear_answer_denies_everything_and_is_asked_again(status: int | None, failure: str) -> None:
    decision = answer(status, failure)
    assert (decision.allow_all, decision.deny_all, decision.retry) == (False, True, True)
    assert decision.expires == NOW


def test_a_body_that_does_not_fit_denies_everything_and_is_no_outage() -> None:
    many = b"User-agent: *\n" + b"".join(b"Disallow: /path/number/%08d\n" % one for one in range(50_000))
    too_many = decide(200, many, 0, "", NOW, agent="drumlin")
    too_long = decide(200, b"#" * (BODY_BYTES_MAX + 1), 0, "", NOW)
    for decision in (answer(200, FailureKind.TOO_LARGE), too_long, too_many):
        assert (decision.deny_all, decision.retry, decision.rules_body) == (True, False, None)
        assert decision.expires == NOW + 86_400


def test_rules_that_were_picked_for_one_crawler_say_for_which() -> None:
    long = b"#" * 100_000 + b"\nUser-agent: *\nDisallow: /x"
    decision = decide(200, long, 0, "", NOW, agent="ExampleBot/1.0")
    assert decision.agent == "examplebot"
    assert len(decision.rules_body or b"") < 100
    assert answer(200).agent == ""


def test_five_redirects_are_followed_and_a_sixth_counts_as_missing() -> None:
    assert answer(200, redirects=5).rules_body == BODY
    assert answer(200, redirects=6).allow_all
    assert answer(301, redirects=6).allow_all


@pytest.mark.parametrize("failure", [FailureKind.REDIRECT_LIMIT, FailureKind.REDIRECT_LOOP, FailureKind.BAD_REDIRECT])
def test_redirects_that_lead_nowhere_count_as_missing(failure: str) -> None:
    assert answer(302, failure).allow_all


def test_caching_follows_the_site_between_ten_minutes_and_a_day() -> None:
    def expires(max_age_s: float) -> float:
        return decide(200, BODY, 0, "", NOW, max_age_s).expires - NOW

    assert expires(0) == policy.RULES_TTL_MIN_S
    assert expires(3600) == 3600
    assert expires(10**9) == policy.RULES_TTL_S
