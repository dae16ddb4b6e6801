"""The loop of a crawl. Read this file first.

     seeds ─► canonical URL ─► seen? ─► frontier ─► lease ─► robots ─► DNS ─► fetch
                                 ▲                                            │
                                 │                                            ▼
           links ◄── settle ◄── store (WARC, Parquet) ◄── fingerprint ◄── parse

The left half is the frontier's (`drumlin.coordinator` over `drumlin.engines`), contact with sites is the node's
(`drumlin.node` over `drumlin.fetch`). This file is what happens to a response in between: `capture` makes a record of
it, `read` parses and fingerprints a batch of them, `discover` picks the links worth telling the frontier. Storing and
settling are then a line each in `drumlin.node.agent`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from drumlin.dedupe import digest, sketches
from drumlin.errors import SiteError
from drumlin.fetch.decode import decode_body
from drumlin.fetch.transfer import Transfer
from drumlin.frontier import OUT_OF_SCOPE, SOFT_404, URL_LENGTH, TrapFilter, TrapLimits, soft_404
from drumlin.http.headers import header_fields, header_values, holds_all, location_of
from drumlin.http.mime import extract_mime_type
from drumlin.model import Capture, FailureKind, LinkSet
from drumlin.parse import (
    ASSET_KINDS,
    FOLLOWED_KINDS,
    UTF8,
    ParsedPage,
    Source,
    looks_like_sitemap,
    parse_all,
    parse_sitemap,
    queries_in,
    sniff,
    style_hrefs,
)
from drumlin.protocol import NAMED_BY_ROBOTS, SITEMAPS_ELSEWHERE_MAX, Assignment
from drumlin.robots import directives
from drumlin.store import UNSPECIFIED, record_id_of
from drumlin.urls import LinkResolver, Scope, canonical, domain_of, identities, identity, is_too_long

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
PLAIN_TYPE = "text/plain"
STYLE_TYPE = "text/css"
PARTIAL_CONTENT = 206
LONG_CHARS = 500
"""A shorter href makes no URL that is too long, however much of it is escaped."""
RECENT_URLS_MAX = 100_000
# How far beyond the crawl's depth a page's assets may be: a stylesheet imports others, and those use images.
ASSET_DEPTH_EXTRA = 5
_ONLY_LINKED = " "
"""Before a URL that is out of scope as a link, and would not be as an asset. No URL begins with it."""


class Reading(msgspec.Struct, frozen=True):
    """How pages are read: what of a CrawlConfig this file needs."""

    agent: str
    body_decoded_bytes_max: int
    assets: bool = False
    sitemaps: bool = True
    near_duplicates: bool = True
    depth_max: int | None = None


class Discovered(msgspec.Struct):
    """The links of a page that the frontier should hear of, sitemap hints beside them, and what was refused and why."""

    urls: list[str]
    hints: list[float]
    refused: dict[str, int]


class Pipeline:
    """The stages between fetch and store, with the caches that make them cheap. One per node."""

    def __init__(
        self,
        reading: Reading,
        make_scope: Callable[[list[str]], Scope],
        *,
        year: int,
        before_parse: Callable[[str], None],
    ) -> None:
        self._reading = reading
        self._make_scope = make_scope
        self._scope_seeds: list[str] = []
        self._scope = make_scope([])
        self._year = year
        self._before_parse = before_parse
        self._resolver = LinkResolver()
        self._traps = TrapFilter(TrapLimits(depth_max=None))  # `discover` knows the depth
        self._recent: set[str] = set()
        self._recent_before: set[str] = set()
        self._followed = FOLLOWED_KINDS | ASSET_KINDS if reading.assets else FOLLOWED_KINDS
        if not reading.sitemaps:
            self._followed -= {"feed"}

    def capture(self, transfer: Transfer, task: Assignment, host: str, *, request: bytes, now: float) -> Capture:
        """A record of one response. Its body is still to be decoded (`decode_body`) if it came encoded."""
        headers_raw = transfer.response_headers()
        headers = header_fields(headers_raw)
        body_raw = transfer.body.getvalue()
        whole = transfer.status != PARTIAL_CONTENT or holds_all(headers.get("content-range", ""))
        return Capture(
            url=task.url,
            host=host,
            domain=domain_of(host),
            depth=task.depth,
            found_on=task.found_on,
            redirects=task.redirects,
            fetched=now,
            duration_s=transfer.finished - transfer.started,
            status=transfer.status,
            protocol=transfer.protocol,
            ip=transfer.ip,
            request_headers=request,
            response_headers=headers_raw,
            body_raw=body_raw,
            body=b"" if headers.get("content-encoding") else body_raw,
            headers=headers,
            truncated=transfer.truncated or ("" if whole else UNSPECIFIED),
        )

    def decode_body(self, capture: Capture) -> None:
        """Decode the body of a capture that is about to be read. Raises SiteError when that cannot be. Not done when it
        arrives: a few kilobytes may become as many megabytes, and hundreds of pages can arrive at once."""
        encoding = capture.headers.get("content-encoding", "")
        if encoding and capture.body_raw and not capture.body:
            capture.body, complete = decode_body(capture.body_raw, encoding, self._reading.body_decoded_bytes_max)
            capture.truncated = capture.truncated or ("" if complete else UNSPECIFIED)

    def read(self, captures: Sequence[Capture]) -> None:
        """Parse and fingerprint a batch: fills in each capture's page, links and fingerprints."""
        # Stage by stage, not page by page: each then finds its code and its tables in the CPU's caches.
        for capture in captures:
            capture.digest = digest(capture.body)
        for capture in captures:
            capture.record_id = record_id_of(capture)
            capture.mime = sniff(capture.headers.get("content-type", ""), capture.body)
        pages = [capture for capture in captures if _is_page(capture)]
        parsed = parse_all(list(map(_source, pages)), self._before_parse, agent=self._reading.agent)
        for capture, page in zip(pages, parsed, strict=True):
            self._fill(capture, page)
        if self._reading.near_duplicates:
            texts = [capture.text if capture.status < 300 else b"" for capture in captures]
            for capture, sketch in zip(captures, sketches(texts), strict=True):
                capture.sketch = sketch

    def _fill(self, capture: Capture, page: ParsedPage) -> None:
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
            asked = directives(page.robots + tags, self._reading.agent)
            capture.noindex, capture.nofollow = asked.noindex, asked.nofollow
        base = capture.url
        if page.base_href:
            base = canonical(page.base_href, capture.url) or base
        urls = self._resolver.resolve(base, queries_in(page.charset, page.hrefs))
        if page.canonical_href:
            (preferred,) = self._resolver.resolve(base, queries_in(page.charset, [page.canonical_href]))
            capture.canonical = preferred or ""
        capture.links = LinkSet(urls, page.kinds, page.rels, page.texts)
        capture.links_too_long = page.too_long
        if None in urls:
            long = (href for href, url in zip(page.hrefs, urls, strict=True) if url is None and len(href) > LONG_CHARS)
            capture.links_too_long += sum(is_too_long(href, base) for href in long)

    def discover(self, capture: Capture) -> Discovered:
        """The links of a capture that are in scope, no trap, and not told to the frontier lately."""
        found = Discovered([], [], {})
        if capture.nofollow or capture.status >= 300:
            return found
        depth = capture.depth + 1
        followed = self._followed_from(capture)
        if capture.soft_404:
            # Every address of such a site gives a page, and where its links are relative each gives further addresses.
            found.refused = {SOFT_404: len(capture.links.urls)} if capture.links.urls else {}
        elif capture.mime in HTML_TYPES:
            self._discover_in_page(capture.links, followed, depth, found)
            if capture.links_too_long:
                found.refused[URL_LENGTH] = found.refused.get(URL_LENGTH, 0) + capture.links_too_long
        elif capture.mime == STYLE_TYPE:
            if followed >= ASSET_KINDS:
                for href in style_hrefs(capture.body):
                    self._offer_href(href, capture, found, anywhere=True)
        elif followed >= FOLLOWED_KINDS:
            self._discover_in_sitemap(capture, found)
        return found

    def _discover_in_page(self, links: LinkSet, followed: frozenset[str], depth: int, found: Discovered) -> None:
        # Nearly all links of a page were told before: a set operation drops them without a look at each.
        untold = set(links.urls).difference(self._recent, self._recent_before)
        if not untold:
            return
        for url, kind, rel in zip(links.urls, links.kinds, links.rels, strict=True):
            if url is not None and url in untold and kind in followed and not (rel and "nofollow" in rel):
                self._offer(url, depth, found, anywhere=kind in ASSET_KINDS)

    def _followed_from(self, capture: Capture) -> frozenset[str]:
        """Which kinds of links lead on from here. Beyond the crawl's depth there are no pages, only what its last pages
        show; and a page that is out of scope is there because another one shows it, not for its own sake."""
        depth, depth_max = capture.depth + 1, self._reading.depth_max
        if self._reading.assets and capture.depth and capture.mime in HTML_TYPES and not self.in_scope(capture.url):
            return frozenset()
        if depth_max is None or depth <= depth_max:
            return self._followed
        return ASSET_KINDS & self._followed if depth <= depth_max + ASSET_DEPTH_EXTRA else frozenset()

    @property
    def scope_version(self) -> int:
        """How many seeds have joined the scope since the crawl began."""
        return len(self._scope_seeds)

    def widen_scope(self, seeds: list[str], version: int) -> None:
        """Where a seed redirects to is a seed too; links refused before that are worth another look.

        `seeds` are all that joined so far, `version` how many; answers may cross, so we may know more already.
        """
        if version > self.scope_version:
            self._scope_seeds = list(seeds)
            self.follow_scope(self._make_scope)

    def follow_scope(self, make_scope: Callable[[list[str]], Scope]) -> None:
        """Go by another scope from now on: what was refused by the one before may be in this one."""
        self._make_scope = make_scope
        self._scope = make_scope(self._scope_seeds)
        self.tell_again()

    def tell_again(self) -> None:
        """Every link is told when it is next seen, since the frontier may not have heard of it."""
        self._recent.clear()
        self._recent_before.clear()

    def tell_links_again(self, capture: Capture) -> None:
        """All links of this capture are told when they are next seen."""
        if capture.mime not in HTML_TYPES:
            # Those of style sheets and sitemaps are found while they are told.
            self.tell_again()
            return
        self.tell_urls_again([url for url in capture.links.urls if url is not None])

    def tell_urls_again(self, urls: Sequence[str]) -> None:
        """These links are told when they are next seen."""
        for recent in (self._recent, self._recent_before):
            recent.difference_update(urls)
            if self._reading.assets:
                recent.difference_update([_ONLY_LINKED + url for url in urls])

    def in_scope(self, url: str) -> bool:
        return self._scope.allows(url)

    def _discover_in_sitemap(self, capture: Capture, found: Discovered) -> None:
        if not self._reading.sitemaps or not looks_like_sitemap(capture.mime, capture.body):
            return
        self._before_parse(capture.url)
        sitemap = parse_sitemap(capture.body, capture.url)
        # What robots.txt names may be anywhere, and so may the parts of it. What they list is in scope or refused.
        elsewhere_left = SITEMAPS_ELSEWHERE_MAX if capture.found_on == NAMED_BY_ROBOTS else 0
        for href in sitemap.sitemaps:
            if self._offer_href(href, capture, found, anywhere=elsewhere_left > 0):
                elsewhere_left -= not self._scope.allows(found.urls[-1])
        for entry in sitemap.urls:
            if self._offer_href(entry.loc, capture, found):
                found.hints.extend([-1.0] * (len(found.urls) - len(found.hints) - 1))
                found.hints.append(-1.0 if entry.priority is None else entry.priority)

    def _offer_href(self, href: str, capture: Capture, found: Discovered, *, anywhere: bool = False) -> bool:
        url = canonical(href, capture.url)
        if url is None and is_too_long(href, capture.url):
            found.refused[URL_LENGTH] = found.refused.get(URL_LENGTH, 0) + 1
        return url is not None and self._offer(url, capture.depth + 1, found, anywhere=anywhere)

    def _offer(self, url: str, depth: int, found: Discovered, *, anywhere: bool = False) -> bool:
        """Keep one link if it should be told; most have been, lately, and cost only this look.

        What a page shows may be anywhere, so that it looks as it did."""
        if self._is_recent(url):
            return False
        within = self._scope.allows(url) or (anywhere and not self._scope.excludes(url))
        # A page may link to a picture and another show it.
        mark = url if within or anywhere or not self._reading.assets else _ONLY_LINKED + url
        if mark is not url and self._is_recent(mark):
            return False
        self._remember(mark)
        reason = self._traps.reject(identity(url), depth, self._year) if within else OUT_OF_SCOPE
        if reason:
            found.refused[reason] = found.refused.get(reason, 0) + 1
            return False
        found.urls.append(url)
        return True

    def _is_recent(self, url: str) -> bool:
        return url in self._recent or url in self._recent_before

    def _remember(self, url: str) -> None:
        self._recent.add(url)
        if len(self._recent) >= RECENT_URLS_MAX:
            self._recent_before = self._recent
            self._recent = set()


