"""The one parser of HTTP header blocks, for pages, robots.txt, sitemaps, archives and what workers send.

Lines end in CRLF, in a bare LF (RFC 9112, 2.2), or in a mixture of both. A line that begins with a space goes on with
the field before it. A line without a colon is no field. Before the final block there may be others (1xx answers, the
redirects that curl followed), and after the body of its answer further fields (trailers), which are no headers.
"""

from __future__ import annotations

import re
from typing import Final

# Only letters of ASCII belong in a header; all else is read as latin-1, so that no byte is lost.
ENCODING: Final = "latin-1"
STATUS_START: Final = b"HTTP/"
WHITE: Final = " \t\r\n\f\v"

_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
_STATUS_LINE: Final = re.compile(rb"HTTP/[0-9.]+ +([0-9]{3})(?![0-9])")
_RANGE: Final = re.compile(r"bytes 0-([0-9]{1,18})/([0-9]{1,18})", re.IGNORECASE)
_FOLD: Final = re.compile(r"\n[ \t]+")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")


def final_block(received: bytes) -> bytes:
    """The block that belongs to the body, as received: the last that begins with a status line, up to and with its
    blank line. What has no status line at all is given back as it is."""
    end = _BLANK_LINE.search(received)
    if end is None or end.end() == len(received):
        return received
    blocks, start = [], 0
    for blank in _BLANK_LINE.finditer(received):
        blocks.append(received[start : blank.end()])
        start = blank.end()
    blocks.append(received[start:])
    return next((block for block in reversed(blocks) if _STATUS_LINE.match(block)), received)


def status_of(block: bytes) -> int:
    """The status code in the first line of a block; 0 when that is no status line."""
    found = _STATUS_LINE.match(block)
    return int(found[1]) if found else 0


def lines(block: bytes) -> list[str]:
    """The lines of a block without their ends, folded ones put together; the first may be a status line."""
    text = block.decode(ENCODING).replace("\r\n", "\n")
    if "\n " in text or "\n\t" in text:
        text = _FOLD.sub(" ", text)
    # A return that ends no line is a space to a reader of HTTP: it must neither end a line nor hide in a value.
    return text.replace("\r", " ").split("\n") if "\r" in text else text.split("\n")


def header_fields(block: bytes) -> dict[str, str]:
    """The fields of a header block by lower-case name; repeated ones are joined by commas, as HTTP has it."""
    fields: dict[str, str] = {}
    for line in lines(block)[1:]:
        name, colon, value = line.partition(":")
        if colon:
            name = name.strip(WHITE).lower()
            value = value.strip(WHITE)
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


def header_values(block: bytes, name: str) -> list[str]:
    """Every value of a field that must not be joined: each X-Robots-Tag may name a crawler of its own."""
    fields = (line.partition(":") for line in lines(block)[1:])
    return [value.strip(WHITE) for field, colon, value in fields if colon and field.strip(WHITE).lower() == name]


def location_of(block: bytes) -> str:
    """Where a block's Location leads: the target as an href, empty when there is none or several that differ.

    Bytes beyond ASCII become escapes, as in browsers: they stay the bytes that the server means, whatever its encoding.
    """
    targets = set(header_values(block, "location"))
    return _NOT_ASCII.sub(_escaped, targets.pop()) if len(targets) == 1 else ""


def holds_all(content_range: str) -> bool:
    """Whether a Content-Range is that of the whole: `bytes 0-99/100`."""
    found = _RANGE.fullmatch(content_range)
    return found is not None and int(found[1]) + 1 == int(found[2])


def _escaped(character: re.Match[str]) -> str:
    return f"%{ord(character[0]):02X}"
