"""What a body is, by header and bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.parse import sniff


@pytest.mark.parametrize(
    ("content_type", "body", "mime"),
    [
        ("text/html; charset=utf-8", b"anything", "text/html"),
        ("TEXT/HTML", b"", "text/html"),
        ("", b"  <!DOCTYPE HTML><p>", "text/html"),
        ("", b"<!-- c --><html>", "text/html"),
        ("application/octet-stream", b"<html><body>", "text/html"),
        ("", b"plain words", "text/plain"),
        ("", b"", "text/plain"),
        ("", b"\x00\x01\x02", "application/octet-stream"),
        ("text/plain", b"\x00\x01\x02", "application/octet-stream"),
        ("text/plain", b"\xff\xfea\x00", "text/plain"),
        ("text/plain", b"<html>", "text/plain"),
        ("text/html", b"%PDF-1.7", "application/pdf"),
        ("", b"\x89PNG\r\n\x1a\n....", "image/png"),
        ("application/pdf", b"%PDF-1.7", "application/pdf"),
        ("text/plain", b"\x1f\x8b\x08\x00", "application/gzip"),
        ("text/xml", b"<?xml version='1.0'?><!-- c --><rss version='2.0'>", "application/rss+xml"),
        ("application/xml", b"<feed xmlns='http://www.w3.org/2005/Atom'>", "application/atom+xml"),
        ("text/xml", b"<?xml version='1.0'?>\n<!DOCTYPE html>\n<html>", "application/xhtml+xml"),
        ("text/xml", b"<?xml version='1.0'?><urlset>", "text/xml"),
        ("", b"<?xml version='1.0'?><urlset>", "application/xml"),
        ("nonsense", b"<p>hello", "text/html"),
        ("image/svg+xml", b"<svg>", "image/svg+xml"),
        ("text/html", b"<?xml version='1.0'?>\n<urlset>", "application/xml"),
        ("text/html; charset=utf-8", b"\xef\xbb\xbf<sitemapindex>", "application/xml"),
        ("text/plain", b"<sm:urlset xmlns:sm='x'>", "application/xml"),
        ("text/html", b"<?xml version='1.0'?><rss version='2.0'>", "application/rss+xml"),
        ("text/plain", b"<feed xmlns='http://www.w3.org/2005/Atom'>", "application/atom+xml"),
        ("text/html", b"<?xml version='1.0'?><!DOCTYPE html><html>", "text/html"),
        ("text/html", b"<feedback>", "text/html"),
        ("text/plain", b"<?xml version='1.0'?><html>", "text/plain"),
    ],
)
def test_a_body_is_what_its_header_says_unless_that_is_nothing_or_plainly_wrong(
    content_type: str, body: bytes, mime: str
) -> None:
    assert sniff(content_type, body) == mime


@given(st.text(max_size=30), st.binary(max_size=100))
def test_sniffing_never_raises(content_type: str, body: bytes) -> None:
    assert "/" in sniff(content_type, body)
