"""The one parser of HTTP header blocks, for pages, robots.txt, sitemaps, archives and what workers send.

Lines end in CRLF, in a bare LF (RFC 9112, 2.2), or in a mixture of both. A line that begins with a space continues the
field before it. A line without a colon is skipped. There may be other blocks before the final one (1xx answers, the
redirects that a worker's curl followed). Trailers, the fields after a body, are not headers even if they look like a
block of them: a server may write anything there.
"""

from __future__ import annotations

import re
from typing import Final

# Only ASCII belongs in a header. Other bytes are read as latin-1, so no byte is lost.
ENCODING: Final = "latin-1"
WHITE: Final = " \t\r\n\f\v"

_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
_STATUS_LINE: Final = re.compile(rb"HTTP/[0-9.]+ +([0-9]{3})(?![0-9])")
# Exactly the blocks that libcurl takes for interim answers, after which it reads another head. After any other block,
# whatever looks like a head is a trailer. After 101 (Switching Protocols) there is no other head.
_INTERIM: Final = re.compile(rb"HTTP/(?:1\.[01][ \t]1(?!01)[0-9]{2}|[23] 1(?!01)[0-9]{2}\s)")
_RANGE: Final = re.compile(r"bytes 0-([0-9]{1,18})/([0-9]{1,18})", re.IGNORECASE | re.ASCII)
_FOLD: Final = re.compile(r"\n[ \t]+")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")


def final_block(received: bytes, status: int = 0) -> bytes:
    """The block that belongs to the body, as received, with its blank line: the first one that is not of a 1xx answer.
    All that follows it is trailers.

    `status` is for callers whose client followed redirects: the status of the last answer. Blocks of redirects with
    another status are skipped then.
    """
    end = _BLANK_LINE.search(received)
    if end is None or end.end() == len(received):
        return received
    start = 0
    for blank in _BLANK_LINE.finditer(received):
        block = received[start : blank.end()]
        if not _INTERIM.match(block) and not (status and status != status_of(block) and _is_redirect(block)):
            return block
        start = blank.end()
    return received[start:] or block


def status_of(block: bytes) -> int:
    """The status code in the first line of a block; 0 if that is not a status line."""
    found = _STATUS_LINE.match(block)
    return int(found[1]) if found else 0


def _is_redirect(block: bytes) -> bool:
    return 300 <= status_of(block) < 400


def lines(block: bytes) -> list[str]:
    """The lines of a block without their line ends; folded lines are joined. The first may be a status line."""
    text = block.decode(ENCODING).replace("\r\n", "\n").replace("\0", "")
    if "\n " in text or "\n\t" in text:
        text = _FOLD.sub(" ", text)
    # A bare carriage return counts as a space (RFC 9112, 2.2): it must neither end a line nor stay in a value.
    return text.replace("\r", " ").split("\n") if "\r" in text else text.split("\n")


def header_fields(block: bytes) -> dict[str, str]:
    """The fields of a header block by lower-case name; repeated fields are joined by commas, as HTTP says."""
    fields: dict[str, str] = {}
    for line in lines(block)[1:]:
        name, colon, value = line.partition(":")
        if colon:
            name = name.strip(WHITE).lower()
            value = value.strip(WHITE)
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


def header_values(block: bytes, name: str) -> list[str]:
    """All values of a field, one by one. For fields that must not be joined: each X-Robots-Tag may name a crawler, and
    that name must not apply to the next one."""
    fields = (line.partition(":") for line in lines(block)[1:])
    return [value.strip(WHITE) for field, colon, value in fields if colon and field.strip(WHITE).lower() == name]


def location_of(block: bytes) -> str:
    """Where a block's Location header leads, as an href; empty if there is none, or several that differ."""
    targets = set(header_values(block, "location"))
    return as_href(targets.pop()) if len(targets) == 1 else ""


def as_href(value: str) -> str:
    """An href from the value of a header. Bytes beyond ASCII become percent escapes, as in browsers, so they stay the
    same bytes whatever encoding the server uses."""
    return _NOT_ASCII.sub(_escaped, value)


def holds_all(content_range: str) -> bool:
    """Whether a Content-Range covers the whole content: `bytes 0-99/100`."""
    found = _RANGE.fullmatch(content_range)
    return found is not None and int(found[1]) + 1 == int(found[2])


def _escaped(character: re.Match[str]) -> str:
    return f"%{ord(character[0]):02X}"
