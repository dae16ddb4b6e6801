"""The main text of a page: what a reader came for, one line per block.

lexbor's own text walk is a hundred times faster than one in Python, but it does not know blocks from inline elements:
`<li>a</li><li>b</li>` would read "ab". So a form feed is put before every tag of a block element in the source. To HTML
a form feed is white space like any other, and changes nothing; in the text it shows where a line ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy
from selectolax.lexbor import LexborNode

TEXT_BYTES_MAX = 1024 * 1024
# A <main> or <article> with less text than this is a shell, and the body is read.
MAIN_CHARS_MIN = 200
# When less than this share of the body is left without the boilerplate, the boilerplate was the page.
BODY_SHARE_MIN = 0.1

BLOCK_END = "\x0c"

INVISIBLE_TAGS = frozenset(
    {"script", "style", "noscript", "template", "iframe", "noframes", "noembed", "object", "title"}
    | {"svg", "math", "canvas", "audio", "video", "select", "textarea"}
)
BOILERPLATE_TAGS = frozenset({"nav", "header", "footer", "aside", "form", "dialog", "menu"})

_BLOCK_TAG = re.compile(
    rb"<(?=/?(?:[pP](?:[\s>]|re)|[dD](?:iv|[ltd][\s>]|etails|IV)|[lL][iI]|[hH][1-6rR]|[bB](?:[rR]|lock|ody)|[tT](?:[dhrDHR]|able|ABLE)"
    rb"|[uUoO][lL]|sec|arti|main|head|foot|nav|asi|form|fig|fie|addr|opt|cap|leg|summ|cent|CENT))"
)
_TO_SPACES = bytes.maketrans(b"\x0c\n\r\t\x0b\x00", b"\n     ")


def mark_blocks(html: bytes) -> bytes:
    """The same page with a form feed before every tag of a block element."""
    return _BLOCK_TAG.sub(b"\x0c<", html)


def main_text(
    body: LexborNode | None, mains: list[LexborNode], invisible: Iterable[LexborNode], boilerplate: list[LexborNode]
) -> bytes:
    """The main text of a marked page. Destroys the tree."""
    if body is None:
        return b""
    _cut(invisible)
    if len(mains) == 1:
        _cut(node for node in boilerplate if node.tag == "nav")
        text = mains[0].text_lexbor()
        if len(text) >= MAIN_CHARS_MIN:
            return tidy(text)
    whole = body.text_lexbor()
    if not boilerplate:
        return tidy(whole)
    _cut(boilerplate)
    text = body.text_lexbor()
    return tidy(text if len(text) >= BODY_SHARE_MIN * len(whole) else whole)


def _cut(nodes: Iterable[LexborNode]) -> None:
    for node in nodes:
        # A node inside one that was cut already has no parent any more.
        if node.parent is not None:
            node.decompose()


def tidy(text: str) -> bytes:
    """One line per block, no empty lines, single spaces; at most `TEXT_BYTES_MAX` of UTF-8."""
    raw = text[: 2 * TEXT_BYTES_MAX].encode("utf-8", "replace").translate(_TO_SPACES)
    lines = b"\n".join([line for line in map(bytes.strip, raw.split(b"\n")) if line])
    return _clipped(_single_spaced(lines))


def _single_spaced(text: bytes) -> bytes:
    # In numpy because there is no cheap way to even ask `bytes` whether two spaces meet: every space is a candidate.
    array = numpy.frombuffer(text, numpy.uint8)
    space = array == 32
    repeated = space[1:] & space[:-1]
    if not repeated.any():
        return text
    kept: bytes = array[1:][~repeated].tobytes()
    return text[:1] + kept


def _clipped(text: bytes) -> bytes:
    if len(text) <= TEXT_BYTES_MAX:
        return text
    return text[:TEXT_BYTES_MAX].decode("utf-8", "ignore").encode()