def _is_page(capture: Capture) -> bool:
    """Whether there is something to parse: HTML or plain text, and not the body of a redirect."""
    return (capture.mime in HTML_TYPES or capture.mime == PLAIN_TYPE) and not 300 <= capture.status < 400


def _source(capture: Capture) -> Source:
    """The body as what it was found to be, with the charset that its header names, or that it was sent to us in."""
    decoded = capture.told is not None and capture.told.decoded
    charset = UTF8 if decoded else extract_mime_type(capture.headers.get("content-type", "")).charset
    content_type = f"{capture.mime}; charset={charset}" if charset else capture.mime
    return Source(capture.body, content_type, capture.url, capture.headers.get("content-language", ""))


def redirect_target(capture: Capture, redirects_max: int) -> str:
    """Where a 3xx response leads. Raises SiteError for no target, a loop, or a chain that is too long."""
    location = location_of(capture.response_headers)
    target = canonical(location, capture.url) if location else None
    if target is None:
        said = capture.headers.get("location", "")
        raise SiteError(FailureKind.BAD_REDIRECT, f"status {capture.status} redirects to {said[:200]!r}")
    if identity(target) in identities((capture.url, *capture.redirects)):
        raise SiteError(FailureKind.REDIRECT_LOOP, f"redirects back to {target}")
    if len(capture.redirects) >= redirects_max:
        raise SiteError(FailureKind.REDIRECT_LIMIT, f"more than {redirects_max} redirects")
    return target
