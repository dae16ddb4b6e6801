"""Long rules are kept compressed: nodes and the engine hold those of thousands of hosts at once.

Somebody with many hosts can serve a megabyte of rules for each. So rules are compressed, and what is still longer than
`NOTED_BYTES_MAX` is kept only by the node that fetched it, within a bound for all its hosts together. It is not in the
host's note, and the next node that is given the host asks for the file again.
"""

from __future__ import annotations

import zlib

from drumlin.robots.rules import KEPT_BYTES_MAX

PLAIN_BYTES_MAX = 4096
"""Rules of no more are not compressed; those of nearly all hosts are as short."""
NOTED_BYTES_MAX = 16 * 1024
"""How much of compressed rules a host's note may hold: about 100 KiB of ordinary rules."""
_UNREADABLE = b"User-agent: *\nDisallow: /"


def pack(rules: bytes) -> tuple[bytes, int]:
    """The rules as they are kept, and how long they were before; 0 if they are kept as they are."""
    return (rules, 0) if len(rules) <= PLAIN_BYTES_MAX else (zlib.compress(rules), len(rules))


def unpack(kept: bytes, packed_from: int) -> bytes:
    """The rules again. Any node may have written what is kept, so it may be damaged or made to become huge: then it
    reads as a file that denies everything."""
    if not packed_from:
        return kept
    try:
        rules = zlib.decompressobj().decompress(kept, packed_from + 1) if packed_from <= KEPT_BYTES_MAX else b""
    except zlib.error:
        rules = b""
    return rules if len(rules) == packed_from else _UNREADABLE
