"""Collects a page's links with their context: element, relation and text."""

from __future__ import annotations

import re

from selectolax.lexbor import LexborNode

from drumlin.parse.blocks import without_marks

LINKS_MAX = 50_000
LINK_TEXT_CHARS_MAX = 500
# Hostile pages can nest anchors, and the text of each includes that of all inside it. This bounds the sum.
LINK_TEXTS_CHARS_MAX = 4 * 1024 * 1024
HREF_CHARS_MAX = 16_000
SRCSET_CHARS_MAX = 4 * HREF_CHARS_MAX
REL_CHARS_MAX = 200
"""Of a relation, and of the language of an alternate. Nothing honest is as long."""
NOFOLLOW = "nofollow"

FOLLOWED_KINDS = frozenset({"a", "area", "frame", "iframe", "refresh", "feed"})
FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml", "application/rdf+xml"})
# What a page needs to look right. Other `link` elements are recorded, but are neither followed nor assets.
ASSET_KINDS = frozenset({"img", "script", "style", "icon", "media", "embed"})

KIND_OF_TAG = {
    "a": "a",
    "area": "area",
    "frame": "frame",
    "iframe": "iframe",
    "link": "link",
    "img": "img",
    "input": "img",
    "image": "img",
    "script": "script",
    "source": "media",
    "audio": "media",
    "video": "media",
    "track": "media",
    "embed": "embed",
    "object": "embed",
}

# Elements that point to something only by `src` and `srcset`.
_SOURCE_ONLY = frozenset({"script", "iframe", "frame"})

# The seconds, something that ends them, and the URL, as the HTML standard reads them. White space before the seconds
# must not count as their end, or they would be taken for the URL.
_WHITE = r"[\t\n\f\r ]*+"
_REFRESH = re.compile(
    rf"{_WHITE}[0-9.]++(?=[;,\t\n\f\r ]){_WHITE}[;,]?+{_WHITE}(?:url{_WHITE}={_WHITE})?(?:\"([^\"]*)|'([^']*)|(.*))",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
_NO_ADDRESS = re.compile(r"\s*(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE | re.ASCII).match
_SRCSET_URL = re.compile(r"[\s,]*+(\S++)")

Attributes = dict[str, str | None]


class Links:
    """The links of one page as parallel lists, filled in the order of the document."""

    __slots__ = ("_chars_left", "hrefs", "kinds", "rels", "texts", "too_long")

    def __init__(self, *, with_words: bool = True) -> None:
        self.hrefs: list[str] = []
        self.kinds: list[str] = []
        self.rels: list[str] = []
        self.texts: list[str] = []
        self.too_long = 0
        self._chars_left = LINK_TEXTS_CHARS_MAX if with_words else 0

    def add(self, href: str | None, kind: str, rel: str = "", text: str = "") -> None:
        """Record one link, unless it is missing, too long, inline data or above `LINKS_MAX`."""
        if href is None or len(href) > HREF_CHARS_MAX or href.startswith("data:") or len(self.hrefs) >= LINKS_MAX:
            self._leave_out(href)
            return
        self.hrefs.append(href)
        self.kinds.append(kind)
        self.rels.append(rel)
        self.texts.append(text)

    def add_anchor(self, node: LexborNode) -> None:
        """Record an `a` with its text. Half of all links come this way, so it repeats `add` instead of calling it."""
        attributes = node.attributes
        href = attributes.get("href") or attributes.get("xlink:href")
        if not href or len(href) > HREF_CHARS_MAX or href.startswith("data:") or len(self.hrefs) >= LINKS_MAX:
            if href or "href" not in attributes or len(self.hrefs) >= LINKS_MAX:
                self._leave_out(href)
                return
            href = ""  # the page itself, or its base
        rel = attributes.get("rel")
        self.hrefs.append(href)
        self.kinds.append("a")
        self.rels.append(_short(rel.lower()) if rel else "")
        if self._chars_left > 0:
            text = node.text_lexbor()
            self._chars_left -= len(text)
            self.texts.append(" ".join(text.split()) if len(text) <= LINK_TEXT_CHARS_MAX else words(text))
        else:
            self.texts.append("")

    def _leave_out(self, href: str | None) -> None:
        """Count a link that is too long. What names another scheme, such as scripts and inline data, is not counted."""
        if href and len(href) > HREF_CHARS_MAX and _NO_ADDRESS(href) is None:
            self.too_long += 1

    def add_element(self, kind: str, attributes: Attributes) -> None:
        """Record the links of an element other than `a`."""
        if kind == "link":
            self.add(attributes.get("href") or None, *_relation(attributes))
        elif kind == "area":
            if "href" not in attributes:
                return
            rel = _short((attributes.get("rel") or "").lower())
            self.add(attributes["href"] or "", kind, rel, words(without_marks(attributes.get("alt") or "")))
        else:
            self._add_source(kind, attributes)

    def _add_source(self, kind: str, attributes: Attributes) -> None:
        if not attributes:
            return
        text = attributes.get("alt") or attributes.get("title") or ""
        if text:
            text = words(without_marks(text))
        source = attributes.get("src")
        if source:
            self.add(source, kind, "", text)
        if kind not in _SOURCE_ONLY:
            for name in ("data", "poster", "href", "xlink:href"):
                if attributes.get(name):
                    self.add(attributes[name], "img" if name == "poster" else kind, "", text)
        srcset = attributes.get("srcset")
        if srcset:
            for href in srcset_urls(srcset[:SRCSET_CHARS_MAX]):
                self.add(href, "img", "", text)


def words(text: str) -> str:
    """Text with its white space collapsed, cut to `LINK_TEXT_CHARS_MAX`."""
    if len(text) > LINK_TEXT_CHARS_MAX:
        text = text[: 4 * LINK_TEXT_CHARS_MAX]
    return " ".join(text.split())[:LINK_TEXT_CHARS_MAX]


def _relation(attributes: Attributes) -> tuple[str, str]:
    """The kind and the relation of a `link` element; the language of an alternate is part of the relation."""
    rel = (attributes.get("rel") or "").lower()
    told = _short(rel)
    language = attributes.get("hreflang")
    if language:
        told = f"{told} hreflang={language.strip().lower()[:REL_CHARS_MAX]}"
    if "stylesheet" in rel:
        return "style", told
    if "alternate" in rel and (attributes.get("type") or "").partition(";")[0].strip().lower() in FEED_TYPES:
        return "feed", told
    return ("icon" if "icon" in rel else "link"), told


def _short(rel: str) -> str:
    """A relation, cut if it is long. Whether the link is to be followed must not depend on where the cut is."""
    if len(rel) <= REL_CHARS_MAX:
        return rel
    rel = without_marks(rel)
    return (f"{NOFOLLOW} {rel}" if NOFOLLOW in rel[REL_CHARS_MAX - len(NOFOLLOW) :] else rel)[:REL_CHARS_MAX]


def srcset_urls(srcset: str) -> list[str]:
    """The URLs of a srcset attribute, without their widths and densities."""
    urls = []
    place = 0
    while found := _SRCSET_URL.match(srcset, place):
        url = found[1].rstrip(",")
        urls.append(url)
        # A comma right after the URL ends the candidate; otherwise the next comma does.
        place = found.end() if url != found[1] else srcset.find(",", found.end()) + 1
        if not place:
            break
    return urls


def refresh_url(content: str) -> str:
    """The URL of a meta refresh, empty when it only reloads."""
    found = _REFRESH.match(content[:HREF_CHARS_MAX])
    return next((part.strip() for part in found.groups() if part), "") if found else ""
