"""From what came back to what it means: the outcome of one fetch, as a result and a line of the fetch log."""

from __future__ import annotations

from typing import Any

from drumlin.errors import SiteError
from drumlin.fetch import Transfer
from drumlin.http.retry_after import is_number
from drumlin.model import Capture, FailureKind, Outcome
from drumlin.protocol import Assignment, Result
from drumlin.store import FetchRecord

ERROR_CHARS_MAX = 500
HSTS_MAX_AGE_S = 365 * 86400.0
OK = 200
NOT_MODIFIED = 304
TOO_MANY_REQUESTS = 429
DISCONNECTED = "disconnect"


def status_failure(status: int) -> str:
    """The failure that a status code means; empty when the response is an answer worth keeping. Nobody asked whether a
    page has changed (304) or for anything but HTTP (101): such answers are no pages."""
    if status < OK or status == NOT_MODIFIED:
        return FailureKind.PROTOCOL
    if status == TOO_MANY_REQUESTS:
        return FailureKind.RATE_LIMITED
    if status >= 500:
        return FailureKind.HTTP_5XX
    return ""


def truncation(transfer: Transfer) -> str:
    """Why an answer whose connection broke within its body is worth keeping as far as it came, in the words of WARC.
    Empty when there is nothing to keep. (What took too long may be a trap that drips for ever.)"""
    if transfer.failure != FailureKind.RESET or not transfer.has_head or status_failure(transfer.status):
        return ""
    return DISCONNECTED if transfer.body_bytes or is_redirect(transfer.status) else ""


def keep_cut(transfer: Transfer, *, last_try: bool) -> None:
    """Keep what arrived of an answer that broke off, when no further try is left. Of a redirect nothing else matters
    than where it leads, so that it need not be tried again."""
    if last_try or is_redirect(transfer.status):
        transfer.truncated = truncation(transfer)
        if transfer.truncated:
            transfer.failure = ""


def is_redirect(status: int) -> bool:
    return 300 <= status < 400 and status != NOT_MODIFIED


def result_of_capture(capture: Capture, task: Assignment, outcome: Outcome, capture_id: str) -> Result:
    """The result of a page that arrived; reading it fills in the rest (`settling`)."""
    return Result(
        assignment_id=task.assignment_id,
        url=task.url,
        status_code=capture.status,
        content_hash="",
        links=[],
        crawl_time=capture.fetched,
        outcome=outcome,
        capture_id=capture_id,
        size=len(capture.body_raw),
        redirect_chain=list(task.redirects),
    )


def result_without_capture(task: Assignment, outcome: Outcome, capture_id: str, now: float, **more: Any) -> Result:
    """A result with nothing stored: a failure, a denial, an upgrade to HTTPS. `more` are further fields of Result."""
    result = Result(
        assignment_id=task.assignment_id,
        url=task.url,
        status_code=0,
        content_hash="",
        links=[],
        crawl_time=now,
        outcome=outcome,
        capture_id=capture_id,
        redirect_chain=list(task.redirects),
    )
    for name, value in more.items():
        setattr(result, name, value[:ERROR_CHARS_MAX] if name == "error" else value)
    return result


def fail(result: Result, fetch: FetchRecord, broken: SiteError) -> None:
    """Have a page that arrived count as failed: its body turned out to be broken when it was to be read."""
    result.outcome = fetch.outcome = Outcome.FAILED
    result.kind = fetch.kind = broken.kind
    result.error = fetch.error = broken.message[:ERROR_CHARS_MAX]
    result.size = fetch.bytes = 0
    result.redirect_to = fetch.redirect_to = ""


def fetch_record(
    result: Result, task: Assignment, host: str, node: str, transfer: Transfer | None = None
) -> FetchRecord:
    """The line of the fetch log that belongs to a result; without a transfer there was no contact."""
    cut_short = f"cut short: {transfer.error}"[:ERROR_CHARS_MAX] if transfer and transfer.truncated else ""
    return FetchRecord(
        url=result.url,
        host=host,
        fetched=result.crawl_time,
        outcome=result.outcome,
        status=result.status_code,
        kind=result.kind,
        error=result.error or cut_short,
        duration_s=transfer.finished - transfer.started if transfer else 0.0,
        attempt=task.attempts + 1,
        bytes=result.size,
        redirect_to=result.redirect_to,
        protocol=transfer.protocol if transfer else "",
        ip=transfer.ip if transfer else "",
        node=node,
        record_id=result.record_id,
    )


def hsts_until(value: str, now: float) -> float:
    """Until when a Strict-Transport-Security header binds us; 0 when it does not."""
    for part in value.lower().split(";"):
        name, _, seconds = part.strip().partition("=")
        if name == "max-age" and is_number(seconds.strip('"')):
            age_s = min(float(seconds.strip('"')), HSTS_MAX_AGE_S)
            return now + age_s if age_s else 0.0
    return 0.0
