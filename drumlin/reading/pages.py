"""Between a capture and the parser: makes the parser's source from a capture, and puts what the parser found into the
capture, with all links resolved."""

from __future__ import annotations

import msgspec

from drumlin.config import CrawlConfig
from drumlin.frontier import soft_404
from drumlin.http.headers import as_href, header_values
from drumlin.http.mime import extract_mime_type
from drumlin.model import Capture, LinkSet
from drumlin.parse import UTF8, ParsedPage, Source, queries_in, refresh_url
from drumlin.robots import directives
from drumlin.urls import LinkResolver, canonical, is_too_long

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
PLAIN_TYPE = "text/plain"
LINKS_MANY = 1_000
"""Resolving more links than this takes so long that the URL of the page is noted first, in case the process dies of
it."""
LONG_CHARS = 500
"""A shorter href never becomes a URL that is too long, however much of it is escaped."""


class Reading(msgspec.Struct, frozen=True):
    """How pages are read: the settings of a crawl (`CrawlConfig`) that matter here."""

    agent: str
    body_decoded_bytes_max: int
    assets: bool = False
    sitemaps: bool = True
    near_duplicates: bool = True
    depth_max: int | None = None

    @classmethod
    def of(cls, config: CrawlConfig) -> Reading:
        return cls(
            agent=config.product_token,
            body_decoded_bytes_max=config.body_decoded_bytes_max,
            assets=config.assets,
            sitemaps=config.sitemaps,
            near_duplicates=config.near_duplicates,
            depth_max=config.depth,
        )


class PageReader:
    """Fills in captures. Caches the links that it resolved lately: most links of a site are on many of its pages."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._resolver = LinkResolver()

    def fill(self, capture: Capture, page: ParsedPage) -> None:
        """Put into a capture what its page says, with links resolved."""
        headers = capture.headers
        capture.charset = page.charset
        capture.title = page.title
        capture.description = page.description
        capture.languages = page.languages
        capture.text = page.text
        capture.soft_404 = soft_404(page.title, page.text, capture.status)
        tags = header_values(capture.response_headers, "x-robots-tag") if "x-robots-tag" in headers else []
        if tags or page.robots:
            asked = directives(page.robots + tags, self._agent)
            capture.noindex, capture.nofollow = asked.noindex, asked.nofollow
        base = capture.url
        if page.base_href:
            base = canonical(page.base_href, capture.url) or base
        urls = self._resolve(base, capture, page)
        if len(urls) < len(page.hrefs):
            capture.links_left_out = len(page.hrefs) - len(urls)
            for parallel in (page.hrefs, page.kinds, page.rels, page.texts):
                del parallel[len(urls) :]
        if "refresh" in headers:
            _add_refresh(capture, page, urls)
        capture.links = LinkSet(urls, page.kinds, page.rels, page.texts)
        # Only the bytes that resolving adds: what the page writes is in its body, which is counted already.
        capture.links_bytes = len(urls) * len(base)
        capture.links_too_long = page.too_long
        if None in urls:
            long = (href for href, url in zip(page.hrefs, urls, strict=True) if url is None and len(href) > LONG_CHARS)
            capture.links_too_long += sum(is_too_long(href, base) for href in long)

    def _resolve(self, base: str, capture: Capture, page: ParsedPage) -> list[str | None]:
        """The URLs of a page's links, as many as fit. Also sets `capture.canonical`, the URL that the page calls its
        own. It is resolved as the first of all, so it is never among those that do not fit."""
        if not page.canonical_href:
            return self._resolver.resolve(base, queries_in(page.charset, page.hrefs))
        own, *urls = self._resolver.resolve(base, queries_in(page.charset, [page.canonical_href, *page.hrefs]))
        capture.canonical = own or ""
        return urls


def is_page(capture: Capture) -> bool:
    """Whether there is something to parse: HTML or plain text, and not the body of a redirect."""
    return (capture.mime in HTML_TYPES or capture.mime == PLAIN_TYPE) and not 300 <= capture.status < 400


def _add_refresh(capture: Capture, page: ParsedPage, urls: list[str | None]) -> None:
    """Add the target of a `Refresh` header as a link. It is relative to the page's own URL, as in browsers: the header
    comes before any base element."""
    for said in header_values(capture.response_headers, "refresh")[:1]:
        href = as_href(refresh_url(said))
        if href:
            urls.append(canonical(href, capture.url))
            page.hrefs.append(href)
            page.kinds.append("refresh")
            page.rels.append("")
            page.texts.append("")


def source_of(capture: Capture) -> Source:
    """The source for the parser: the body with the type that was sniffed and the charset that its header names. A body
    that a worker has decoded already is UTF-8."""
    decoded = capture.told is not None and capture.told.decoded
    charset = UTF8 if decoded else extract_mime_type(capture.headers.get("content-type", "")).charset
    content_type = f"{capture.mime}; charset={charset}" if charset else capture.mime
    return Source(capture.body, content_type, capture.url, capture.headers.get("content-language", ""))
