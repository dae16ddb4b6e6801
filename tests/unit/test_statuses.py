"""What a site's status code means, to a drumlin node and to workers that others wrote."""

from __future__ import annotations

import pytest

from drumlin.model import FailureKind, Outcome
from drumlin.protocol import failure_of_status, is_redirect, kind_of_status, outcome_of_status


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (101, FailureKind.PROTOCOL),
        (200, None),
        (206, None),
        (304, FailureKind.PROTOCOL),
        (404, None),
        (429, FailureKind.RATE_LIMITED),
        (500, FailureKind.HTTP_5XX),
        (503, FailureKind.HTTP_5XX),
        (599, FailureKind.HTTP_5XX),
    ],
)
def test_a_status_is_a_failure_only_when_trying_again_makes_sense(status: int, kind: FailureKind | None) -> None:
    assert failure_of_status(status) is kind


@pytest.mark.parametrize(
    ("status", "outcome", "kind"),
    [
        (0, Outcome.FAILED, FailureKind.CONNECT),
        (200, Outcome.FETCHED, None),
        (301, Outcome.REDIRECTED, None),
        (304, Outcome.NOT_MODIFIED, None),
        (404, Outcome.FETCHED, None),
        (429, Outcome.FAILED, FailureKind.RATE_LIMITED),
        (502, Outcome.FAILED, FailureKind.HTTP_5XX),
    ],
)
def test_a_worker_may_tell_only_the_status(status: int, outcome: Outcome, kind: FailureKind | None) -> None:
    assert outcome_of_status(status) is outcome
    if kind is not None:
        assert kind_of_status(status) is kind


def test_an_answer_that_nothing_has_changed_leads_nowhere() -> None:
    assert [status for status in (299, 300, 301, 304, 308, 399, 400) if is_redirect(status)] == [300, 301, 308, 399]
