"""Marks where lines of text end: puts a form feed before every tag of a block element, before the page is parsed.

lexbor extracts text far faster than Python could, but it does not tell block elements from inline ones:
`<li>a</li><li>b</li>` would read "ab". To HTML a form feed is white space like any other, so the marks do not change
the tree; in the text they show where a line ends. Form feeds of the page itself first become spaces, or, where white
space matters, another character (`drumlin.parse.preformatted`). Attributes and titles that contain something like a tag
get marks too; `without_marks` removes them.

numpy does this in a quarter of the time of a regular expression: it classifies all tags at once with a table over the
first four characters, five bits each. Some bytes that are not letters have the same five bits as letters, so a few
inline tags with odd names are marked too; `test_parse_text.py` checks that no common one is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import numpy
import numpy.typing as npt

BLOCK_END = b"\x0c"
_BLOCK_NAMES = (
    "p div li ul ol dl dt dd h1 h2 h3 h4 h5 h6 hr br table tr td th tbody thead tfoot caption pre section article main "
    "header footer nav aside form fieldset legend figure figcaption address blockquote body option summary details "
    "center dialog hgroup search dir menu optgroup plaintext"
)
BLOCK_TAGS = _BLOCK_NAMES.split()
# The first four characters of its end tag, `</mar`, are also those of `</mark>`.
START_ONLY_TAGS = ("marquee",)
PREFORMATTED_TAGS = frozenset({"pre", "textarea", "listing", "xmp"})
FORM_FEED_HELD = b"\x1a"
"""Replaces the page's own form feeds in preformatted text: a control character without a meaning in HTML."""

_MARK = BLOCK_END.decode()
_PREFORMATTED_TAG = re.compile(
    rb"(<(/?)(?:%b)(?=[\s/>]))" % "|".join(sorted(PREFORMATTED_TAGS)).encode(), re.IGNORECASE
)
_ANY_TAG = re.compile(rb"(<[^<>]*>)")

_Bytes = npt.NDArray[numpy.uint8]
_Places = npt.NDArray[numpy.int64]
_Starts = npt.NDArray[numpy.uint32]
_Flags = npt.NDArray[numpy.bool_]

GROUP_BYTES_MAX = 1024 * 1024
"""Pages are worked on in groups of about this size, which bounds the memory for copies."""
_LETTERS = 4
_LETTER_MASK = 0x1F
_LETTER_BITS = 0x1F1F1F1F
_PAIR_BITS = 0x03FF03FF
_KEY_MAX = 0xFFFFF
# The tab is missing, because in five bits it would look like the "i" of <picture>.
_NAME_ENDS = b"> \n\r/\x0c"
# Stands after each page, so the name of a tag at the very end of a page ends.
_PADDING = b">" * 8
# Marks the place of a tag while the page is an array: a control character without a meaning in HTML.
_STAND_IN = b"\x01"


def _starts(start: bytes) -> Iterator[int]:
    """All groups of four bytes that may follow "<" in a tag that begins with `start`, as numbers: its first four bytes,
    or, if it is shorter, all of it, a byte that ends a name, and any bytes."""
    places = [[byte] for byte in start[:_LETTERS]]
    if len(places) < _LETTERS:
        places.append(list(_NAME_ENDS))
    places += [list(range(_LETTER_MASK + 1))] * (_LETTERS - len(places))
    for letters in itertools.product(*places):
        yield int.from_bytes(bytes(letters), "little")


def _keys(starts: _Starts) -> _Starts:
    """Reduce groups of four bytes to twenty bits, in place: five bits of each byte. The shifted bits overlap, but XOR
    keeps the mapping one to one."""
    starts &= _LETTER_BITS
    starts ^= starts >> 3
    starts &= _PAIR_BITS
    starts ^= starts >> 6
    starts &= _KEY_MAX
    return starts


def _block_table() -> _Flags:
    table = numpy.zeros(_KEY_MAX + 1, numpy.bool_)
    for name in BLOCK_TAGS:
        starts = [*_starts(name.encode()), *_starts(b"/" + name.encode())]
        table[_keys(numpy.array(starts, numpy.uint32))] = True
    for name in START_ONLY_TAGS:
        table[_keys(numpy.array(list(_starts(name.encode())), numpy.uint32))] = True
    return table


