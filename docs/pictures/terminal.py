"""A terminal that is drawn: reads what programs write to one, and makes an SVG that plays it.

It understands what `drumlin` and rich write: colours, line feeds, going up some lines and clearing them. Nothing is
loaded from elsewhere, and readers who want no motion see the last picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from itertools import groupby
from typing import NamedTuple

CHAR_W, LINE_H, FONT_PX = 8.4, 19.0, 14
MARGIN, BAR_H = 18.0, 34.0
BACKGROUND, FOREGROUND = "#14201b", "#d7e3dc"
COLOURS = ("#5b6f65", "#f08a80", "#7fd1a2", "#e6c46a", "#86b7f0", "#cfa2ea", "#79cfd0", "#d7e3dc")
TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|([\r\n])|([^\x1b\r\n]+)")
END_S = 5.0
"""How long the last picture stays before it begins again."""


class Style(NamedTuple):
    colour: str = FOREGROUND
    bold: bool = False
    dim: bool = False


PLAIN = Style()
Line = tuple[tuple[str, Style], ...]
"""The characters of a line, each with its style."""


class Frame(NamedTuple):
    """What is on the screen from a moment on."""

    at_s: float
    lines: tuple[Line, ...]


class Screen:
    """What a terminal shows after some output."""

    def __init__(self, columns: int, rows: int) -> None:
        self._columns, self._rows = columns, rows
        self._lines: list[list[tuple[str, Style]]] = [[]]
        self._row = self._column = 0
        self._style = PLAIN

    def write(self, text: str) -> None:
        for parameters, command, feed, plain in TOKEN.findall(text):
            if plain:
                self._put(plain)
            elif feed:
                self._feed(feed)
            elif command == "m":
                self._style = _styled(self._style, parameters)
            elif command == "A":
                self._row = max(0, self._row - int(parameters or 1))
            elif command == "K":
                self._lines[self._row] = []

    def _put(self, text: str) -> None:
        for character in text:
            if self._column == self._columns:
                self._feed("\n")
            line = self._lines[self._row]
            line.extend((" ", PLAIN) for _ in range(self._column - len(line)))
            line[self._column : self._column + 1] = [(character, self._style)]
            self._column += 1

    def _feed(self, feed: str) -> None:
        self._column = 0
        if feed == "\n":
            self._row += 1
            if self._row == len(self._lines):
                self._lines.append([])

    def shown(self) -> tuple[Line, ...]:
        return tuple(tuple(line) for line in self._lines[-self._rows :])


def _styled(style: Style, parameters: str) -> Style:
    for number in (int(part or 0) for part in parameters.split(";")):
        if number == 0:
            style = PLAIN
        elif number in (1, 2):
            style = style._replace(bold=number == 1, dim=number == 2)
        elif number == 39:
            style = style._replace(colour=FOREGROUND)
        elif 30 <= number <= 37 or 90 <= number <= 97:
            style = style._replace(colour=COLOURS[number % 10])
    return style


def svg(frames: list[Frame], columns: int, rows: int, title: str) -> str:
    """The frames as one picture: they lie side by side, and a window moves over them."""
    width, height = columns * CHAR_W + 2 * MARGIN, rows * LINE_H + BAR_H + 2 * MARGIN
    whole_s = frames[-1].at_s + END_S
    drawn = "".join(_frame(frame, place * width) for place, frame in enumerate(frames))
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">
<title>{escape(title)}</title>
<style>
text {{ font: {FONT_PX}px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }}
.film {{ animation: film {whole_s:g}s infinite step-end; }}
@keyframes film {{ {_keyframes(frames, whole_s, width)} }}
@media (prefers-reduced-motion) {{
  .film {{ animation: none; transform: translateX({-(len(frames) - 1) * width:g}px); }}
}}
</style>
<rect width="100%" height="100%" rx="12" fill="{BACKGROUND}"/>
{_dots()}
<text x="{width / 2:g}" y="{BAR_H / 2 + 7:g}" fill="{COLOURS[0]}" text-anchor="middle">{escape(title)}</text>
<svg y="{BAR_H:g}" width="{width:g}" height="{height - BAR_H:g}"><g class="film">
{drawn}</g></svg>
</svg>
"""


def _dots() -> str:
    return "".join(
        f'<circle cx="{MARGIN + 6 + 20 * place:g}" cy="{BAR_H / 2 + 2:g}" r="6" fill="{colour}"/>'
        for place, colour in enumerate(("#e0685e", "#dcae4b", "#58b07c"))
    )


def _keyframes(frames: list[Frame], whole_s: float, width: float) -> str:
    return " ".join(
        f"{frame.at_s / whole_s * 100:.2f}% {{ transform: translateX({-place * width:g}px); }}"
        for place, frame in enumerate(frames)
    )


def _frame(frame: Frame, x: float) -> str:
    lines = "".join(_line(line, MARGIN + (row + 0.8) * LINE_H) for row, line in enumerate(frame.lines))
    return f'<g transform="translate({x + MARGIN:g})">{lines}</g>\n'


def _line(line: Line, y: float) -> str:
    drawn, column = [], 0
    for style, characters in groupby(line, key=lambda one: one[1]):
        text = "".join(character for character, _ in characters)
        if text.strip():
            drawn.append(_run(text, style, column, y))
        column += len(text)
    return "".join(drawn)


def _run(text: str, style: Style, column: int, y: float) -> str:
    begin = len(text) - len(text.lstrip())
    kept = text.strip()
    looks = ' font-weight="600"' * style.bold + ' opacity=".62"' * style.dim
    return (
        f'<text x="{(column + begin) * CHAR_W:.1f}" y="{y:.1f}" textLength="{len(kept) * CHAR_W:.1f}" '
        f'fill="{style.colour}"{looks}>{escape(kept)}</text>'
    )


def frames_of(chunks: Iterable[tuple[float, str]], columns: int, rows: int, step_s: float) -> list[Frame]:
    """Make frames of what was written when, none shorter than `step_s`."""
    screen, frames = Screen(columns, rows), list[Frame]()
    for at_s, text in chunks:
        screen.write(text)
        if frames and at_s - frames[-1].at_s < step_s:
            frames[-1] = Frame(frames[-1].at_s, screen.shown())
        else:
            frames.append(Frame(at_s, screen.shown()))
    return frames
