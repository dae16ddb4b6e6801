"""The HTTP header block of a WARC response record.

A record holds the body after transfer-decoding, so a header block that announces chunks, a wrong length or HTTP/2
framing would mislead a reader. Such blocks are rewritten as Common Crawl does: the received fields are kept under
`X-Crawler-` names. A status line that readers might understand differently than the node did is rewritten too, so that
record, index and tables agree. Nearly all blocks need neither and are stored as received.

A block of more than `HEAD_BYTES_MAX` is cut, because FastWARC can read neither a longer one nor anything after it in
the file. Fields that do not fit are left out, the ones that describe the body last, and an added field says how many.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from drumlin.http.headers import ENCODING, WHITE, final_block, lines

BLANK_LINE: Final = b"\r\n\r\n"
HEAD_BYTES_MAX: Final = 32_000
"""The longest header block that is stored; FastWARC's own limit is 32,768 bytes."""
CUT_FIELD: Final = "X-Crawler-Headers-Cut"
"""A field that we add: how many fields of a block were left out, and how long they were."""
RENAMED_PREFIX: Final = b"X-Crawler-"

_BODYLESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
# A line that starts with such a byte may be a folded one. Or it may look blank to a reader that decodes before it
# strips: that reader takes a line of 0x85 or 0xA0 for the end of the headers, and the rest of them for the body.
_ODD_START: Final = re.compile(rb"\n[^!-~\r]")
# The only form that all readers of HTTP and of WARC agree on.
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: |\r|$)")
# The fields that readers need to understand the body, and those that drumlin itself reads again after a kill.
_KEPT_NAMES: Final = frozenset(
    {
        *(b"content-encoding", b"content-language", b"content-length", b"content-range", b"content-type"),
        *(b"date", b"etag", b"last-modified", b"location", b"refresh", b"x-crawler-content-length"),
        *(b"x-crawler-transfer-encoding", b"x-robots-tag"),
    }
)
_CUT: Final = f"{CUT_FIELD}: ".encode()
_CUT_LINE_BYTES_MAX: Final = 80
_STATUS_LINE_BYTES_MAX: Final = 1_000
_REASONS: Final = {int(status): status.phrase for status in HTTPStatus}


def stored_block(received: bytes, status: int, body_bytes: int) -> bytes:
    """The header block to store for a body of `body_bytes`, ending in its blank line."""
    short = len(received) <= HEAD_BYTES_MAX and _says_status(received, status)
    if short and _is_plain(received) and _says_truth(received.lower(), status, body_bytes):
        return received
    return _rewritten(received, status, body_bytes)


def is_cut(block: bytes) -> bool:
    """Whether fields of a stored block were left out."""
    return _CUT in block


def request_block(sent: bytes) -> bytes:
    """The header block of a request as sent; HTTP/2 requests come as a block in HTTP/1 form already."""
    if sent.endswith(BLANK_LINE):
        return sent
    return sent.rstrip(b"\r\n") + BLANK_LINE


def _is_plain(block: bytes) -> bool:
    """Whether every reader splits this block into the same lines: CRLF only, no folding, one blank line."""
    ends = block.count(b"\r\n")
    return (
        block.find(BLANK_LINE) == len(block) - 4
        and block.count(b"\n") == ends
        and block.count(b"\r") == ends
        and b"\0" not in block
        and _ODD_START.search(block) is None
    )


def _says_truth(lowered: bytes, status: int, body_bytes: int) -> bool:
    """Whether the block's framing headers describe the body as it is stored."""
    if b"\ntransfer-encoding" in lowered:
        return False
    start = lowered.find(b"\ncontent-length")
    if start < 0 or status in _BODYLESS:
        return True
    value = lowered[start + 15 : lowered.find(b"\r", start)]
    return value.strip(b": \t") == b"%d" % body_bytes and lowered.find(b"\ncontent-length", start + 1) < 0


def _says_status(block: bytes, status: int) -> bool:
    found = _STATUS_LINE.match(block)
    return found is not None and int(found[1]) == status


def _rewritten(received: bytes, status: int, body_bytes: int) -> bytes:
    first, *fields = _lines(received)
    out = [first if _says_status(first, status) else _status_line(status)]
    if first.startswith(b"HTTP/1.") and first != out[0]:
        out.append(RENAMED_PREFIX + b"Status-Line: " + first)
    reframed = False
    for line in filter(None, fields):
        name = line.partition(b":")[0].strip().lower()
        if name == b"transfer-encoding" or (name == b"content-length" and status not in _BODYLESS):
            line = RENAMED_PREFIX + line
            reframed = True
        out.append(line)
    if reframed:
        out.append(b"Content-Length: %d" % body_bytes)
    return b"\r\n".join(_fitting(out)) + BLANK_LINE


def _fitting(found: list[bytes]) -> list[bytes]:
    """The lines of a block, without the fields that would make it too long."""
    if sum(map(len, found)) + 2 * len(found) + len(BLANK_LINE) <= HEAD_BYTES_MAX:
        return found
    room = HEAD_BYTES_MAX - _CUT_LINE_BYTES_MAX - len(BLANK_LINE) - _STATUS_LINE_BYTES_MAX
    first, fields = found[0][:_STATUS_LINE_BYTES_MAX], found[1:]
    kept: set[int] = set()
    for wanted in sorted(range(len(fields)), key=lambda place: (not _is_kept(fields[place]), place)):
        size = len(fields[wanted]) + 2
        if size <= room:
            kept.add(wanted)
            room -= size
    left_out = [line for place, line in enumerate(fields) if place not in kept]
    said = _CUT + b"%d fields, %d bytes" % (len(left_out), sum(map(len, left_out)))
    return [first, *(fields[place] for place in sorted(kept)), said]


def _is_kept(line: bytes) -> bool:
    return line.partition(b":")[0].strip().lower() in _KEPT_NAMES


def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {_REASONS.get(status, '')}".encode("ascii")


def _lines(received: bytes) -> list[bytes]:
    """The lines of the final header block, unfolded, without trailing whitespace; a line that a reader might take for
    the end is returned as empty. The first is the status line."""
    return [line.rstrip(WHITE).encode(ENCODING) if line.strip() else b"" for line in lines(final_block(received))]
