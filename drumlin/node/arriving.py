"""From a request that has ended to what is made of it: a page, a redirect, a failure with or without an answer, a
robots.txt. Every answer that came whole is kept for the archive, whatever it means for its URL."""

from __future__ import annotations

from drumlin.contact.actions import KeepRobots, Settle, SettlePage
from drumlin.contact.hosts import HostWork
from drumlin.contact.steps import asked_url, page_url
from drumlin.contact.terms import Answer, Silence
from drumlin.errors import SiteError
from drumlin.fetch import Transfer, request_target
from drumlin.fetch.decode import GZIP, decode, looks_compressed
from drumlin.http.headers import header_fields
from drumlin.model import Capture, FailureKind, Outcome
from drumlin.node.keeping.archive import Arrival, Contact
from drumlin.node.outcomes import (
    cut_short,
    fetch_record,
    other_page,
    result_of_capture,
    result_without_capture,
    robots_record,
)
from drumlin.protocol import Assignment, Result, failure_of_status, is_redirect
from drumlin.reading import capture_of, redirect_target
from drumlin.robots import BODY_BYTES_MAX
from drumlin.store import LENGTH, FetchRecord, record_id_of

UNASKED = ", which was not asked for"


class Arriving:
    """Makes arrivals of what the law of contact has settled, and counts pages. `request_headers` are those that every
    request is sent with; `process` tells attempts of this process from those of an earlier one of the same name."""

    def __init__(self, node: str, request_headers: bytes, process: str) -> None:
        self._node = node
        self._request_headers = request_headers
        self._process = process
        self._attempts = 0
        self.fetched = 0
        self.fetched_bytes = 0

    def without_page(self, action: Settle, wall: float) -> Arrival:
        """A URL that ended without a request."""
        task = action.task
        result = self._result(task, action.outcome, wall, action.kind, action.error)
        result.status_code, result.redirect_to = action.status, action.redirect_to
        result.put_off_s, result.gave_up = action.put_off_s, action.gave_up
        return Arrival(result, fetch_record(result, task, action.host.host, self._node))

    def of_page(self, action: SettlePage, redirects_max: int) -> Arrival:
        """A URL that ended with an answer, or with none."""
        task, wall, answer = action.task, action.wall, action.answer
        if isinstance(answer, Silence):
            return self._failed(action, answer)
        transfer = _transfer(answer)
        if transfer.unwanted:
            return self._skipped(action, transfer)
        if transfer.failure:
            return self._failed(action, transfer)
        capture = self._capture(transfer, asked_url(task), action.host, task, wall)
        capture.url = page_url(task)
        kind = failure_of_status(transfer.status)
        if kind:
            error = f"status {transfer.status}" + (UNASKED if kind == FailureKind.PROTOCOL else "")
            return self._refused(capture, transfer, action, kind, error)
        try:
            return self._answered(capture, transfer, action, redirects_max)
        except SiteError as broken:
            return self._refused(capture, transfer, action, broken.kind, broken.message)

    def of_robots(self, action: KeepRobots, wall: float) -> Contact:
        """What came of asking for a robots.txt, under the lease of the host that it is on."""
        place, url, transfer = action.fetch.host, action.fetch.url, _transfer(action.answer)
        record = robots_record(transfer, url, place.host, self._node, wall)
        record.redirect_to = action.redirect_to
        if not transfer.has_head:
            return Contact(record, place.lease_id)
        transfer.truncated = transfer.truncated or cut_short(transfer)
        asked = Assignment("", url, 0, 0.0, place.host, 0.0)
        capture = self._capture(transfer, url, place, asked, wall)
        capture.record_id = record.record_id = record_id_of(capture)
        return Contact(record, place.lease_id, capture)

    def _skipped(self, action: SettlePage, transfer: Transfer) -> Arrival:
        result = self._result(action.task, Outcome.SKIPPED, action.wall, transfer.failure, transfer.unwanted)
        result.status_code = transfer.status
        return Arrival(result, self._record(result, action, transfer))

    def _failed(self, action: SettlePage, answer: Transfer | Silence) -> Arrival:
        result = self._result(action.task, Outcome.FAILED, action.wall, answer.failure, answer.error)
        return Arrival(result, self._record(result, action, answer))

    def _answered(self, capture: Capture, transfer: Transfer, action: SettlePage, redirects_max: int) -> Arrival:
        outcome, target = Outcome.FETCHED, ""
        if is_redirect(transfer.status):
            outcome, target = Outcome.REDIRECTED, redirect_target(capture, redirects_max)
        result = result_of_capture(capture, action.task, outcome, self._attempt_id(action.task))
        result.redirect_to = target
        self.fetched += 1
        self.fetched_bytes += len(capture.body_raw)
        return Arrival(result, self._record(result, action, transfer), capture)

    def _refused(self, capture: Capture, transfer: Transfer, action: SettlePage, kind: str, error: str) -> Arrival:
        """An answer without a page: the URL has failed, and what was answered is archived."""
        result = self._result(action.task, Outcome.FAILED, action.wall, kind, error)
        result.status_code, result.retry_after_s = transfer.status, action.retry_after_s
        result.size = len(capture.body_raw)
        result.page_url = other_page(capture, action.task)
        return Arrival(result, self._record(result, action, transfer), capture)

    def _result(self, task: Assignment, outcome: Outcome, wall: float, kind: str, error: str) -> Result:
        return result_without_capture(task, outcome, self._attempt_id(task), wall, kind, error)

    def _capture(self, transfer: Transfer, url: str, host: HostWork, task: Assignment, wall: float) -> Capture:
        request = request_block(url, host.host, self._request_headers, transfer.cookie)
        return capture_of(transfer, task, host.host, request=request, now=wall)

    def _record(self, result: Result, action: SettlePage, answer: Transfer | Silence) -> FetchRecord:
        return fetch_record(result, action.task, action.host.host, self._node, answer)

    def _attempt_id(self, task: Assignment) -> str:
        """Tells this attempt at this URL from every other, also of an earlier process of this name."""
        self._attempts += 1
        return f"{self._node}:{task.number}:{self._process}.{self._attempts:x}"


