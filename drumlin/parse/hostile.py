"""Cuts pages that are made to be slow, at the point where the slowness begins.

The HTML standard itself requires quadratic work in places: a start tag searches all open elements, and an attribute is
compared with all before it. For 100,000 nested `<div>` that takes half a minute. A page below `UNCHECKED_BYTES_MAX`
cannot contain enough of it to take half a second, so most pages are not checked. A larger page is cut

- before the first tag with more than `ATTRIBUTES_MAX` attributes, if a tag is so large that it matters;
- where the depths of its tags add up to `DEPTH_SUM_MAX`, since that sum is the work of searching open elements.

The parser treats each NUL as an error and ignores it or writes three bytes in its place, and a few kilobytes on the
wire can decompress to megabytes of NULs. So a long run of NULs is shortened, which does not change its meaning.
"""

from __future__ import annotations

import re

import numpy

TAG_BYTES_MIN = 3
TAGS_UNCHECKED_MAX = 16_000
UNCHECKED_BYTES_MAX = TAG_BYTES_MIN * TAGS_UNCHECKED_MAX
ATTRIBUTES_MAX = 256
NAME_BYTES_MAX = 4096
VALUE_BYTES_MAX = 8192
RUN_BYTES_MAX = 256
STEP_BYTES_MIN = 1024
STEP_BYTES_PRODUCT = 2_000_000_000
DEPTH_SUM_MAX = 40_000_000

NULS_MAX = 8
"""A longer run of NULs is shortened to this many."""
_NULS = re.compile(rb"\x00{%d,}+" % (NULS_MAX + 1))

# Elements that cannot nest in themselves: void ones, and those that the next of their kind closes.
_NEVER_DEEP = frozenset(
    b"area base br col embed hr img input link meta param source track wbr "
    b"a p li dt dd tr td th tbody thead tfoot option optgroup colgroup rt rp nobr".split()
)
_TAG = re.compile(rb"<(/?)([a-zA-Z][^\s/>]{0,20})")


# Shapes within a drawing, written in a way that leaves no doubt about where the tag and the element end.
_SHAPES = rb"path|line|rect|circle|ellipse|polyline|polygon|use|stop|g|text|tspan|defs|marker"
# Groups are repeated in an atomic group, here and elsewhere: Python before 3.11.5, and so Debian's, forgets to go back
# after `(...)*+` has matched a part of what it repeats.
_PLAIN_ATTRIBUTES = rb"(?>(?:\s++[a-zA-Z_][\w:.-]*+=(?:\"[^\"<>]*+\"|'[^'<>]*+'))*)\s*+"
_CLOSED_SHAPE = re.compile(rb"<(?:%b)%b/>" % (_SHAPES, _PLAIN_ATTRIBUTES))
_OPEN_SHAPE = re.compile(rb"<(%b)%b>" % (_SHAPES, _PLAIN_ATTRIBUTES))
_DRAWING = re.compile(rb"<svg%b>" % _PLAIN_ATTRIBUTES)


def _attributes(run: bytes) -> bytes:
    """A pattern of `ATTRIBUTES_MAX` attributes as the tokenizer reads them; `run` repeats a byte outside quotes."""
    value = rb"\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]%b" % run
    name = rb"[\s/]%b[^\s/>][^\s/>=]%b" % (run, run)
    return rb"(?:%b(?>(?:\s%b=\s%b(?>(?:%b)?))?)){%d}" % (name, run, run, value, ATTRIBUTES_MAX)


# A start tag with more attributes, or a longer name, than any honest one has. It is tried at every "<", so nothing
# before a tag can hide it. All quantifiers are possessive and all groups atomic, so nothing here
# backtracks.
_FLOOD = re.compile(rb"<[a-zA-Z](?:[^\s/>]{%d}|[^\s/>]*+%b)" % (NAME_BYTES_MAX, _attributes(b"*+")))
# As many attributes, seen from a place between two of them. Runs are bounded, and a longer name counts as several
# attributes, so the match costs about the same at every place.
_ATTRIBUTES = re.compile(_attributes(b"{0,%d}+" % RUN_BYTES_MAX))


