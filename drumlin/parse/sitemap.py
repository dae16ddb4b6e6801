"""Reads sitemaps: urlset, sitemapindex, lists of URLs, RSS and Atom, each also gzipped.

It uses regular expressions and not an XML parser, because sitemaps are often not well-formed, one that is cut off
should still give its beginning, and entities other than XML's own five, which no URL needs, must not be expanded.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from typing import cast
from urllib.parse import urljoin

import msgspec
from isal import isal_zlib
from isal.igzip_lib import IsalError

from drumlin.parse.encoding.charset import to_utf8
from drumlin.parse.mime import PLAIN, SITEMAP_ROOTS, xml_root

SITEMAP_URLS_MAX = 50_000
SITEMAP_ELEMENTS_MAX = 1_500_000
SITEMAP_BYTES_MAX = 50 * 1024 * 1024
SITEMAP_CHARS_MAX = 16 * 1024 * 1024
"""Limit on all addresses of one sitemap together, because a long `xml:base` would lengthen each of them."""
LOC_BYTES_MAX = 8192
PEEK_BYTES = 4096
GUNZIP_STEP_BYTES = 64 * 1024

# isal's stub types the class as an instance.
_GUNZIP_ERROR = cast("type[Exception]", IsalError)
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW_BITS = 31
_XML_MARKS = ("xml", "gzip", "octet-stream")
# Text, or the beginning of literal text (CDATA).
_VALUE = rb"\s*(?:(<!\[CDATA\[)|([^<]{0,%d}))" % LOC_BYTES_MAX
_LITERAL_END = b"]]>"
# Any element. The name includes its prefix, because <image:loc> is not the address of the page.
_ELEMENT = re.compile(rb"<(/?)((?:[\w.-]{1,32}:)?[a-zA-Z]{3,32})((?:\s[^<>]{0,2000}+)?)>" + _VALUE, re.DOTALL)
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6});")
_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'"}
_HREF = re.compile(rb"\shref\s*=\s*[\"']([^\"']{1,%d})" % LOC_BYTES_MAX)
_BASE = re.compile(rb"\sxml:base\s*=\s*[\"']([^\"']{1,%d})" % LOC_BYTES_MAX)
_NO_PERMALINK = re.compile(rb"\sisPermaLink\s*=\s*[\"']\s*false", re.IGNORECASE)
_REL = re.compile(rb"\srel\s*=\s*[\"']([^\"']{1,100})")
_TEXT_LINE = re.compile(rb"^[ \t]*(https?://\S{1,%d})[ \t\r]*$" % LOC_BYTES_MAX, re.MULTILINE | re.IGNORECASE)


class SitemapURL(msgspec.Struct, frozen=True):
    """One page that a sitemap or a feed lists."""

    loc: str
    priority: float | None = None


class Sitemap(msgspec.Struct):
    """The pages and further sitemaps that a sitemap lists."""

    urls: list[SitemapURL] = []
    sitemaps: list[str] = []


def may_be_sitemap_type(mime: str) -> bool:
    """Whether a body of this type may be a sitemap."""
    return mime == PLAIN or any(mark in mime for mark in _XML_MARKS)


def is_gzip(body: bytes) -> bool:
    return body.startswith(_GZIP_MAGIC)


def looks_like_sitemap(mime: str, body: bytes) -> bool:
    """Whether a body is worth giving to `parse_sitemap`."""
    if mime == PLAIN:
        first = body[:PEEK_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
        return _TEXT_LINE.match(first.strip()) is not None
    if not may_be_sitemap_type(mime):
        return False
    _, start = to_utf8(_inflated(body, PEEK_BYTES), "")
    return xml_root(start) in SITEMAP_ROOTS


def parse_sitemap(body: bytes, url: str) -> Sitemap:
    """The entries of a sitemap that can be read. Locations are resolved against an `xml:base` if there is one, but not
    against `url`."""
    _, text = to_utf8(_inflated(body, SITEMAP_BYTES_MAX), "", url)
    if b"<!--" in text:
        text = _COMMENT.sub(b"", text)
    root = xml_root(text)
    if root in {b"rss", b"rdf", b"feed"}:
        return _Entries(b"entry" if root == b"feed" else b"item").read(text)
    if root == b"sitemapindex":
        found = _Entries(b"sitemap").read(text)
        return Sitemap([], [entry.loc for entry in found.urls])
    if root == b"urlset":
        return _Entries(b"url").read(text)
    return _from_lines(text) if not root else Sitemap()


def _inflated(body: bytes, bytes_max: int) -> bytes:
    """The body, decompressed if it is gzip, up to a limit. A damaged body is returned up to the damage."""
    if not is_gzip(body):
        return body[:bytes_max]
    stream = isal_zlib.decompressobj(_GZIP_WINDOW_BITS)
    parts: list[bytes] = []
    left = bytes_max
    try:
        for start in range(0, len(body), GUNZIP_STEP_BYTES):
            parts.append(stream.decompress(body[start : start + GUNZIP_STEP_BYTES], left))
            left -= len(parts[-1])
            if left <= 0 or stream.eof:
                break
    except _GUNZIP_ERROR:
        pass
    return b"".join(parts)


def _from_lines(text: bytes) -> Sitemap:
    lines = itertools.islice(_TEXT_LINE.finditer(text), SITEMAP_URLS_MAX)
    return Sitemap([SitemapURL(_literal(found[1])) for found in lines])


class _Entries:
    """Reads the entries of one kind from an XML text, in one pass."""

    def __init__(self, entry: bytes) -> None:
        self._entry = entry
        self._found = Sitemap()
        self._fields: dict[bytes, str] = {}
        self._inside = False
        self._root_base = ""
        self._base = ""
        self._chars = 0

    def read(self, text: bytes) -> Sitemap:
        """All entries, including the last one if the text ends inside it."""
        prefix = _root_prefix(text)
        for closing, name, attributes, value, literal in itertools.islice(_elements(text), SITEMAP_ELEMENTS_MAX):
            if prefix:
                name = name.removeprefix(prefix)
            if name == self._entry:
                self._boundary(opening=not closing)
                self._base = _based(self._root_base, attributes)
                if len(self._found.urls) >= SITEMAP_URLS_MAX or self._chars > SITEMAP_CHARS_MAX:
                    return self._found
            elif name == b"feed":
                self._root_base = _based("", attributes)
            elif self._inside and not closing:
                self._field(name, attributes, _literal(value) if literal else _plain(value))
        self._boundary(opening=False)
        return self._found

    def _boundary(self, *, opening: bool) -> None:
        # In RSS, the address of an entry may be in its identifier only.
        loc = self._fields.get(b"loc") or self._fields.get(b"guid")
        if loc:
            self._chars += len(loc)
            self._found.urls.append(SitemapURL(loc, _priority(self._fields.get(b"priority", ""))))
        self._fields = {}
        self._inside = opening

    def _field(self, name: bytes, attributes: bytes, value: str) -> None:
        if name == b"link":
            self._link(attributes, value)
        elif name in {b"loc", b"priority"} or (
            name == b"guid"
            and value.lower().startswith(("http://", "https://"))
            and not _NO_PERMALINK.search(attributes)
        ):
            self._fields.setdefault(name, value)

    def _link(self, attributes: bytes, value: str) -> None:
        href = _HREF.search(attributes)
        rel = _REL.search(attributes)
        if rel is None or rel[1] == b"alternate":
            loc = _plain(href[1]) if href else value
            base = _based(self._base, attributes)
            if loc:
                self._fields.setdefault(b"loc", _joined(base, loc))


def _elements(text: bytes) -> Iterator[tuple[bytes, bytes, bytes, bytes, bool]]:
    """The elements of a text: the slash of closing ones, name, attributes, value, and whether the value is literal.

    Literal text is not searched for elements, however long it is: in feeds it is often HTML. If it has no end, all that
    follows is read as if it had not begun. The end is remembered, so a text with a million beginnings and no end is
    searched only once.
    """
    place, ends, ended = 0, -1, False
    while element := _ELEMENT.search(text, place):
        closing, name, attributes, literal, value = element.groups()
        place = element.end()
        if literal:
            if ends < place:
                found = text.find(_LITERAL_END, place)
                ends, ended = (len(text), False) if found < 0 else (found, True)
            value = b""
            if ends - place <= LOC_BYTES_MAX:
                value, place = text[place:ends], ends
            elif ended:
                place = ends
        yield closing, name, attributes, value, bool(literal)


def _root_prefix(text: bytes) -> bytes:
    """`sm:` when the root is `<sm:urlset>`: then its entries carry the prefix too."""
    root = re.search(rb"<([\w.-]{1,32}:)(?:urlset|sitemapindex|feed)\b", text[:PEEK_BYTES])
    return root[1] if root else b""


def _based(base: str, attributes: bytes) -> str:
    """The base of addresses inside an element; "" is the sitemap itself."""
    own = _BASE.search(attributes) if attributes else None
    return _joined(base, _plain(own[1])) if own else base


def _joined(base: str, href: str) -> str:
    try:
        return urljoin(base, href) if base else href
    except ValueError:  # an invalid IPv6 address
        return href


def _literal(value: bytes) -> str:
    return value.decode("utf-8", "replace").strip()


def _plain(value: bytes) -> str:
    text = _literal(value)
    return _ENTITY.sub(_character, text) if "&" in text else text


def _character(entity: re.Match[str]) -> str:
    name = entity[0]
    if name[1] != "#":
        return _ENTITIES[name]
    code = int(name[3:-1], 16) if name[2] == "x" else int(name[2:-1])
    return chr(code) if code <= sys.maxunicode and not 0xD800 <= code < 0xE000 else "\ufffd"


def _priority(value: str) -> float | None:
    """A priority between 0 and 1; None when it is absent or not such a number."""
    try:
        priority = float(value)
    except ValueError:
        return None
    return priority if 0.0 <= priority <= 1.0 else None
