"""From a transfer that has ended to a record of it, and from a redirect to where it leads."""

from __future__ import annotations

from drumlin.errors import SiteError
from drumlin.fetch.transfer import Transfer
from drumlin.http.headers import header_fields, holds_all, location_of
from drumlin.model import Capture, FailureKind
from drumlin.protocol import Assignment
from drumlin.store import UNSPECIFIED
from drumlin.urls import canonical, domain_of, identities, identity

PARTIAL_CONTENT = 206


def capture_of(transfer: Transfer, task: Assignment, host: str, *, request: bytes, now: float) -> Capture:
    """A record of one response. If its body came encoded, `Pipeline.decode_body` must decode it later."""
    headers_raw = transfer.response_headers()
    headers = header_fields(headers_raw)
    body_raw = transfer.body.getvalue()
    whole = transfer.status != PARTIAL_CONTENT or holds_all(headers.get("content-range", ""))
    return Capture(
        url=task.url,
        host=host,
        domain=domain_of(host),
        depth=task.depth,
        found_on=task.found_on,
        redirects=task.redirects,
        fetched=now,
        duration_s=transfer.finished - transfer.started,
        status=transfer.status,
        protocol=transfer.protocol,
        ip=transfer.ip,
        request_headers=request,
        response_headers=headers_raw,
        body_raw=body_raw,
        body=b"" if headers.get("content-encoding") else body_raw,
        headers=headers,
        truncated=transfer.truncated or ("" if whole else UNSPECIFIED),
    )


def redirect_target(capture: Capture, redirects_max: int) -> str:
    """Where a 3xx response leads. Raises SiteError for no target, a loop, or a chain that is too long."""
    location = location_of(capture.response_headers)
    target = canonical(location, capture.url) if location else None
    if target is None:
        said = capture.headers.get("location", "")
        raise SiteError(FailureKind.BAD_REDIRECT, f"status {capture.status} redirects to {said[:200]!r}")
    if identity(target) in identities((capture.url, *capture.redirects)):
        raise SiteError(FailureKind.REDIRECT_LOOP, f"redirects back to {target}")
    if len(capture.redirects) >= redirects_max:
        raise SiteError(FailureKind.REDIRECT_LIMIT, f"more than {redirects_max} redirects")
    return target
