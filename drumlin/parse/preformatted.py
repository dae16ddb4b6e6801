"""Text whose white space matters: what stands in `<pre>`, `<textarea>`, `<listing>` and `<xmp>`, above all code.

The text of a page is taken whole and its white space then collapsed. So that preformatted white space survives this,
each character of it is held beforehand by a control character that means nothing in HTML (`_HELD`), and given back at
the end (`with_white_space`). A page that contains these control characters itself has white space in their place.

Within a `<pre>`, `<br>` and the edges of block elements end lines, as a browser shows them. White space that only a
stylesheet calls preformatted is not known to be so: stylesheets are not read.
"""

from __future__ import annotations

from collections.abc import Iterator

from selectolax.lexbor import LexborNode

from drumlin.parse.blocks import BLOCK_END

PREFORMATTED_TAGS = frozenset({"pre", "textarea", "listing", "xmp"})
# Elements can be nested by force, and the text of each is that of all within. This bounds the sum.
PREFORMATTED_CHARS_MAX = 4 * 1024 * 1024
PREFORMATTED_MAX = 50_000
"""Elements of a page that are looked at; no honest page has a tenth of them."""
BLOCKS_INSIDE_MAX = 10_000
"""Block elements in one preformatted element for which its text is walked node by node."""

_MARK = BLOCK_END.decode()
_WHITE_SPACE = "\n \t\r\f"
_STAND_INS = "\x1c\x1d\x1e\x1f\x1a"
_HELD = str.maketrans(_WHITE_SPACE, _STAND_INS)
_RESTORED = bytes.maketrans(_STAND_INS.encode(), _WHITE_SPACE.encode())
_STAND_IN_BYTES = tuple(stand_in.encode() for stand_in in _STAND_INS)
# Elements whose content is text whatever it looks like: the marks of blocks stand before what only looks like a tag.
_TEXT_ONLY = frozenset({"textarea", "xmp"})
# What may stand in a <pre> and is not shown; its text is directly inside it.
_HIDDEN = frozenset({"script", "style", "noscript", "template", "title", "iframe"})
_HIDDEN_SELECTOR = ",".join(sorted(_HIDDEN))


def hold_white_space(nodes: list[LexborNode]) -> None:
    """Make each node a block of text whose white space will not collapse. Inner nodes come first: they become text of
    the outer ones. Nothing is destroyed, since other nodes that are still needed may be inside."""
    chars_left = PREFORMATTED_CHARS_MAX
    for node in reversed(nodes[:PREFORMATTED_MAX]):
        text = _text(node)
        chars_left -= len(text)
        if chars_left < 0:
            return
        node.replace_with(_MARK + text.translate(_HELD) + _MARK)


def with_white_space(text: bytes) -> bytes:
    """The text with the white space that was held. Five quick looks save most pages the translation."""
    return text.translate(_RESTORED) if any(stand_in in text for stand_in in _STAND_IN_BYTES) else text


def _text(node: LexborNode) -> str:
    text = node.text_lexbor()
    if node.tag in _TEXT_ONLY:
        return text.replace(_MARK + "<", "<").removesuffix(_MARK)
    # The last mark is that of the end tag. Another one tells that there are blocks inside, which is rare.
    text = text.removesuffix(_MARK)
    blocks = text.count(_MARK)
    if blocks > BLOCKS_INSIDE_MAX:
        return text.replace(_MARK, "\n")
    return "".join(_lines(node)) if blocks or node.css_first(_HIDDEN_SELECTOR) is not None else text


def _lines(node: LexborNode) -> Iterator[str]:
    """The text of a node with a line end for each `<br>`, and where a block begins or ends within a line."""
    line_open = block_edge = False
    for inner in node.traverse(include_text=True):
        if inner.tag == "br":
            line_open = block_edge = False
            yield "\n"
        elif inner.tag == "-text" and (inner.parent is None or inner.parent.tag not in _HIDDEN):
            text = inner.text_content or ""
            if text.startswith(_MARK) and text.endswith(_MARK) and " " not in text and "\n" not in text:
                # An inner preformatted element, which has become text and whose white space is held already.
                text, block_edge = text[1:], True
            shown = text.removesuffix(_MARK)
            if shown and block_edge and line_open:
                yield "\n"
            if shown:
                line_open = not shown.endswith("\n")
                block_edge = False
                yield shown
            block_edge = block_edge or len(shown) < len(text)
