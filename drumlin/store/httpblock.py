"""The HTTP header block of a WARC response record.

A record holds the body as it is after transfer-decoding, so a block that announces chunks, a wrong length or HTTP/2
framing would mislead a reader. Such blocks are rewritten as Common Crawl does: what was received stays under an
`X-Crawler-` name. All others, nearly all, are stored as received.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from drumlin.http.headers import ENCODING, STATUS_START, WHITE, final_block, lines

BLANK_LINE: Final = b"\r\n\r\n"
RENAMED_PREFIX: Final = b"X-Crawler-"

_BODYLESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
# A line that starts otherwise may be folded, or blank in the eyes of a reader that decodes before it strips: such a
# reader takes a line of 0x85 or 0xA0 for the end of the headers, and the rest of them for the body.
_ODD_START: Final = re.compile(rb"\n[^!-~\r]")
_REASONS: Final = {int(status): status.phrase for status in HTTPStatus}


def stored_block(received: bytes, status: int, body_bytes: int) -> bytes:
    """The header block to store for a body of `body_bytes`, ending in its blank line."""
    if _is_plain(received) and _says_truth(received.lower(), status, body_bytes):
        return received
    return _rewritten(received, status, body_bytes)


def request_block(sent: bytes) -> bytes:
    """The header block of a request as sent; HTTP/2 requests come as a block in HTTP/1 form already."""
    if sent.endswith(BLANK_LINE):
        return sent
    return sent.rstrip(b"\r\n") + BLANK_LINE


def _is_plain(block: bytes) -> bool:
    """Whether every reader splits this block into the same lines: HTTP/1, CRLF only, no folding, one blank line."""
    ends = block.count(b"\r\n")
    return (
        block.startswith(b"HTTP/1.")
        and block.find(BLANK_LINE) == len(block) - 4
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


def _rewritten(received: bytes, status: int, body_bytes: int) -> bytes:
    found = _lines(received)
    first = found[0] if found and found[0].startswith(b"HTTP/1.") else _status_line(status)
    out = [first]
    reframed = False
    for line in found[1:] if found and found[0].startswith(STATUS_START) else found:
        name = line.partition(b":")[0].strip().lower()
        if name == b"transfer-encoding" or (name == b"content-length" and status not in _BODYLESS):
            line = RENAMED_PREFIX + line
            reframed = True
        out.append(line)
    if reframed:
        out.append(b"Content-Length: %d" % body_bytes)
    return b"\r\n".join(out) + BLANK_LINE


def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {_REASONS.get(status, '')}".encode("ascii")


def _lines(received: bytes) -> list[bytes]:
    """The lines of the last header block received, unfolded, without anything that a reader might take for an end."""
    clean = (line.replace("\0", "").rstrip(WHITE) for line in lines(final_block(received)))
    return [line.encode(ENCODING) for line in clean if line.strip()]
