"""One line is one line: what strangers say (names, addresses, errors, URLs) can neither begin another line of a log nor
speak to a terminal.

Everything that writes lines for people passes `one_line`: the log's formatter below, `tell`, and the verbs that print
what others said. Characters that control a terminal, end a line or turn the direction of text are shown as escapes.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TRACEBACK_MARK = "    | "
"""Stands before each line of a traceback, so that none looks like an entry of its own."""
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# Control characters, line and paragraph separators, and marks that reorder text.
_UNSAFE = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def one_line(text: str) -> str:
    """The text with every unsafe character escaped as in a Python string."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)


def counted(number: int, noun: str) -> str:
    """`1 page`, `2 pages`; for nouns that take an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class LineFormatter(logging.Formatter):
    """Writes an entry as one line; a traceback follows with a mark before each of its lines."""

    def __init__(self) -> None:
        super().__init__(LOG_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        record.message = one_line(record.getMessage())
        record.asctime = self.formatTime(record)
        entry = self.formatMessage(record)
        if record.exc_info:
            marked = [TRACEBACK_MARK + one_line(line) for line in self.formatException(record.exc_info).split("\n")]
            entry = "\n".join([entry, *marked])
        return entry


def log_to_stderr() -> None:
    """Have everything that is logged written to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class _LogFile(logging.FileHandler):
    """A log file that says nothing of its own: what fails on a full disk is told by whatever else it stops."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the name is logging's
        """Go on without this entry."""


@contextlib.contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Have what drumlin logs written to a file, which is made with the first entry, for as long as the context lasts:
    on a terminal it would break into the live display."""
    handler = _LogFile(path, encoding="utf-8", delay=True)
    handler.setFormatter(LineFormatter())
    logger = logging.getLogger("drumlin")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()


def tell(sentence: str) -> None:
    """One line on stderr, at once."""
    sys.stderr.write(f"{one_line(sentence)}\n")
    sys.stderr.flush()
