"""Every error drumlin raises on purpose, by whose fault it is.

A `DrumlinError` reaches the user as one sentence and an exit code, never as a traceback. Each carries
what to do next. Library exceptions are translated into these at the boundary where the library is called.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_STORAGE = 3
EXIT_ENGINE = 4
EXIT_BUSY = 5
EXIT_INTERRUPTED = 130


class DrumlinError(Exception):
    """The root: a message for a person, a hint what to do next, and the exit code of a command it ends."""

    exit_code = EXIT_INTERNAL

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class ConfigError(DrumlinError):
    """The user asked for something that cannot be: a bad flag, key, value, URL or file."""

    exit_code = EXIT_USAGE


class StorageError(DrumlinError):
    """The crawl directory cannot be read or written: no space, no permission, damaged."""

    exit_code = EXIT_STORAGE


class EngineError(DrumlinError):
    """The engine that keeps the frontier failed or holds something this version cannot read."""

    exit_code = EXIT_ENGINE


class BusyError(DrumlinError):
    """Something else holds what this command needs: the crawl directory's lock, a port."""

    exit_code = EXIT_BUSY


class SiteError(DrumlinError):
    """A site did not give a usable answer. `kind` is one of `model.FailureKind`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
