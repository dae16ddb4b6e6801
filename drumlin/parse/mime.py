"""Decides the type of a body: by the header, or by the bytes if the header says nothing or is plainly wrong."""

from __future__ import annotations

import re

from drumlin.http.mime import extract_mime_type

SNIFF_BYTES = 1024

HTML = "text/html"
XHTML = "application/xhtml+xml"
PLAIN = "text/plain"
BINARY = "application/octet-stream"

_SAYS_NOTHING = frozenset({"", "*/*", "unknown/unknown", "application/unknown", "application/octet-stream"})
_XML_TYPES = frozenset({"text/xml", "application/xml"})
_MAGIC = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", BINARY),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\x7fELF", BINARY),
    (b"OggS", "application/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
    (b"\xd0\xcf\x11\xe0", "application/x-ole-storage"),
)
_MAGIC_STARTS = tuple(start for start, _ in _MAGIC)
_BOMS = (b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")
_HTML_START = re.compile(
    rb"\s*(?>(?:<!--.*?-->\s*)*)"
    rb"<(?:!doctype html|html|head|body|title|meta|link|script|style|table|div|h1|p|a|br|iframe)[\s>/]",
    re.IGNORECASE | re.DOTALL,
)
# The root element, after a BOM, the XML declaration, comments, the doctype and processing instructions.
_XML_ROOT = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?>(?:(?:<\?.*?\?>|<!--.*?-->|<![^>\[]*(?:\[.*?\]\s*)?>)\s*)*)<([\w.:-]{1,64})", re.DOTALL
)
SITEMAP_ROOTS = frozenset({b"urlset", b"sitemapindex", b"rss", b"feed", b"rdf"})
# How a body may begin that is a sitemap or a feed, though it was sent as HTML or plain text.
_MAYBE_SITEMAP = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*<(?:\?xml[\s?]|(?:\w{1,32}:)?(?:urlset|sitemapindex|rss|feed|rdf)\b)", re.IGNORECASE
).match
_XML_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*<\?xml[\s?]")
_TYPE_OF_ROOT = {
    b"html": XHTML,
    b"rss": "application/rss+xml",
    b"feed": "application/atom+xml",
    b"rdf": "application/rdf+xml",
}
# Control characters that text does not contain: all but tab, line feed, form feed, carriage return and escape.
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


def essence(content_type: str) -> str:
    """The mime type of a Content-Type header, without its parameters; empty when it names none."""
    return extract_mime_type(content_type).essence


def sniff(content_type: str, body: bytes) -> str:
    """The mime type that a body is to be read as."""
    mime = essence(content_type)
    if body.startswith(_MAGIC_STARTS) and (mime in _SAYS_NOTHING or mime.startswith("text/")):
        return next(kind for start, kind in _MAGIC if body.startswith(start))
    if mime in _XML_TYPES:
        return _TYPE_OF_ROOT.get(xml_root(body), mime)
    if mime in (HTML, PLAIN) and _MAYBE_SITEMAP(body) and (root := xml_root(body)) in SITEMAP_ROOTS:
        # Servers that do not know these types send them as HTML or plain text; browsers sniff them too.
        return _TYPE_OF_ROOT.get(root, "application/xml")
    if mime == PLAIN:
        return PLAIN if _is_text(body) else BINARY
    if mime not in _SAYS_NOTHING:
        return mime
    return _look(body)


def xml_root(body: bytes) -> bytes:
    """The lower-case local name of the first element, empty when there is none near the start."""
    root = _XML_ROOT.match(body[:SNIFF_BYTES])
    return root[1].rpartition(b":")[2].lower() if root else b""


def _look(body: bytes) -> str:
    start = body[:SNIFF_BYTES]
    if not start.strip():
        return PLAIN
    if _HTML_START.match(start.removeprefix(_BOMS[0])):
        return HTML
    if _XML_START.match(start):
        return _TYPE_OF_ROOT.get(xml_root(body), "application/xml")
    return PLAIN if _is_text(body) else BINARY


def _is_text(body: bytes) -> bool:
    return body.startswith(_BOMS) or _NOT_TEXT.search(body, 0, SNIFF_BYTES) is None
