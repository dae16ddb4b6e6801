"""Where entries go. A process has one destination at a time; setting up another takes the place of the first.

The handler is put on the root logger: what asyncio or a library has to complain about belongs into the same log. But of
those only warnings and worse are taken, whatever the level of our own entries.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import TextIO

from drumlin.lines import tell
from drumlin.logs.events import Event, event, forget_ids
from drumlin.logs.formats import HumanFormatter, JSONFormatter, safe
from drumlin.logs.settings import LogSettings

OURS = logging.getLogger("drumlin")
_installed: list[logging.Handler] = []


def log_to_stderr(settings: LogSettings) -> None:
    """Write the log of this process to stderr, which a service manager or a supervisor keeps."""
    _install(_Stderr(), settings, is_json=settings.is_json(terminal=sys.stderr.isatty()))


@contextlib.contextmanager
def logging_to(path: Path, settings: LogSettings) -> Iterator[None]:
    """Write the log to a file, which is made with the first entry, for as long as the context lasts: on a terminal it
    would break into the live display. Afterwards warnings are told to people again."""
    handler = _File(path, encoding="utf-8", delay=True)
    _install(handler, settings, is_json=settings.is_json(terminal=False))
    try:
        yield
    finally:
        log_for_people()
        with contextlib.suppress(OSError):
            handler.close()


def log_for_people() -> None:
    """Have warnings told as sentences on stderr, for verbs that a person runs and waits for."""
    handler = _Telling(logging.WARNING)
    _remove()
    OURS.addHandler(handler)
    _installed.append(handler)


def log_last_words(sentence: str) -> bool:
    """Log why this process ends, if it logs in JSON; False if its stderr is for people, whom the caller then tells."""
    if not any(isinstance(handler.formatter, JSONFormatter) for handler in _installed):
        return False
    OURS.error("%s", sentence, extra=event(Event.FAILED))
    return True


def _install(handler: logging.Handler, settings: LogSettings, *, is_json: bool) -> None:
    _remove()
    handler.setFormatter(JSONFormatter() if is_json else HumanFormatter())
    OURS.setLevel(settings.number)
    logging.getLogger().addHandler(handler)
    _installed.append(handler)


def _remove() -> None:
    forget_ids()
    OURS.setLevel(logging.NOTSET)
    for handler in _installed:
        OURS.removeHandler(handler)
        logging.getLogger().removeHandler(handler)
    _installed.clear()


class _Stderr(logging.StreamHandler[TextIO]):
    """Entries on stderr. When nobody reads it any more, the process goes on without a log."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the name is logging's
        """Go on without this entry."""


class _File(WatchedFileHandler):
    """A log file. If it is renamed or removed, as tools that rotate logs do, the next entry begins another. What fails
    on a full disk is told by whatever else it stops."""

    def emit(self, record: logging.LogRecord) -> None:
        # Opening the file, which happens with the first entry, is not guarded by logging.
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the name is logging's
        """Go on without this entry."""


class _Telling(logging.Handler):
    """Tells messages as `drumlin: MESSAGE`, without the time and names that a log has."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            tell(f"drumlin: {safe(record.getMessage())}")
