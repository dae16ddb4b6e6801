"""The two forms of an entry: a line for people, or a line of JSON.

Both are one line whatever the message holds, and in both what looks like a secret is cut out. In the line for people
the ids stand before the message: whatever a stranger's words contain, they come last and so cannot pass for an id.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time

from drumlin.lines import one_line
from drumlin.logs.events import FIELDS, ID_FIELDS, common_ids
from drumlin.logs.redaction import without_secrets

TRACEBACK_MARK = "    | "
"""Stands before each line of a traceback, so that none looks like an entry of its own."""
TEXT_CHARS_MAX = 4096
"""How much of a message, of a field or of a line of a traceback is logged."""
_PLAIN = re.compile(r"[\w.:/@+~-]+", re.ASCII)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def safe(text: str) -> str:
    """The text on one line, without secrets, and cut if it is very long."""
    return one_line(without_secrets(_beginning(text)))


def safe_lines(text: str) -> list[str]:
    """The lines of a text, each made safe."""
    return [safe(line) for line in text.split("\n")]


def unforgeable(text: str) -> str:
    """A traceback as it may be written into a log: no line of it looks like an entry."""
    return "\n".join(TRACEBACK_MARK + line for line in safe_lines(text.rstrip("\n"))) + "\n"


def _beginning(text: str) -> str:
    """The text, of a very long one whole words of its beginning: half of a secret would not be recognised as one."""
    if len(text) <= TEXT_CHARS_MAX:
        return text
    words = text[:TEXT_CHARS_MAX].rsplit(maxsplit=1)
    kept = words[0] if len(words) > 1 else ""
    return f"{kept} [and {len(text) - len(kept)} more characters]".lstrip()


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The ids and other fields of an entry, made safe."""
    fields = {**common_ids(), **getattr(record, FIELDS, {})}
    return {name: _safe_value(value) for name, value in fields.items()}


def _safe_value(value: object) -> object:
    """A text made safe. Infinity and NaN as texts, since JSON has no such numbers. Any other value as it is."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return safe(value) if isinstance(value, str) else value


class HumanFormatter(logging.Formatter):
    """Writes `TIME LEVEL LOGGER [IDS]: MESSAGE`; a traceback follows with a mark before each of its lines."""

    def format(self, record: logging.LogRecord) -> str:
        fields = fields_of(record)
        ids = " ".join(f"{name}={_shown(fields[name])}" for name in ID_FIELDS if name in fields)
        place = f"{record.name} [{ids}]" if ids else record.name
        entry = f"{self.formatTime(record)} {record.levelname} {place}: {safe(record.getMessage())}"
        return "\n".join([entry, *(TRACEBACK_MARK + line for line in self._traceback(record))])

    def _traceback(self, record: logging.LogRecord) -> list[str]:
        return safe_lines(self.formatException(record.exc_info)) if record.exc_info else []


class JSONFormatter(HumanFormatter):
    """Writes an object on one line, with the time in UTC; `traceback` is one text with line feeds."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            **fields_of(record),
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": safe(record.getMessage()),
        }
        if traceback := self._traceback(record):
            entry["traceback"] = "\n".join(traceback)
        return _encode(dict(sorted(entry.items(), key=_place)))


def message_of(line: str) -> str:
    """The message of an entry in JSON; any other line as it is."""
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    return str(entry["message"]) if isinstance(entry, dict) and "message" in entry else line.strip()


_ORDER = ("time", "level", "logger", "event", "message", *ID_FIELDS)


def _place(item: tuple[str, object]) -> int:
    """People read these lines too, so what they look for comes first."""
    return _ORDER.index(item[0]) if item[0] in _ORDER else len(_ORDER)


def _time(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    return f"{moment}.{milliseconds % 1000:03d}Z"


def _shown(value: object) -> str:
    """A value as it is if nobody can mistake where it ends, otherwise in quotes."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else _encode(text)
