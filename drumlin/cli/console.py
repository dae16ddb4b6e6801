"""Where verbs print: results to stdout, everything about the work to stderr.

Rich decides what a terminal can show. This file decides which stream is used, and turns colour off if NO_COLOR or
`--no-color` says so. Without a terminal, output is plain lines without escape codes.
"""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING, TextIO, cast

import msgspec

from drumlin.config import ProcessConfig
from drumlin.lines import CONTINUED_INDENT, folded, one_line, safe_json

if TYPE_CHECKING:
    from rich.console import Console

# The width without a terminal: wide enough for a table in a log file.
PLAIN_WIDTH = 120
MARK = "bold"
_BLANKS_AT_END = re.compile(r" +(?=\n)")


def results(process: ProcessConfig) -> Console:
    """The console for results, on stdout."""
    return _console(process, stderr=False)


def messages(process: ProcessConfig) -> Console:
    """The console for progress, warnings and hints, on stderr."""
    return _console(process, stderr=True)


def line(console: Console, text: str, *, style: str = "", marked: str = "", indent: int = CONTINUED_INDENT) -> None:
    """Print one line. It is broken between words on a terminal, and not at all in a file or a pipe. If it begins with
    `marked`, that part is bold."""
    from rich.text import Text

    safe = one_line(text)
    shown = Text(folded(safe, console.width, indent) if console.is_terminal else safe, style)
    if marked and safe.startswith(marked):
        shown.stylize(MARK, 0, len(marked))
    console.print(shown, soft_wrap=True)


def tell(process: ProcessConfig, sentence: str) -> None:
    """A sentence on stderr that the user has asked for."""
    line(messages(process), sentence)


def say(process: ProcessConfig, sentence: str) -> None:
    """A sentence on stderr, unless the user wants quiet."""
    if not process.quiet:
        tell(process, sentence)


def print_result(process: ProcessConfig, sentence: str, document: object) -> None:
    """The result of a verb on stdout: a sentence, unless the user wants quiet, or a document of JSON."""
    if process.json:
        write_json(document)
    elif not process.quiet:
        line(results(process), sentence)


def write_json(value: object) -> None:
    """One JSON document on stdout, indented, for people and programs."""
    document = msgspec.json.format(msgspec.json.encode(value), indent=2)
    write_document(document.decode() + "\n")


def write_document(text: str) -> None:
    """A piece of JSON on stdout. On a terminal, text from strangers must not control it."""
    sys.stdout.write(safe_json(text) if sys.stdout.isatty() else text)


class _Trimmed(io.TextIOBase):
    """A stream that removes blanks from the ends of lines: tables fill their lines with blanks, which would stay in a
    pipe or file."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(_BLANKS_AT_END.sub("", text))

    def flush(self) -> None:
        self._stream.flush()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a plain attribute there
        return self._stream.encoding


def _console(process: ProcessConfig, *, stderr: bool) -> Console:
    # Rich takes a while to load, and many commands print nothing but JSON.
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream if stream.isatty() else cast("TextIO", _Trimmed(stream)),
        no_color=process.color is False,
        # Colour that was asked for goes into a pipe too, but nothing may be redrawn there.
        color_system="standard" if process.color and not stream.isatty() else "auto",
        width=None if stream.isatty() else PLAIN_WIDTH,
        highlight=False,
        emoji=False,
        markup=False,
    )
