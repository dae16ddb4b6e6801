"""From what came back to what it means: the outcome of one fetch, as a result and a line of the fetch log."""

from __future__ import annotations

from drumlin.contact.terms import Silence
from drumlin.errors import SiteError
from drumlin.fetch import Transfer
from drumlin.model import Capture, FailureKind, Outcome
from drumlin.protocol import Assignment, Result, failure_of_status, is_redirect
from drumlin.protocol.statuses import OK
from drumlin.store import LENGTH, ROBOTS_OUTCOME, UNSPECIFIED, FetchRecord

ERROR_CHARS_MAX = 500
DISCONNECTED = "disconnect"
_CUT_BY = {FailureKind.TOO_LARGE: LENGTH, FailureKind.TIMEOUT: "time", FailureKind.RESET: DISCONNECTED}
"""Why a body is not all there, in the words of WARC."""


def truncation(transfer: Transfer) -> str:
    """Why an answer whose connection broke within its body is worth keeping as far as it came, in the words of WARC.
    Empty when there is nothing to keep. (What took too long may be a trap that drips for ever.)"""
    if transfer.failure != FailureKind.RESET or not transfer.has_head or failure_of_status(transfer.status):
        return ""
    return DISCONNECTED if transfer.body_bytes or is_redirect(transfer.status) else ""


def cut_short(transfer: Transfer) -> str:
    """Why an answer has no end, in the words of WARC; empty when it has one."""
    return _CUT_BY.get(FailureKind(transfer.failure), UNSPECIFIED) if transfer.failure else ""


def keep_cut(transfer: Transfer, *, last_try: bool) -> None:
    """Keep what arrived of an answer that broke off, when no further try is left. Of a redirect nothing else matters
    than where it leads, so that it need not be tried again."""
    if last_try or is_redirect(transfer.status):
        transfer.truncated = truncation(transfer)
        if transfer.truncated:
            transfer.failure = ""


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
        page_url=other_page(capture, task),
    )


def other_page(capture: Capture, task: Assignment) -> str:
    """The URL of what was captured, where that is not the one that was given out."""
    return capture.url if capture.url != task.url else ""


def result_without_capture(
    task: Assignment, outcome: Outcome, capture_id: str, now: float, kind: str, error: str
) -> Result:
    """A result with nothing stored: a failure, a denial, an upgrade to HTTPS."""
    return Result(
        assignment_id=task.assignment_id,
        url=task.url,
        status_code=0,
        content_hash="",
        links=[],
        crawl_time=now,
        outcome=outcome,
        kind=kind,
        error=error[:ERROR_CHARS_MAX],
        capture_id=capture_id,
        redirect_chain=list(task.redirects),
    )


def fail(result: Result, fetch: FetchRecord, broken: SiteError) -> None:
    """Have a page that arrived count as failed: its body turned out to be broken when it was to be read. It is archived
    as it came."""
    result.outcome = fetch.outcome = Outcome.FAILED
    result.kind = fetch.kind = broken.kind
    result.error = fetch.error = broken.message[:ERROR_CHARS_MAX]
    result.size = 0
    result.redirect_to = fetch.redirect_to = ""


def fetch_record(
    result: Result, task: Assignment, host: str, node: str, transfer: Transfer | Silence | None = None
) -> FetchRecord:
    """The line of the fetch log that belongs to a result; without a transfer there was no contact. Of an answer that
    failed the log has as much as came: a result tells of whole answers only."""
    cut_short = f"cut short: {transfer.error}"[:ERROR_CHARS_MAX] if transfer and transfer.truncated else ""
    answered = transfer is not None and transfer.status >= OK
    return FetchRecord(
        url=result.page,
        host=host,
        fetched=result.crawl_time,
        outcome=result.outcome,
        status=result.status_code or (transfer.status if answered and transfer else 0),
        kind=result.kind,
        error=result.error or cut_short,
        duration_s=transfer.finished - transfer.started if transfer else 0.0,
        attempt=task.attempts + 1 if transfer or result.outcome == Outcome.FAILED else 0,
        bytes=transfer.body_bytes if answered and transfer else None,
        redirect_to=result.redirect_to,
        protocol=transfer.protocol if transfer else "",
        ip=transfer.ip if transfer else "",
        node=node,
        record_id=result.record_id,
    )


def robots_record(transfer: Transfer, url: str, host: str, node: str, now: float) -> FetchRecord:
    """The line of the fetch log of a contact that asked for robots.txt."""
    return FetchRecord(
        url=url,
        host=host,
        fetched=now,
        outcome=ROBOTS_OUTCOME,
        status=transfer.status if transfer.has_head else 0,
        kind=transfer.failure,
        error=transfer.error[:ERROR_CHARS_MAX],
        duration_s=transfer.finished - transfer.started,
        attempt=1,
        bytes=transfer.body_bytes if transfer.has_head else None,
        protocol=transfer.protocol,
        ip=transfer.ip,
        node=node,
    )
