"""One HTML page, parsed: the order of the steps, each in its own file."""

from __future__ import annotations

import re

import msgspec
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, SelectolaxError

from drumlin.parse.blocks import BLOCK_END, mark_blocks
from drumlin.parse.charset import to_utf8
from drumlin.parse.hostile import tame
from drumlin.parse.language import detected_language, language_codes
from drumlin.parse.links import KIND_OF_TAG, Attributes, Links, refresh_url, words
from drumlin.parse.mime import HTML, PLAIN, XHTML, essence
from drumlin.parse.text import BOILERPLATE_TAGS, INVISIBLE_TAGS, MAIN_TAGS, TextParts, tidy

PARSE_BYTES_MAX = 4 * 1024 * 1024
# 16,000 nested anchors around some text: the words of each are those of all within, a tenth of a second in sum.
NESTING_UNCHECKED_BYTES_MAX = 128 * 1024
ROBOTS_NAMES = frozenset({"robots", "drumlin"})

# Without mutation events: they only serve <selectedcontent>.
_OPTIONS = LexborDocumentOptions.WO_EVENTS.value
_STRUCTURE_TAGS = ("html", "title", "meta", "base", *MAIN_TAGS)
_ONLY_INVISIBLE = INVISIBLE_TAGS - {*KIND_OF_TAG, "title"}
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


def parse(body: bytes, content_type: str, url: str, content_language: str = "") -> ParsedPage:
    """Read an HTML, XHTML or plain-text page. Nothing is resolved against `url`: that is the caller's."""
    mime = essence(content_type) or HTML
    charset, utf8 = to_utf8(body[:PARSE_BYTES_MAX], content_type)
    page = ParsedPage(mime, charset)
    if mime == PLAIN:
        page.text = tidy(utf8.replace(b"\n", BLOCK_END).decode("utf-8", "replace"))
    else:
        _read(page, _SELF_CLOSED.sub(rb"<\1\2></\1>", utf8) if mime == XHTML else utf8)
    page.languages = page.languages or language_codes(content_language) or detected_language(page.text)
    return page


def _read(page: ParsedPage, html: bytes) -> None:
    try:
        tree = LexborHTMLParser(mark_blocks(tame(html)), options=_OPTIONS)
    except (SelectolaxError, ValueError):
        return
    if tree.root is not None:
        # Anchors nest only by force. Each then contains the words of all within, and to read them all is quadratic.
        nested = len(html) > NESTING_UNCHECKED_BYTES_MAX and tree.css_first("a a") is not None
        _Reader(page, Links(with_words=not nested)).read(tree, tree.root)


class _Reader:
    """One walk over the elements of a page."""

    __slots__ = ("_links", "_page", "_parts")

    def __init__(self, page: ParsedPage, links: Links) -> None:
        self._page = page
        self._links = links
        self._parts = TextParts()

    def read(self, tree: LexborHTMLParser, root: LexborNode) -> None:
        """Fill in the page: what its elements say first, because taking the text destroys the tree."""
        links, parts = self._links, self._parts
        add_anchor, role_of, anchor = links.add_anchor, _ROLES.get, _ANCHOR
        for node in root.traverse():
            tag = node.tag_id
            if tag == anchor:
                add_anchor(node)
                continue
            role = role_of(tag)
            if role is None:
                continue
            if role in BOILERPLATE_TAGS:
                parts.boilerplate.append(node)
                continue
            if role in INVISIBLE_TAGS:
                parts.invisible.append(node)
                if role in _ONLY_INVISIBLE:
                    continue
            self._read_element(node, role)
        page = self._page
        page.hrefs, page.kinds, page.rels, page.texts = links.hrefs, links.kinds, links.rels, links.texts
        page.text = parts.take(tree.body)

    def _read_element(self, node: LexborNode, role: str) -> None:
        if role in KIND_OF_TAG:
            self._read_link(node, KIND_OF_TAG[role])
        elif role == "meta":
            self._read_meta(node.attributes)
        elif role == "title":
            self._page.title = self._page.title or words(node.text_lexbor())
        elif role == "base":
            self._page.base_href = self._page.base_href or (node.attributes.get("href") or "").strip()
        elif role == "html":
            self._page.languages = language_codes(node.attributes.get("lang") or "")
        elif role in MAIN_TAGS:
            self._parts.add_main(node, role)

    def _read_link(self, node: LexborNode, kind: str) -> None:
        attributes = node.attributes
        self._links.add_element(kind, attributes)
        if kind == "link" and "canonical" in (attributes.get("rel") or "").lower().split():
            self._page.canonical_href = self._page.canonical_href or (attributes.get("href") or "").strip()

    def _read_meta(self, attributes: Attributes) -> None:
        content = attributes.get("content")
        if not content:
            return
        page = self._page
        name = (attributes.get("name") or attributes.get("property") or "").lower()
        if name == "description" or (name == "og:description" and not page.description):
            page.description = words(content)
        elif name in ROBOTS_NAMES:
            page.robots.append(content)
        elif (attributes.get("http-equiv") or "").lower() == "refresh" and not page.refresh_href:
            page.refresh_href = refresh_url(content)
            self._links.add(page.refresh_href, "refresh")


def _roles() -> dict[int, str]:
    """The elements that matter, by lexbor's number for them."""
    names = {*KIND_OF_TAG, *INVISIBLE_TAGS, *BOILERPLATE_TAGS, *_STRUCTURE_TAGS}
    factory = LexborHTMLParser("")
    return {factory.create_node(name).tag_id: name for name in names}


_ROLES = _roles()
_ANCHOR = next(number for number, name in _ROLES.items() if name == "a")
