"""Signed URLs (AWS Signature Version 4): who has one may make exactly one request, without credentials of his own.

Besides method, name and time, headers can be signed. The length and the SHA-256 of a body are such headers, so a node
can put what it announced in the place that it was given, and nothing else. obstore signs URLs too, but no headers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit

from drumlin.store.objects.address import Access, Address

ALGORITHM: Final = "AWS4-HMAC-SHA256"
CHECKSUM_HEADER: Final = "x-amz-checksum-sha256"
LENGTH_HEADER: Final = "content-length"
_UNRESERVED: Final = "-_.~"


def signed_url(
    access: Access,
    address: Address,
    method: str,
    name: str,
    *,
    now: float,
    valid_s: int,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
) -> str:
    """The URL by which this request can be made until `valid_s` after `now`. `headers`, in lower case, must be sent as
    they are; an empty `name` is the bucket itself, whatever the prefix."""
    endpoint = urlsplit(access.endpoint or f"https://s3.{access.region}.amazonaws.com")
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{access.region}/s3/aws4_request"
    sent = {"host": endpoint.netloc} | dict(headers or {})
    asked = dict(query or {}) | {
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{access.key_id}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(valid_s),
        "X-Amz-SignedHeaders": ";".join(sorted(sent)),
    }
    if access.session:
        asked["X-Amz-Security-Token"] = access.session
    full = f"{address.prefix}/{name}" if name and address.prefix else name
    path = quote(f"{endpoint.path}/{address.bucket}" + (f"/{full}" if full else ""), safe=f"/{_UNRESERVED}")
    arguments = "&".join(
        f"{quote(key, safe=_UNRESERVED)}={quote(asked[key], safe=_UNRESERVED)}" for key in sorted(asked)
    )
    lines = "".join(f"{key}:{sent[key]}\n" for key in sorted(sent))
    request = "\n".join([method, path, arguments, lines, asked["X-Amz-SignedHeaders"], "UNSIGNED-PAYLOAD"])
    told = "\n".join([ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()])
    signature = hmac.new(_key(access, scope), told.encode(), hashlib.sha256).hexdigest()
    return f"{endpoint.scheme}://{endpoint.netloc}{path}?{arguments}&X-Amz-Signature={signature}"


def _key(access: Access, scope: str) -> bytes:
    key = f"AWS4{access.secret}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def body_headers(size: int, digest: str) -> dict[str, str]:
    """The headers that bind a request to a body of this size and SHA-256 (in hexadecimal)."""
    return {CHECKSUM_HEADER: base64.b64encode(bytes.fromhex(digest)).decode(), LENGTH_HEADER: str(size)}
