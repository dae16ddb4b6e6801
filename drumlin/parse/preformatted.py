"""Keeps the white space of preformatted text: the content of `<pre>`, `<textarea>`, `<listing>` and `<xmp>`.

The text of a page is taken as a whole and its white space then collapsed. To survive this, each white-space character
of preformatted text is first replaced ("held") by a control character without a meaning in HTML (`_HELD`) and restored
at the end (`with_white_space`). If a page contains these control characters itself, they become white space.

The page's own form feeds in such text were held before the page was parsed (`drumlin.parse.blocks`); the form feeds
that are left are marks of blocks.

Within a `<pre>`, `<br>` and the edges of block elements end lines, as a browser shows them. White space that only a
stylesheet makes preformatted is not kept, since stylesheets are not read.
"""

from __future__ import annotations

from collections.abc import Iterator

from selectolax.lexbor import LexborNode

from drumlin.parse.blocks import BLOCK_END, FORM_FEED_HELD, PREFORMATTED_TAGS, without_marks

INVISIBLE_TAGS = frozenset(
    {"script", "style", "noscript", "template", "iframe", "noframes", "noembed", "object", "title"}
    | {"svg", "math", "canvas", "audio", "video", "select"}
)
"""Elements whose text never belongs to a page's text."""
# Hostile pages can nest elements, and the text of each includes that of all inside it. This bounds the sum.
PREFORMATTED_CHARS_MAX = 4 * 1024 * 1024
PREFORMATTED_MAX = 50_000
"""How many such elements of a page are looked at; no honest page has a tenth of them."""
BLOCKS_INSIDE_MAX = 10_000
"""If a preformatted element has more block elements inside, its text is not walked node by node."""

STEPS_UP_MAX = 20_000
"""How many steps up the tree are made from invisible elements. A page that needs more is made to be slow."""

_MARK = BLOCK_END.decode()
_WHITE_SPACE = "\n \t\r\f"
_STAND_INS = "\x1c\x1d\x1e\x1f" + FORM_FEED_HELD.decode()
_HELD = str.maketrans(_WHITE_SPACE, _STAND_INS)
_RESTORED = bytes.maketrans(_STAND_INS.encode(), _WHITE_SPACE.encode())
_STAND_IN_BYTES = tuple(stand_in.encode() for stand_in in _STAND_INS)
# Elements whose content is text even where it looks like tags; so the marks in it stand before text.
_TEXT_ONLY = frozenset({"textarea", "xmp"})


def hold_white_space(nodes: list[LexborNode], invisible: list[LexborNode]) -> None:
    """Turn each node into a block of text whose white space will not collapse. Inner nodes are done first and become
    text of the outer ones. No node is destroyed, since others that are still needed may be inside. `invisible` are the
    invisible elements that come after the first node."""
    if not nodes:
        return
    chars_left = PREFORMATTED_CHARS_MAX
    holders = _around(invisible)
    for node in reversed(nodes[:PREFORMATTED_MAX]):
        text = _text(node, holders is None or node.mem_id in holders)
        chars_left -= len(text)
        if chars_left < 0:
            return
        node.replace_with(_MARK + text.translate(_HELD) + _MARK)


def with_white_space(text: bytes) -> bytes:
    """The text with the held white space restored. Five quick tests save most pages the translation."""
    return text.translate(_RESTORED) if any(stand_in in text for stand_in in _STAND_IN_BYTES) else text


def _around(invisible: list[LexborNode]) -> set[int] | None:
    """The preformatted elements that have something invisible inside; None if finding them would take too long."""
    holders: set[int] = set()
    steps = 0
    for node in invisible:
        above = node.parent
        while above is not None:
            steps += 1
            if above.tag in PREFORMATTED_TAGS:
                holders.add(above.mem_id)
            above = above.parent
        if steps > STEPS_UP_MAX:
            return None
    return holders


def _text(node: LexborNode, has_invisible: bool) -> str:
    text = node.text_lexbor()
    if node.tag in _TEXT_ONLY:
        return text.replace(_MARK + "<", "<").removesuffix(_MARK)
    # The last mark belongs to the end tag. Any other mark means that there are blocks inside, which is rare.
    text = text.removesuffix(_MARK)
    blocks = text.count(_MARK)
    if blocks > BLOCKS_INSIDE_MAX:
        return text.replace(_MARK, "\n")
    return "".join(_lines(node)) if blocks or has_invisible else text


def _lines(node: LexborNode) -> Iterator[str]:
    """The text of a node, with a line end for each `<br>` and wherever a block begins or ends within a line."""
    line_open = block_edge = False
    for inner in _visible(node):
        if inner.tag == "br":
            line_open = block_edge = False
            yield "\n"
        elif inner.tag == "-text":
            text = inner.text_content or ""
            if text.startswith(_MARK) and text.endswith(_MARK) and " " not in text and "\n" not in text:
                # This was an inner preformatted element; it is text now, and its white space is held already.
                text, block_edge = text[1:], True
            # A mark at the end belongs to the tag that ends this text. An earlier one belongs to a tag that the parser
            # dropped, such as the end tag of an element that was never open.
            shown = without_marks(text)
            if shown and block_edge and line_open:
                yield "\n"
            if shown:
                line_open = not shown.endswith("\n")
                block_edge = False
                yield shown
            block_edge = block_edge or text.endswith(_MARK)


def _visible(node: LexborNode) -> Iterator[LexborNode]:
    """All nodes inside a node, except invisible elements and what is in them."""
    hidden: set[int] = set()
    for inner in node.traverse(include_text=True):
        above = inner.parent
        if inner.tag in INVISIBLE_TAGS or (above is not None and above.mem_id in hidden):
            hidden.add(inner.mem_id)
        else:
            yield inner
