"""Where verbs print: results to stdout, everything about the work to stderr.

Rich decides what a terminal can show; this file decides which stream, and that colour is off when NO_COLOR or
`--no-color` says so. Without a terminal there are plain lines and no escape codes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from drumlin.config import ProcessConfig

if TYPE_CHECKING:
    from rich.console import Console

# Wide enough for a table in a log file, where no terminal says how wide a line may be.
PLAIN_WIDTH = 120


def results(process: ProcessConfig) -> Console:
    """The console for what the user asked for."""
    return _console(process, stderr=False)


def messages(process: ProcessConfig) -> Console:
    """The console for progress, warnings and hints."""
    return _console(process, stderr=True)


def say(process: ProcessConfig, line: str) -> None:
    """One line on stderr, never broken in two, unless the user wants quiet."""
    if not process.quiet:
        messages(process).print(line, soft_wrap=True)


def write_json(value: object) -> None:
    """One JSON document on stdout, indented, for people and programs."""
    document = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(document.decode() + "\n")


def _console(process: ProcessConfig, *, stderr: bool) -> Console:
    # Rich takes a while to load, and many commands print nothing but JSON.
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        no_color=process.color is False,
        # Colour that was asked for goes into a pipe too, but a pipe still is no terminal to redraw lines on.
        color_system="standard" if process.color and not stream.isatty() else "auto",
        width=None if stream.isatty() else PLAIN_WIDTH,
        highlight=False,
        emoji=False,
        markup=False,
    )
