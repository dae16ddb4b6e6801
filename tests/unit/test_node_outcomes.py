"""What came back, and what it means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.http.retry_after import retry_after_s
from drumlin.model import Outcome
from drumlin.node.keeping.outbox import tellable
from drumlin.node.outcomes import ERROR_CHARS_MAX, fetch_record, result_without_capture
from drumlin.protocol import Assignment

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TASK = Assignment(
    "n0:token/7.2.1.seal", "http://a.test/x", 5, 0.0, "a.test", 0.0, 2, 1, "http://a.test/", ("http://a.test/old",)
)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(days=1), usegmt=True), 0.0),
        ("Fri, 02 Jan 2026 03:05:05", 60.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("", 0.0),
        ("9" * 5000, 999_999_999.0),
        ("²", 0.0),  # a digit to Python, and a byte that a header may hold
        ("Fri, 02 Jan 0001 00:00:00 +2359", 0.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(value: str, seconds: float) -> None:
    assert retry_after_s({"retry-after": value}, NOW.timestamp()) == seconds


@pytest.mark.parametrize("wrong_s", [-3_600.0, 3_600.0])
def test_a_date_to_retry_after_is_counted_from_the_answers_own_whatever_our_clock_says(wrong_s: float) -> None:
    dates = {"date": NOW, "retry-after": NOW + timedelta(seconds=90)}
    headers = {name: format_datetime(date, usegmt=True) for name, date in dates.items()}
    assert retry_after_s(headers, NOW.timestamp() + wrong_s) == 90.0


@given(st.text(st.characters(max_codepoint=255), max_size=40))
def test_no_retry_after_breaks_the_node(value: str) -> None:
    assert retry_after_s({"retry-after": value}, 0.0) >= 0.0


def test_a_result_without_a_capture_tells_which_attempt_failed_and_why() -> None:
    result = result_without_capture(TASK, Outcome.FAILED, "id", 5.0, "dns", "e" * 1000)
    record = fetch_record(result, TASK, "a.test", "n0")
    assert (result.url, result.assignment_id) == (TASK.url, TASK.assignment_id)
    assert result.redirect_chain == list(TASK.redirects)
    assert (result.kind, len(result.error)) == ("dns", ERROR_CHARS_MAX)
    assert (record.attempt, record.duration_s, record.protocol, record.ip) == (2, 0.0, "", "")


@pytest.mark.parametrize("value", ["999999999", "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 1999 23:59:59 GMT"])
def test_whatever_a_site_asks_for_can_be_told_to_a_coordinator(value: str) -> None:
    result = result_without_capture(TASK, Outcome.FAILED, "id", 5.0, "", "")
    result.retry_after_s = retry_after_s({"retry-after": value}, NOW.timestamp())
    assert tellable(result) is result
