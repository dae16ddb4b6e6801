"""Results of nodes and workers that others wrote, and how they become results and captures of drumlin's own form.

Such workers return results over HTTP and store nothing: the coordinator that takes a result stores it (`keeping`). Here
the many forms in which a result may be written become the one that drumlin's nodes use, with a capture to go with it.
No address that a worker names is ever fetched: a text is taken from a `data:` URL, and any other URL is only recorded.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import msgspec

from drumlin.api.bodies import Format
from drumlin.api.intake.forms import Epoch, HashText, Moment, check_moment, is_data_url, read_hash, read_moment
from drumlin.coordinator.taking.settling import outcome_of
from drumlin.http.headers import final_block, header_fields, location_of, status_of
from drumlin.http.mime import extract_mime_type
from drumlin.http.refusal import Refused
from drumlin.http.retry_after import SLOW_DOWN, retry_after_s
from drumlin.model import Capture, LinkSet, Outcome, Told
from drumlin.protocol import (
    BASE64,
    HOST_REPORTS_MAX,
    LINKS_MAX,
    RESULTS_MAX,
    SKETCH_BYTES_MAX,
    URL_CHARS_MAX,
    AssignmentKey,
    Count,
    HostReport,
    LeaseId,
    RecordId,
    Result,
    Results,
    Seconds,
    ShortText,
    URLText,
    kind_of_status,
    read_assignment_id,
)
from drumlin.store import FetchRecord, record_id_of
from drumlin.urls import canonical, domain_of, host_or_nothing
from drumlin.urls.resolver import PAGE_CHARS_MAX

TEXT_URL_CHARS_MAX = 4 * 1024 * 1024
BODY_BYTES_MAX = 16 * 1024 * 1024
HEAD_CHARS_MAX = 256 * 1024
PAUSE_S_MAX = 86_400.0
"""The same bound as for everything that is reported about a host."""
LINK_KIND = "a"
SHOWN_CHARS = 200
CAPTURE_PREFIX = "told-"
ANSWERED = frozenset({Outcome.FETCHED, Outcome.REDIRECTED, Outcome.NOT_MODIFIED})
"""With these outcomes, a head that was sent belongs to the answer."""


TextURL = Annotated[str, msgspec.Meta(max_length=TEXT_URL_CHARS_MAX)]
Head = Annotated[str, msgspec.Meta(max_length=HEAD_CHARS_MAX)]


class ToldResult(msgspec.Struct, kw_only=True):
    """What became of one URL, as any node may write it; whatever is unknown may be null or left out.

    `content_hash` is the SHA-256 of the body, in hexadecimal or base64. `crawl_time` and `submitted_at` are in seconds
    since the epoch or ISO 8601. `text_data_url` is the page's text as a `data:` URL; any other URL is kept as a
    reference. `body` is the page as it was received, `response_head` its status line and headers; `content_type` is
    used if there is no head. Without `links` they are taken from the body."""

    assignment_id: LeaseId
    url: URLText
    status_code: Annotated[int, msgspec.Meta(ge=0, le=999)] | None = None
    content_hash: HashText | None = None
    links: Annotated[list[URLText], msgspec.Meta(max_length=LINKS_MAX)] | None = None
    crawl_time: Epoch | Moment | None = None
    outcome: Annotated[str, msgspec.Meta(max_length=20)] | None = None
    text_data_url: TextURL | None = None
    redirect_chain: Annotated[list[URLText], msgspec.Meta(max_length=50)] | None = None
    size: Count | None = None
    sketch: Annotated[bytes, msgspec.Meta(max_length=SKETCH_BYTES_MAX, extra_json_schema=BASE64)] | None = None
    error: ShortText | None = None
    etag: ShortText | None = None
    last_modified: ShortText | None = None
    body: Annotated[bytes, msgspec.Meta(max_length=BODY_BYTES_MAX, extra_json_schema=BASE64)] | None = None
    response_head: Head | None = None
    content_type: ShortText | None = None
    redirect_to: URLText | None = None
    retry_after_s: Seconds | None = None
    kind: Annotated[str, msgspec.Meta(max_length=40)] | None = None
    capture_id: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    result_id: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    node_id: ShortText | None = None
    submitted_at: Epoch | Moment | None = None
    record_id: RecordId | None = None
    mime: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    link_hints: Annotated[list[float], msgspec.Meta(max_length=LINKS_MAX)] | None = None
    traps: Annotated[dict[ShortText, Count], msgspec.Meta(max_length=100)] | None = None

    def __post_init__(self) -> None:
        check_moment(self.crawl_time)


class ToldResults(msgspec.Struct):
    """A batch of results. A sender that has written its captures into the store itself sets `stored`; otherwise they
    are stored here, if this coordinator has a store."""

    results: Annotated[list[ToldResult], msgspec.Meta(max_length=RESULTS_MAX)]
    hosts: Annotated[list[HostReport], msgspec.Meta(max_length=HOST_REPORTS_MAX)] = []
    canonical_links: bool = False
    stored: bool = False
    segment: Annotated[str, msgspec.Meta(max_length=128)] = ""


class ResultsFormat(Format[Any]):
    """Decodes a batch of results: first as drumlin's nodes write it, which is fast, then as others may write it."""

    def __init__(self) -> None:
        super().__init__(ToldResults)
        self._own: Format[Results] = Format(Results)

    def decode(self, body: bytes, content_type: str) -> Results | ToldResults:
        try:
            own = self._own.decode(body, content_type)
            if own.stored and own.well_formed:
                return own
        except Refused as refused:
            if refused.status != 422:
                raise
        told: ToldResults = super().decode(body, content_type)
        return told


