"""Captures as the pipeline hands them to the store, for the store's tests."""

from __future__ import annotations

import hashlib
from typing import Any

from drumlin.model import Capture, LinkSet

FETCHED = 1_760_000_000.123456
HTML = b"<html><head><title>Hello</title></head><body>" + b"<p>Some words about drumlins.</p>" * 50 + b"</body></html>"
REQUEST = b"GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: drumlin/1\r\nAccept: */*\r\n\r\n"


def header_block(body: bytes, *lines: bytes, status: bytes = b"HTTP/1.1 200 OK") -> bytes:
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join([status, b"Content-Type: text/html; charset=utf-8", length, *lines]) + b"\r\n\r\n"


def make_capture(url: str = "https://example.com/", body: bytes = HTML, **changes: Any) -> Capture:
    body_raw = changes.pop("body_raw", body)
    fields: dict[str, Any] = {
        "url": url,
        "host": url.split("/")[2],
        "domain": "example.com",
        "depth": 2,
        "found_on": "https://example.com/from",
        "redirects": ("https://example.com/old",),
        "fetched": FETCHED,
        "duration_s": 0.25,
        "status": 200,
        "protocol": "http/1.1",
        "ip": "192.0.2.7",
        "request_headers": REQUEST,
        "response_headers": header_block(body_raw),
        "body_raw": body_raw,
        "body": body,
        "headers": {"content-type": "text/html; charset=utf-8"},
        "mime": "text/html",
        "charset": "utf-8",
        "title": "Hello",
        "text": b"Some words about drumlins.",
        "digest": hashlib.sha256(body).digest(),
        "sketch": bytes(range(88)),
        "links": LinkSet(
            [f"{url}a", None, "https://other.example/"], ["a", "a", "img"], ["", "nofollow", ""], ["A", "mail", "Ö"]
        ),
    }
    return Capture(**{**fields, **changes})