_IS_BLOCK = _block_table()


def mark_blocks(pages: Sequence[bytes]) -> list[bytes]:
    """Each page with `BLOCK_END` before tags of block elements; where several follow each other, before the first."""
    marked: list[bytes] = []
    group: list[bytes] = []
    size = 0
    for page in pages:
        group.append(_without_marks_of_its_own(page))
        size += len(page)
        if size >= GROUP_BYTES_MAX:
            marked += _mark_group(group)
            group, size = [], 0
    return marked + _mark_group(group) if group else marked


def _without_marks_of_its_own(html: bytes) -> bytes:
    if _STAND_IN in html:
        html = html.replace(_STAND_IN, b" ")
    return _without_form_feeds(html) if BLOCK_END in html else html


def _mark_group(pages: list[bytes]) -> list[bytes]:
    """Mark pages that are worked on as one array: the fixed cost of each call of numpy is then shared by all."""
    joined = bytearray(_PADDING).join([*pages, b""])
    source = numpy.frombuffer(joined, numpy.uint8)
    tags = numpy.flatnonzero(source == ord("<"))
    # An overlapping view of the pages gives the four bytes after every "<" at once.
    is_block = _IS_BLOCK[_keys(numpy.ndarray((len(joined) - _LETTERS,), "<u4", joined, 1, (1,))[tags])]
    ends = numpy.cumsum([len(page) + len(_PADDING) for page in pages])
    is_block &= ~_touching(source, tags, is_block, ends)
    marks = tags[is_block]
    source[marks] = ord(_STAND_IN)
    # Replacing one byte by two is far cheaper in a `bytearray` than inserting into an array of numpy.
    whole = memoryview(joined.replace(_STAND_IN, BLOCK_END + b"<"))
    # Every mark before the end of a page has moved that end by one byte.
    moved_ends = (ends + numpy.searchsorted(marks, ends)).tolist()
    starts = [0, *moved_ends[:-1]]
    return [bytes(whole[start : end - len(_PADDING)]) for start, end in zip(starts, moved_ends, strict=True)]


def _touching(source: _Bytes, tags: _Places, is_block: _Flags, ends: _Places) -> _Flags:
    """Which tags follow the tag of a block with nothing but a line end, or not even that, in between. `ends` are the
    places where pages end: the first tag of a page follows none."""
    before = source[tags - 1]
    touching: _Flags = before == ord(">")
    touching |= (before == ord("\n")) & (source[tags - 2] == ord(">"))
    touching[1:] &= is_block[:-1]
    touching[:1] = False
    firsts = numpy.searchsorted(tags, ends[:-1])
    touching[firsts[firsts < len(tags)]] = False
    return touching


def _without_form_feeds(html: bytes) -> bytes:
    """The page with its own form feeds replaced: by `FORM_FEED_HELD` in preformatted text, by spaces elsewhere."""
    before, *rest = _PREFORMATTED_TAG.split(html)
    parts = [before.replace(BLOCK_END, b" ")]
    depth = 0
    for tag, end, inside in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        depth = max(depth - 1, 0) if end else depth + 1
        parts += (tag, _held(inside) if depth else inside.replace(BLOCK_END, b" "))
    return b"".join(parts)


def _held(html: bytes) -> bytes:
    """Preformatted HTML, which begins inside a tag, with its form feeds replaced: by spaces in tags, held elsewhere."""
    tag_end, close, inside = html.partition(b">")
    parts = _ANY_TAG.split(inside)
    parts[::2] = [part.replace(BLOCK_END, FORM_FEED_HELD) for part in parts[::2]]
    return (tag_end + close + b"".join(parts)).replace(BLOCK_END, b" ")


def without_marks(text: str) -> str:
    """An attribute or a title without marks. It may contain something like a tag, before which a mark was put."""
    return text.replace(_MARK, "")


def all_without_marks(texts: list[str]) -> list[str]:
    """The attributes of a page's links without marks. An attribute whose quotation never ends contains tags."""
    return texts if _MARK not in "".join(texts) else [without_marks(text) for text in texts]