def tame(html: bytes) -> bytes:
    """The page, or as much of it as can be parsed in good time."""
    if len(html) <= UNCHECKED_BYTES_MAX:
        return html
    # Hardly any page has NULs, and this test is nearly free, while the pattern takes longer than parsing.
    if b"\x00" in html:
        html = _NULS.sub(b"\x00" * NULS_MAX, html)
    if _may_flood(html):
        flood = _FLOOD.search(html)
        if flood:
            html = html[: flood.start()]
    # Counting with numpy takes a sixth of the time of `bytes.count`.
    if numpy.count_nonzero(numpy.frombuffer(html, numpy.uint8) == ord("<")) <= TAGS_UNCHECKED_MAX:
        return html
    return html[: _depth_limit(html)]


def _may_flood(html: bytes) -> bool:
    """Whether some tag may be so large that its attributes matter. Looks at places so close that any such tag is hit.

    The larger the page, the more large tags it can have and the smaller each of them must be, so the step shrinks.
    Long prose can look like attributes from within; the exact search that follows tells them apart.
    """
    step = max(STEP_BYTES_MIN, STEP_BYTES_PRODUCT // len(html))
    return any(_may_be_inside(html, place) for place in range(step, len(html), step))


def _may_be_inside(html: bytes, place: int) -> bool:
    """Whether a place may lie in a tag with too many attributes: between two of them, or inside a quoted value."""
    value_end = place + VALUE_BYTES_MAX + 1
    after_quotes = (html.find(quote, place, value_end) + 1 for quote in (b'"', b"'"))
    return _floods(html, place) or any(start and _floods(html, start) for start in after_quotes)


def _floods(html: bytes, place: int) -> bool:
    """Whether `ATTRIBUTES_MAX` attributes follow. Mostly a tag's end outside of quotes rules that out at once."""
    end = html.find(b">", place, place + ATTRIBUTES_MAX)
    if end >= 0 and html.find(b'"', place, end) < 0 and html.find(b"'", place, end) < 0:
        return False
    return _ATTRIBUTES.match(html, place) is not None


def _depth_limit(html: bytes) -> int:
    """Where the sum of depths reaches its limit.

    Depth counts the elements opened and not closed by an end tag of their own name. Whatever keeps an end tag from
    working (a table cell, an <object>) also ends a search through the open elements, so this errs on the safe side.
    """
    open_by_name: dict[bytes, int] = {}
    drawing = _Drawing(html)
    depth = total = 0
    for tag in _TAG.finditer(html):
        name = tag[2].lower()
        closed = drawing.closes_itself(tag)
        if not closed and name not in _NEVER_DEEP:
            opened = open_by_name.get(name, 0)
            if not tag[1]:
                open_by_name[name] = opened + 1
                depth += 1
            elif opened:
                open_by_name[name] = opened - 1
                depth -= 1
        total += depth
        if total > DEPTH_SUM_MAX:
            return tag.start()
    return len(html)


class _Drawing:
    """Knows which tags close themselves: in HTML `<path/>` stays open like any other tag, and only within `<svg>` does
    the slash count. Manuals draw their diagrams with tens of thousands of such tags.

    A page could leave a drawing in many ways, and then have every `<path/>` nest in the one before. So a drawing is
    over for us at the first tag that is not a shape, or not written plainly, or does not end the shape opened last.
    """

    def __init__(self, html: bytes) -> None:
        self._html = html
        self._open: list[bytes] | None = None
        """The shapes that are open within the drawing; None outside of drawings."""

    def closes_itself(self, tag: re.Match[bytes]) -> bool:
        html, place = self._html, tag.start()
        if self._open is None:
            if _DRAWING.match(html, place):
                self._open = []
            return False
        if tag[1]:
            if not self._open or self._open.pop() != tag[2]:
                self._open = None
            return False
        if _CLOSED_SHAPE.match(html, place):
            return True
        opened = _OPEN_SHAPE.match(html, place)
        if opened:
            self._open.append(opened[1])
        else:
            self._open = None
        return False
