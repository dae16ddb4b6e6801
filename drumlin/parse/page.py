"""Parses HTML pages: this file has the order of the steps, other files have the steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, SelectolaxError

from drumlin.parse.blocks import PREFORMATTED_TAGS, all_without_marks, mark_blocks, without_marks
from drumlin.parse.encoding.charset import to_utf8
from drumlin.parse.hostile import tame
from drumlin.parse.language import language_codes, page_language
from drumlin.parse.links import KIND_OF_TAG, Attributes, Links, refresh_url, words
from drumlin.parse.mime import HTML, PLAIN, XHTML, essence
from drumlin.parse.preformatted import INVISIBLE_TAGS
from drumlin.parse.text import BOILERPLATE_TAGS, MAIN_TAGS, TextParts, clipped, tidy

PARSE_BYTES_MAX = 4 * 1024 * 1024
# Pages go through the steps in groups of about this size, which bounds the memory for copies.
GROUP_BYTES_MAX = 2 * 1024 * 1024
# A page of this size can have 16,000 nested anchors around some text. The text of each includes that of all inside it;
# reading them takes a tenth of a second in total.
NESTING_UNCHECKED_BYTES_MAX = 128 * 1024
# The page's own title is looked for among so many title elements: icons have titles too, perhaps deep in a drawing.
TITLES_MAX = 1_000
EVERY_ROBOT = "robots"

# Parse without mutation events, which only <selectedcontent> needs.
_OPTIONS = LexborDocumentOptions.WO_EVENTS.value
_STRUCTURE_TAGS = ("html", "title", "meta", "base", *MAIN_TAGS)
_FOREIGN = frozenset({"svg", "math"})
# Inside these elements of drawings and formulas there is HTML again.
_HTML_WITHIN_FOREIGN = frozenset({"foreignObject", "desc", "annotation-xml", "mi", "mn", "mo", "ms", "mtext"})
# In XML these may be written without an end tag. HTML would swallow the rest of the page into them.
_SELF_CLOSED = re.compile(rb"<(script|style|title|iframe|textarea|noscript|div|span|a)\b([^<>]*)/>", re.IGNORECASE)


class ParsedPage(msgspec.Struct):
    """What a page says. `hrefs`, `kinds`, `rels` and `texts` are parallel: one entry per link."""

    mime: str
    charset: str
    title: str = ""
    description: str = ""
    languages: str = ""
    canonical_href: str = ""
    base_href: str = ""
    refresh_href: str = ""
    robots: list[str] = []
    text: bytes = b""
    hrefs: list[str] = []
    kinds: list[str] = []
    rels: list[str] = []
    texts: list[str] = []
    too_long: int = 0
    """How many links were left out because they are too long."""


class Source(NamedTuple):
    """A page as it came. `url` names the page, and its top-level domain helps to guess the encoding; links are not
    resolved against it."""

    body: bytes
    content_type: str
    url: str
    content_language: str = ""


def parse_all(
    sources: Sequence[Source], before_each: Callable[[str], None] | None = None, *, agent: str = ""
) -> list[ParsedPage]:
    """Read pages. `before_each` is called with the URL of each page before the native parser gets it. `agent` is our
    product token: a page may address rules to it alone, as `<meta name="…">`.

    Each step is done for a group of pages at a time. That costs a tenth less than page by page, because the code of a
    step stays in the CPU's caches.
    """
    pages: list[ParsedPage] = []
    for group in _groups(sources):
        prepared = _prepare(group)
        texts = []
        for source, (page, html) in zip(group, prepared, strict=True):
            if before_each is not None:
                before_each(source.url)
            texts.append(_read(page, html, agent))
        for source, (page, _), text in zip(group, prepared, texts, strict=True):
            page.text = clipped(text.encode("utf-8", "replace")) if page.mime == PLAIN else tidy(text)
            page.languages = page_language(page.languages or language_codes(source.content_language), page.text)
            pages.append(page)
    return pages


def _groups(sources: Sequence[Source]) -> Iterator[list[Source]]:
    group: list[Source] = []
    size = 0
    for source in sources:
        group.append(source)
        size += len(source.body)
        if size >= GROUP_BYTES_MAX:
            yield group
            group, size = [], 0
    if group:
        yield group


def _prepare(sources: list[Source]) -> list[tuple[ParsedPage, bytes]]:
    """Pages with only type and encoding filled in, and their sources: in UTF-8, harmless, with marks at line ends."""
    pages = [_decoded(source) for source in sources]
    marked = iter(mark_blocks([html for page, html in pages if page.mime != PLAIN]))
    return [(page, text if page.mime == PLAIN else next(marked)) for page, text in pages]


def _decoded(source: Source) -> tuple[ParsedPage, bytes]:
    mime = essence(source.content_type) or HTML
    charset, utf8 = to_utf8(source.body[:PARSE_BYTES_MAX], source.content_type, source.url)
    if mime == XHTML:
        utf8 = _SELF_CLOSED.sub(rb"<\1\2></\1>", utf8)
    return ParsedPage(mime, charset), utf8 if mime == PLAIN else tame(utf8)


def _read(page: ParsedPage, html: bytes, agent: str) -> str:
    """Fill in a page from its elements, and return its main text, which is not tidied yet."""
    if page.mime == PLAIN:
        return html.decode("utf-8", "replace")
    try:
        tree = LexborHTMLParser(html, options=_OPTIONS)
    except (SelectolaxError, ValueError):
        return ""
    if tree.root is None:
        return ""
    # Only hostile pages have nested anchors. Each includes the text of all inside it, so reading all is quadratic.
    nested = len(html) > NESTING_UNCHECKED_BYTES_MAX and tree.css_first("a a") is not None
    return _Reader(page, Links(with_words=not nested), agent).read(tree, tree.root)


class _Reader:
    """One walk over the elements of a page."""

    __slots__ = ("_agent", "_has_base", "_links", "_page", "_parts", "_titles_left")

    def __init__(self, page: ParsedPage, links: Links, agent: str) -> None:
        self._agent = agent
        self._page = page
        self._links = links
        self._parts = TextParts()
        self._titles_left = TITLES_MAX
        self._has_base = False

    def read(self, tree: LexborHTMLParser, root: LexborNode) -> str:
        """Fill in the page and return its text. The elements are read first, because taking the text destroys them."""
        links, parts = self._links, self._parts
        add_anchor, roles, anchor = links.add_anchor, _ROLES, _ANCHOR
        for node in root.traverse():
            tag = node.tag_id
            if tag == anchor:
                add_anchor(node)
            elif tag in roles:
                if tag in _INVISIBLE:
                    parts.invisible.append(node)
                elif tag in _BOILERPLATE:
                    parts.boilerplate.append(node)
                elif tag in _PREFORMATTED:
                    parts.add_preformatted(node)
                if tag in _SPEAKING:
                    self._read_element(node, roles[tag])
        page = self._page
        page.hrefs, page.rels = all_without_marks(links.hrefs), all_without_marks(links.rels)
        page.kinds, page.texts = links.kinds, links.texts
        page.too_long = links.too_long
        return parts.take(tree.body)

    def _read_element(self, node: LexborNode, role: str) -> None:
        if role in KIND_OF_TAG:
            self._read_link(node, KIND_OF_TAG[role])
        elif role == "meta":
            self._read_meta(node.attributes)
        elif role == "title":
            self._read_title(node)
        elif role == "base":
            self._read_base(node)
        elif role == "html":
            attributes = node.attributes
            self._page.languages = language_codes(attributes.get("lang") or attributes.get("xml:lang") or "")
        elif role in MAIN_TAGS:
            self._parts.add_main(node, role)

    def _read_link(self, node: LexborNode, kind: str) -> None:
        attributes = node.attributes
        self._links.add_element(kind, attributes)
        if kind == "link" and "canonical" in (attributes.get("rel") or "").lower().split():
            self._page.canonical_href = self._page.canonical_href or _stripped(attributes.get("href"))

    def _read_base(self, node: LexborNode) -> None:
        """The first `base` with an href counts, even if that is empty and so means the page itself."""
        attributes = node.attributes
        if not self._has_base and "href" in attributes and not _is_foreign(node):
            self._has_base = True
            self._page.base_href = _stripped(attributes["href"])

    def _read_title(self, node: LexborNode) -> None:
        if self._page.title or self._titles_left <= 0:
            return
        self._titles_left -= 1
        if not _is_foreign(node):
            self._page.title = words(without_marks(node.text_lexbor()))

    def _read_meta(self, attributes: Attributes) -> None:
        content = attributes.get("content")
        if not content:
            return
        content = without_marks(content)
        page = self._page
        name = (attributes.get("name") or attributes.get("property") or "").lower()
        if name == "description" or (name == "og:description" and not page.description):
            page.description = words(content)
        elif name and name.strip() in (EVERY_ROBOT, self._agent):
            page.robots.append(content)
        elif (attributes.get("http-equiv") or "").lower() == "refresh" and not page.refresh_href:
            page.refresh_href = refresh_url(content)
            self._links.add(page.refresh_href or None, "refresh")


def _stripped(href: str | None) -> str:
    return without_marks(href).strip() if href else ""


def _is_foreign(node: LexborNode) -> bool:
    """Whether an element belongs to a drawing or a formula and not to the page, like the title of an icon."""
    above = node.parent
    while above is not None and above.tag not in _HTML_WITHIN_FOREIGN:
        if above.tag in _FOREIGN:
            return True
        above = above.parent
    return False


def _roles() -> dict[int, str]:
    """The elements that matter, by lexbor's number for them."""
    names = {*KIND_OF_TAG, *INVISIBLE_TAGS, *BOILERPLATE_TAGS, *PREFORMATTED_TAGS, *_STRUCTURE_TAGS}
    factory = LexborHTMLParser("")
    return {factory.create_node(name).tag_id: name for name in names}


_ROLES = _roles()
_NUMBERS = {name: number for number, name in _ROLES.items()}
_INVISIBLE = frozenset(_NUMBERS[name] for name in INVISIBLE_TAGS)
_BOILERPLATE = frozenset(_NUMBERS[name] for name in BOILERPLATE_TAGS)
_PREFORMATTED = frozenset(_NUMBERS[name] for name in PREFORMATTED_TAGS)
# Elements that are read for a link or for something about the page.
_SPEAKING = frozenset(_NUMBERS[name] for name in (*KIND_OF_TAG, *_STRUCTURE_TAGS))
_ANCHOR = _NUMBERS["a"]
