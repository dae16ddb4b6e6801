"""The keyboard of a terminal: single keys, read without waiting for the end of a line."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any

READ_BYTES = 64
CONTROL_CHARACTERS = 6
"""Where these stand among the attributes of a terminal."""
SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1b[4~": "end",
    "\x1b[Z": "back tab",
    "\x1b[D": "back tab",
    "\x1b[C": "tab",
    "\t": "tab",
    "k": "up",
    "j": "down",
}


class Keyboard:
    """Reads keys from stdin, if that is a terminal. A context manager: the terminal is put back as it was."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[Any] = []

    @property
    def works(self) -> bool:
        return self._descriptor is not None

    def __enter__(self) -> Keyboard:
        if self._descriptor is not None:
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor)
            # A program that is suspended would leave its screen behind, and the terminal without an echo.
            changed = termios.tcgetattr(self._descriptor)
            changed[CONTROL_CHARACTERS][termios.VSUSP] = b"\x00"
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, changed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def read(self, wait_s: float) -> list[str]:
        """The keys that were pressed; waits for the first at most so long."""
        waited_for = [] if self._descriptor is None else [self._descriptor]
        if not select.select(waited_for, [], [], wait_s)[0] or self._descriptor is None:
            return []
        piece = os.read(self._descriptor, READ_BYTES)
        if not piece:
            # The terminal is gone: nobody looks any more.
            return ["q"]
        return keys_in(piece.decode("utf-8", "replace"))


def keys_in(text: str) -> list[str]:
    """The keys whose characters these are. Sequences that are not known are passed over."""
    keys: list[str] = []
    while text:
        known = next((one for one in SEQUENCES if text.startswith(one)), None)
        if known is not None:
            keys.append(SEQUENCES[known])
            text = text[len(known) :]
        elif text.startswith(("\x1b[", "\x1bO")):
            text = text[2:].lstrip("0123456789;?")[1:]
        else:
            keys.append(text[0])
            text = text[1:]
    return keys
