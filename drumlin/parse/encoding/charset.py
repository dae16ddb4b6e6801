"""Finds a page's encoding: by byte-order mark, header, declaration in the page, validity, and in the end a guess.

This follows the WHATWG standards for HTML and for encodings, as browsers do; the guess is Firefox's.
"""

from __future__ import annotations

import functools
import re

from chardetng_py.detector import EncodingDetector

from drumlin.http.mime import extract_mime_type
from drumlin.parse.encoding.decoders import BAD, decode
from drumlin.parse.encoding.labels import encoding_of
from drumlin.parse.encoding.prescan import prescan

PRESCAN_BYTES = 1024
# A browser that meets a declaration later than this starts over. If nothing else names the encoding, we look this far.
LATE_PRESCAN_BYTES = 16 * 1024
DETECT_BYTES_MAX = 64 * 1024
UTF8 = "UTF-8"

_UTF8_BOM = b"\xef\xbb\xbf"
_JAPANESE_ESCAPE = re.compile(rb"\x1b(?:\$[@B]|\([IJ])")
_TOP_LEVEL = re.compile(r"https?://[^/?#]*\.([a-z0-9-]*[a-z][a-z0-9-]*)(?::\d+)?(?:[/?#]|$)").match


def to_utf8(body: bytes, content_type: str, url: str = "") -> tuple[str, bytes]:
    """The name of a body's encoding, and the body in UTF-8: the same object if it is UTF-8 without a byte-order mark.

    The country in `url` helps where nothing is declared and the encoding must be guessed.
    """
    if body.startswith(_UTF8_BOM):
        return UTF8, body[3:]
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _decoded(body[2:], "UTF-16LE" if body.startswith(b"\xff") else "UTF-16BE")
    declared = _from_header(content_type) or prescan(body[:PRESCAN_BYTES])
    return _decoded(body, declared or _detected(body, url))


def _decoded(body: bytes, name: str) -> tuple[str, bytes]:
    if name == UTF8:
        return name, body
    return name, decode(name, body).encode("utf-8", "replace")


@functools.lru_cache(maxsize=1024)
def _from_header(content_type: str) -> str | None:
    # Single quotes have no meaning in a header, but some servers write them.
    return encoding_of(extract_mime_type(content_type).charset.strip("'"))


def _detected(body: bytes, url: str) -> str:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        # A page that was cut at a limit may end inside a character; apart from that it is valid UTF-8.
        if error.start < len(body) - 3:
            return prescan(body[:LATE_PRESCAN_BYTES]) or _guessed(body[:DETECT_BYTES_MAX], url)
    return "ISO-2022-JP" if _is_iso_2022_jp(body) else UTF8


def _guessed(start: bytes, url: str) -> str:
    country = _TOP_LEVEL(url)
    detector = EncodingDetector()
    detector.feed(start, last=True)
    return str(detector.guess(tld=country[1].encode() if country else None, allow_utf8=False))


def _is_iso_2022_jp(body: bytes) -> bool:
    """Whether this is Japanese in seven bits. It is valid UTF-8 too; only its escape sequences show what it is."""
    start = body[:DETECT_BYTES_MAX]
    if b"\x1b" not in start or not start.isascii() or _JAPANESE_ESCAPE.search(start) is None:
        return False
    # The last character may be cut in two.
    return BAD not in decode("ISO-2022-JP", start)[:-1]
