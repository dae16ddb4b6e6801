"""What a status code of a site means.

A drumlin node and a worker that others wrote read it differently in one place: a drumlin node never asks whether a page
has changed, so a 304 answers nothing it asked. A worker may have asked, so to it a 304 is an answer.
"""

from __future__ import annotations

from drumlin.model import FailureKind, Outcome

OK = 200
NOT_MODIFIED = 304
TOO_MANY_REQUESTS = 429
SERVER_ERROR = 500


def is_redirect(status: int) -> bool:
    return 300 <= status < 400 and status != NOT_MODIFIED


def refusal_by_status(status: int) -> FailureKind | None:
    """The failure that an answer means, for a node or a worker; None if the answer is worth keeping as a page."""
    if status == TOO_MANY_REQUESTS:
        return FailureKind.RATE_LIMITED
    return FailureKind.HTTP_5XX if status >= SERVER_ERROR else None


def failure_of_status(status: int) -> FailureKind | None:
    """The failure that an answer to a drumlin node means; None when it is worth keeping. A node asks neither whether a
    page has changed (304) nor for anything but HTTP (101), so such an answer is not a page."""
    if status < OK or status == NOT_MODIFIED:
        return FailureKind.PROTOCOL
    return refusal_by_status(status)


def outcome_of_status(status: int) -> Outcome:
    """What became of a URL for which a worker gives only a status; 0 means that no answer came."""
    if status == NOT_MODIFIED:
        return Outcome.NOT_MODIFIED
    if is_redirect(status):
        return Outcome.REDIRECTED
    return Outcome.FAILED if status == 0 or refusal_by_status(status) else Outcome.FETCHED


def kind_of_status(status: int) -> FailureKind:
    """The kind of a failure for which a worker gives only a status."""
    return refusal_by_status(status) or FailureKind.CONNECT
