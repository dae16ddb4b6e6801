"""Every error drumlin raises on purpose, by whose fault it is.

A `DrumlinError` reaches the user as one sentence and an exit code, never as a traceback. Each carries
what to do next. Library exceptions are translated into these at the boundary where the library is called.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Loading the model loads msgspec, which would make `drumlin --help` slow.
    from drumlin.model import FailureKind

EXIT_OK = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_STORAGE = 3
EXIT_ENGINE = 4
EXIT_BUSY = 5
EXIT_NOTHING = 8
EXIT_OUT_OF_REACH = 9
EXIT_INTERRUPTED = 130


class Cause(StrEnum):
    """What is wrong with an engine or a store, for programs; docs/reference/http-api.md says what to do about each."""

    OUT_OF_MEMORY = "engine_out_of_memory"
    DISK_FULL = "engine_disk_full"
    READ_ONLY = "engine_read_only"
    LOADING = "engine_loading"
    WITHOUT_MASTER = "engine_without_master"
    UNREACHABLE = "engine_unreachable"
    SILENT = "engine_silent"
    UNCONFIRMED = "engine_unconfirmed"
    REFUSED = "engine_refused"
    LOST = "engine_lost_data"
    STORE_FULL = "store_full"
    STORE_SILENT = "store_silent"
    STORE_FAILED = "store_failed"


class DrumlinError(Exception):
    """The root: a message for a person, a hint what to do next, and the exit code of a command it ends. `code` names
    the cause for programs, where a cause is known."""

    exit_code = EXIT_INTERNAL

    def __init__(self, message: str, hint: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code

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
    """A site did not give a usable answer."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
