"""Reads a WARC file from its beginning to its end; the product only looks up single captures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from drumlin.model import Capture
from drumlin.store import read_capture
from drumlin.store.warc.reader import CAPTURE_TYPES, members, parse_record


def read_captures(path: Path) -> Iterator[Capture]:
    """All captures in the order they were written, each as `read_capture` gives it."""
    for member in members(path, 0, head_bytes_max=1 << 62):
        record = parse_record(member)
        if record is not None and record.kind in CAPTURE_TYPES:
            yield read_capture(path, member.offset)
