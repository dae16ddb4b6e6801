"""The names of files in a store. Each says which node wrote the file, and can be read in one way only.

A WARC file is `drumlin-TIME-SERIAL-NODE`, where only the node's name, at the end, may have dashes in it. A segment is
`NODE-TIME-SERIAL`, where only the node's name, at the beginning, may. So a node whose name is the beginning of
another's cannot be taken for it.
"""

from __future__ import annotations

import re
from typing import Final

_NODE: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
SEGMENT_PATTERN: Final = rf"({_NODE})-[0-9a-f]{{1,16}}-[0-9]{{5,9}}"
_SEGMENT: Final = re.compile(SEGMENT_PATTERN, re.ASCII)
_WARC: Final = re.compile(rf"drumlin-[0-9]{{17}}-[0-9]{{5}}-({_NODE})", re.ASCII)


def segment_name(node: str, started: float, serial: int) -> str:
    return f"{node}-{int(started * 1000):x}-{serial:05}"


def node_of_segment(name: str) -> str:
    """The node that a segment is of; empty when this is no segment's name."""
    match = _SEGMENT.fullmatch(name)
    return match[1] if match else ""


def node_of_warc(stem: str) -> str:
    """The node that a WARC file is of, by its name without suffixes; empty when this is no such name."""
    match = _WARC.fullmatch(stem)
    return match[1] if match else ""
