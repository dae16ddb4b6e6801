"""Events that no broker takes, however much of them is cut: they are put aside in a file, for people to look at.

A line is a JSON object: why, the topic, the key, and the event itself. The file lies beside the cursors, and only
people remove it. It is on the disk before the cursor moves over the event.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from drumlin.disk import sync_file, translated_disk_errors
from drumlin.events.schema import Message

DEAD_NAME: Final = "dead-events.jsonl"


def put_aside(spool: Path, messages: Sequence[Message], why: str) -> Path:
    """Append events to the file of a spool; returns its path."""
    path = spool / DEAD_NAME
    with translated_disk_errors(spool):
        with path.open("ab") as file:
            for one in messages:
                line = {"why": why, "topic": one.topic, "key": one.key, "event": one.value.decode("utf-8", "replace")}
                file.write(json.dumps(line).encode() + b"\n")
        sync_file(path)
    return path