class Telling(msgspec.Struct):
    """A worker's result on its way into the store. `text_url` is a `data:` URL that is still to be read. `with_body`
    says that the capture holds the page as it was received, `with_head` that its headers are known too."""

    result: Result
    fetch: FetchRecord
    capture: Capture | None = None
    text_url: str = ""
    told_hash: str = ""
    with_body: bool = False
    with_head: bool = False

    @property
    def to_be_read(self) -> bool:
        """Whether there are strangers' bytes to parse, which another process does. Failed fetches are not parsed."""
        failed = self.result.outcome == Outcome.FAILED
        return self.capture is not None and not failed and (self.with_body or bool(self.text_url))


def as_stored(told: ToldResults, now: float) -> Results:
    """The results of a sender that has stored them itself but does not write them as drumlin's nodes do."""
    results = [_result(one, now) for one in told.results]
    for one, result in zip(told.results, results, strict=True):
        result.content_hash, result.record_id = read_hash(one.content_hash), one.record_id or ""
    return Results(results, told.hosts, told.canonical_links, stored=True, segment=told.segment)


def telling_of(told: ToldResult, node: str, now: float, *, decoded: bool = False) -> Telling:
    """A result in drumlin's form, with its capture; `Refused` when it contradicts itself. `decoded` says that its body
    came as text rather than as bytes."""
    _check_status(told)
    result = _result(told, now)
    head = _head(told) if result.outcome in ANSWERED or _is_refusal(told, result) else b""
    target = told.redirect_to or (location_of(head) if result.outcome == Outcome.REDIRECTED else "")
    result.redirect_to = canonical(target, result.url) or "" if target else ""
    host = host_or_nothing(result.url)
    key = read_assignment_id(result.assignment_id)
    fetch = _fetch(result, host, node, key)
    telling = Telling(result, fetch, text_url=_data_url(told), told_hash=read_hash(told.content_hash))
    if host and key is not None and _tells_of_a_page(told, result):
        # A 304 has no body, so nothing is missing.
        telling.with_body = told.body is not None or result.outcome == Outcome.NOT_MODIFIED
        telling.with_head = bool(head)
        telling.capture = _capture(told, result, key, host, head)
        telling.capture.told = Told(node, result.size, text_data_url=_reference(told), decoded=decoded)
        fetch.record_id = result.record_id = telling.capture.record_id = record_id_of(telling.capture)
    return telling


def _check_status(told: ToldResult) -> None:
    """Refuse a page without a status code. A missing status means that there was no answer, so the page would count as
    a failed fetch; the sender has probably forgotten or misspelt the field."""
    page = (told.body, told.response_head, told.text_data_url, told.content_hash or None)
    if told.status_code is None and told.outcome is None and any(part is not None for part in page):
        message = f"There is a page of {told.url[:SHOWN_CHARS]}, and no status code."
        raise Refused(422, "invalid", message, "Give the status code; without one there was no answer.")


def _result(told: ToldResult, now: float) -> Result:
    result = Result(
        told.assignment_id,
        told.url,
        told.status_code or 0,
        "",
        told.links or [],
        read_moment(told.crawl_time, now),
        outcome=told.outcome or "",
        redirect_chain=told.redirect_chain or [],
        size=len(told.body) if told.body is not None else told.size or 0,
        sketch=told.sketch,
        error=told.error or "",
        etag=told.etag or "",
        last_modified=told.last_modified or "",
        retry_after_s=asked_pause_s(told, now),
        redirect_to=told.redirect_to or "",
        link_hints=told.link_hints or [],
        mime=told.mime or "",
        traps=told.traps or {},
    )
    result.outcome = outcome_of(result)
    if result.outcome == Outcome.FAILED:
        result.kind = told.kind or kind_of_status(result.status_code)
    result.capture_id = told.capture_id or _capture_id(told, result)
    return result