def _transfer(answer: Answer) -> Transfer:
    """The transfer that an answer is, with its body: the law of contact knows less of it."""
    if not isinstance(answer, Transfer):
        raise TypeError(f"{type(answer).__name__} is not what a fetcher brings")
    return answer


def keep_refusal(transfer: Transfer) -> None:
    """An answer that says no says so however long its body is; as much of it is kept as was read."""
    if transfer.failure == FailureKind.TOO_LARGE and transfer.has_head and failure_of_status(transfer.status):
        transfer.failure, transfer.truncated = "", LENGTH


def robots_body(transfer: Transfer) -> tuple[bytes, str]:
    """A robots.txt as text, and the failure of a body that does not decode or is too long."""
    body = transfer.body.getvalue()
    if transfer.failure:
        return body, ""
    encoding = header_fields(transfer.response_headers()).get("content-encoding", "")
    try:
        text = decode(body, encoding, BODY_BYTES_MAX) if encoding else body
        # Rules are text. Compressed once more than is said, they would be read as none, and so as "all allowed".
        return decode(text, GZIP, BODY_BYTES_MAX) if looks_compressed(text) else text, ""
    except SiteError as broken:
        return b"", broken.kind


def request_block(url: str, host: str, headers: bytes, cookie: str = "") -> bytes:
    """The request as it was sent."""
    if cookie:
        # libcurl puts it behind the User-Agent, which is the first of these.
        agent, _, others = headers.partition(b"\r\n")
        headers = b"%b\r\nCookie: %b\r\n%b" % (agent, cookie.encode("latin-1", "replace"), others)
    return f"GET {request_target(url)} HTTP/1.1\r\nHost: {host}\r\n".encode() + headers
