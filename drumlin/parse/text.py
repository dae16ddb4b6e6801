"""Extracts the main text of a page: one line per block, and preformatted text exactly as it stands."""

from __future__ import annotations

from collections.abc import Iterable

import numpy
from selectolax.lexbor import LexborNode

from drumlin.parse.blocks import BLOCK_END
from drumlin.parse.preformatted import hold_white_space, with_white_space

TEXT_BYTES_MAX = 1024 * 1024
# If a <main> or <article> has less text than this, the whole body is read instead.
MAIN_CHARS_MIN = 200
# If less than this share of the body is left without the boilerplate, the boilerplate is kept.
BODY_SHARE_MIN = 0.1

MAIN_TAGS = frozenset({"main", "article"})
BOILERPLATE_TAGS = frozenset({"nav", "header", "footer", "aside", "form", "dialog", "menu"})

_WHITE = b"\n\r\t"
_TO_LINES = bytes.maketrans(BLOCK_END + _WHITE, b"\n" + b" " * len(_WHITE))


class TextParts:
    """The nodes that decide what the main text is, collected in the order of the document."""

    __slots__ = ("_articles", "_invisible_before", "_main", "boilerplate", "invisible", "preformatted")

    def __init__(self) -> None:
        self.invisible: list[LexborNode] = []
        self.boilerplate: list[LexborNode] = []
        self.preformatted: list[LexborNode] = []
        self._main: tuple[LexborNode, int, int] | None = None
        self._articles = 0
        self._invisible_before = 0

    def add_main(self, node: LexborNode, tag: str) -> None:
        """Note a `main` or an `article`. The first `main` counts; without one, an `article` if it is the only one."""
        if tag == "main":
            if self._articles >= 0:
                self._main = (node, len(self.invisible), len(self.boilerplate))
            self._articles = -1
        elif self._articles >= 0:
            self._articles += 1
            one = self._articles == 1
            self._main = (node, len(self.invisible), len(self.boilerplate)) if one else None

    def add_preformatted(self, node: LexborNode) -> None:
        if not self.preformatted:
            # What comes before the first preformatted element is not inside one.
            self._invisible_before = len(self.invisible)
        self.preformatted.append(node)

    def take(self, body: LexborNode | None) -> str:
        """The main text, not tidied yet. Destroys the tree."""
        if body is None:
            return ""
        hold_white_space(self.preformatted, self.invisible[self._invisible_before :])
        if self._main is not None:
            node, invisible, boilerplate = self._main
            # Nodes that come before an element in the document are not inside it, so they need not be cut out.
            _cut(self.invisible[invisible:])
            _cut(node for node in self.boilerplate[boilerplate:] if node.tag == "nav")
            text = node.text_lexbor()
            if len(text) >= MAIN_CHARS_MIN:
                return text
        _cut(self.invisible)
        return self._body_text(body)

    def _body_text(self, body: LexborNode) -> str:
        whole = body.text_lexbor()
        if not self.boilerplate:
            return whole
        _cut(self.boilerplate)
        text = body.text_lexbor()
        return text if len(text) >= BODY_SHARE_MIN * len(whole) else whole


def _cut(nodes: Iterable[LexborNode]) -> None:
    for node in nodes:
        # A node inside one that was cut has no parent any more.
        if node.parent is not None:
            node.decompose()


def tidy(text: str) -> bytes:
    """Tidy a text: one line per block, no empty lines, single spaces, at most `TEXT_BYTES_MAX` of UTF-8. The held white
    space of preformatted text is restored."""
    raw = text[: 2 * TEXT_BYTES_MAX].encode("utf-8", "replace")
    lines = BLOCK_END.join([line for line in map(bytes.strip, raw.split(BLOCK_END)) if line])
    # Three quick tests often save the translation, which costs as much as the split.
    if b"\n" in lines or b"\t" in lines or b"\r" in lines:
        lines = _single_spaced(lines.translate(_TO_LINES))
    else:
        lines = _single_spaced(lines.replace(BLOCK_END, b"\n"))
    return clipped(with_white_space(lines))


def _single_spaced(text: bytes) -> bytes:
    # numpy, because `bytes` has no cheap way to find two adjacent spaces: every space is a candidate.
    array = numpy.frombuffer(text, numpy.uint8)
    space = array == ord(" ")
    repeated = space[1:] & space[:-1]
    if not repeated.any():
        return text
    kept: bytes = array[1:][~repeated].tobytes()
    return text[:1] + kept


def clipped(text: bytes) -> bytes:
    """The text cut to `TEXT_BYTES_MAX`, at the end of a whole character."""
    if len(text) <= TEXT_BYTES_MAX:
        return text
    return text[:TEXT_BYTES_MAX].decode("utf-8", "ignore").encode()
