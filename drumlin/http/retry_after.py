"""How long an answer asks to be left alone: Retry-After (RFC 9110, 10.2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus

RETRY_AFTER_MAX_S = 999_999_999.0
SLOW_DOWN = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""The statuses that ask a crawler to come less often."""


def retry_after_s(headers: Mapping[str, str], now: float) -> float:
    """The seconds that a Retry-After header asks for, as a number or as a date; 0 if it makes no sense. A date is
    compared with the answer's own Date header, since our clock may be wrong; with `now` if the answer has none."""
    value = headers.get("retry-after", "")
    if is_number(value):
        return float(value[:9])
    until, answered = _moment(value), _moment(headers.get("date", ""))
    if until is None:
        return 0.0
    return min(max(0.0, until - (now if answered is None else answered)), RETRY_AFTER_MAX_S)


def _moment(date: str) -> float | None:
    try:
        when = parsedate_to_datetime(date)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def is_number(text: str) -> bool:
    """Whether these are ASCII digits. For Python's `isdigit` alone, "²" is a digit too."""
    return text.isascii() and text.isdigit()
