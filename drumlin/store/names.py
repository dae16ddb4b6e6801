"""The names of files in a store. Each name says which node wrote the file, without ambiguity.

A WARC file is `drumlin-TIME-SERIAL-NODE`; a segment is `NODE-TIME-SERIAL`. Only the node's name may contain dashes, so
`a` is never taken for `a-b`.
"""

from __future__ import annotations

import re
import socket
from typing import Final

from drumlin.protocol import NODE_NAME

TOMBSTONES: Final = "removals/tombstones.json"
"""What was removed on request from a store in a bucket, as keyed hashes."""
REMOVING: Final = "removals/under-way"
"""Is in the manifest of a bucket as long as something is being removed there."""
SEGMENT_PATTERN: Final = rf"({NODE_NAME})-[0-9a-f]{{1,16}}-[0-9]{{5,9}}"
_SEGMENT: Final = re.compile(SEGMENT_PATTERN, re.ASCII)
_WARC: Final = re.compile(rf"drumlin-[0-9]{{17}}-[0-9]{{5}}-({NODE_NAME})", re.ASCII)


def machine_name(chars_max: int) -> str:
    """This machine's name in the characters that a node's may have, for nodes and coordinators that were given none."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:chars_max].lstrip("._-") or "node"


def segment_name(node: str, started: float, serial: int) -> str:
    return f"{node}-{int(started * 1000):x}-{serial:05}"


def node_of_segment(name: str) -> str:
    """The node that wrote a segment; empty when `name` is not the name of a segment."""
    match = _SEGMENT.fullmatch(name)
    return match[1] if match else ""


def node_of_warc(stem: str) -> str:
    """The node that wrote a WARC file, by its name without suffixes; empty when that is not such a name."""
    match = _WARC.fullmatch(stem)
    return match[1] if match else ""