def asked_pause_s(told: ToldResult, now: float) -> float:
    """How long the site asks to be left alone: what the worker says, or else what the answer's head says."""
    if told.retry_after_s is not None or told.status_code not in SLOW_DOWN or not told.response_head:
        return told.retry_after_s or 0.0
    return min(retry_after_s(header_fields(_head(told)), now), PAUSE_S_MAX)


def _capture_id(told: ToldResult, result: Result) -> str:
    """An id that is the same whenever the same result is sent again, to any coordinator, and differs for every other
    result. A time that the worker did not send is left out, because it would differ each time."""
    moment = result.crawl_time if told.crawl_time is not None else 0.0
    said = (result.assignment_id, result.url, result.status_code, read_hash(told.content_hash), moment, result.outcome)
    return CAPTURE_PREFIX + hashlib.sha256("\n".join(map(str, said)).encode()).hexdigest()[:32]


def _fetch(result: Result, host: str, node: str, key: AssignmentKey | None) -> FetchRecord:
    return FetchRecord(
        url=result.url,
        host=host,
        fetched=result.crawl_time,
        outcome=result.outcome,
        status=result.status_code,
        kind=result.kind,
        error=result.error,
        attempt=key.attempts + 1 if key else 0,
        bytes=result.size if result.outcome == Outcome.FETCHED else result.size or None,
        redirect_to=result.redirect_to,
        node=node,
    )


def _tells_of_a_page(told: ToldResult, result: Result) -> bool:
    """Whether the result is a page, or a redirect, a 304 or a refusal with everything that a WARC record needs."""
    if result.outcome == Outcome.FETCHED or _is_refusal(told, result):
        return True
    whole = told.body is not None if result.outcome == Outcome.REDIRECTED else result.outcome == Outcome.NOT_MODIFIED
    return whole and bool(told.response_head)


def _is_refusal(told: ToldResult, result: Result) -> bool:
    """Whether the result is an answer that is not a page, such as a 503, with its head and its body."""
    answered = bool(told.status_code and told.response_head) and told.body is not None
    return result.outcome == Outcome.FAILED and answered


def _capture(told: ToldResult, result: Result, key: AssignmentKey, host: str, head: bytes) -> Capture:
    headers = header_fields(head) if head else {"content-type": told.content_type or told.mime or ""}
    links = _resolved(result.links, result.url)
    told_hash = read_hash(told.content_hash)
    return Capture(
        url=result.url,
        host=host,
        domain=domain_of(host),
        depth=key.depth,
        found_on="",
        redirects=tuple(result.redirect_chain),
        fetched=result.crawl_time,
        duration_s=0.0,
        status=result.status_code,
        protocol="",
        ip="",
        request_headers=b"",
        response_headers=head,
        body_raw=told.body or b"",
        body=b"",
        headers=headers,
        mime=extract_mime_type(headers.get("content-type", "")).essence,
        links=LinkSet(links, [LINK_KIND] * len(links), [""] * len(links), [""] * len(links)),
        links_bytes=sum(len(url) for url in links if url),
        digest=bytes.fromhex(told_hash),
        sketch=result.sketch,
    )


def _resolved(hrefs: list[str], base: str) -> list[str | None]:
    """The URLs of links, as many as a page may have: a long base makes a long URL of every short href."""
    urls, chars_left = list[str | None](), PAGE_CHARS_MAX
    for href in hrefs:
        url = canonical(href, base)
        chars_left -= len(url or "")
        if chars_left < 0:
            break
        urls.append(url)
    return urls


def _head(told: ToldResult) -> bytes:
    """The last of the header blocks that curl may have written, which belongs to the body. Its status must match."""
    if not told.response_head:
        return b""
    block = final_block(told.response_head.strip("\r\n").encode() + b"\r\n\r\n", told.status_code or 0)
    if status_of(block) != told.status_code:
        message = f"The head of {told.url[:SHOWN_CHARS]} does not begin with the status {told.status_code}."
        raise Refused(422, "invalid", message, "Send the head as it was received, or leave it out.")
    return block


def _data_url(told: ToldResult) -> str:
    """The text's URL when it is a `data:` URL."""
    return told.text_data_url if told.text_data_url and is_data_url(told.text_data_url) else ""


def _reference(told: ToldResult) -> str:
    """The text's URL when it is not a `data:` URL. It is recorded and never fetched."""
    url = told.text_data_url or ""
    if is_data_url(url):
        return ""
    if len(url) > URL_CHARS_MAX:
        message = f"The text_data_url of {told.url[:SHOWN_CHARS]} is longer than {URL_CHARS_MAX} characters."
        raise Refused(422, "invalid", message, "Only a data: URL may be.")
    return url
