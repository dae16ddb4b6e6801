"""Picks the links of a page that the frontier should hear of: those in scope that are followed, do not lead into a trap
and were not told lately.

Links that are not followed are counted by reason, so a report can say why a page was not crawled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from drumlin.frontier import (
    DEPTH,
    LINKS_TOO_LONG,
    NOFOLLOW,
    OUT_OF_SCOPE,
    SOFT_404,
    URL_LENGTH,
    TrapFilter,
    TrapLimits,
)
from drumlin.model import Capture
from drumlin.parse import ASSET_KINDS, FOLLOWED_KINDS, looks_like_sitemap, parse_sitemap, style_hrefs
from drumlin.protocol import NAMED_BY_ROBOTS, SITEMAPS_ELSEWHERE_MAX
from drumlin.reading.pages import HTML_TYPES, LINKS_MANY, Reading
from drumlin.reading.told import ToldLinks, mark_of
from drumlin.urls import Scope, canonical, domain_of, host_of, identity, is_too_long, without_dropped

STYLE_TYPE = "text/css"
# How much deeper than the crawl's depth the assets of a page may be: a stylesheet imports others, and those use images.
ASSET_DEPTH_EXTRA = 5
_ONLY_LINKED = " "
"""Stands before the mark of a URL that is out of scope as a link, but not as an asset. No URL begins with it."""


class Discovered(msgspec.Struct):
    """The links of a page that the frontier should hear of, sitemap hints beside them, and what was refused and why."""

    urls: list[str]
    hints: list[float]
    refused: dict[str, int]


class Discovery:
    """Picks links by a crawl's scope, which may change while it runs. `before_parse` is called with the URL of a page
    before work on it that takes long. `year` is the present one: a calendar that goes on far beyond it is a trap."""

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
        self._traps = TrapFilter(TrapLimits(depth_max=None))  # `_followed_from` knows the depth
        self._told = ToldLinks()
        self._followed = FOLLOWED_KINDS | ASSET_KINDS if reading.assets else FOLLOWED_KINDS
        if not reading.sitemaps:
            self._followed -= {"feed"}

    def discover(self, capture: Capture) -> Discovered:
        """The links of a capture that should be told, and how many were refused for which reason."""
        found = Discovered([], [], {})
        if capture.status >= 300:
            return found
        followed = self._followed_from(capture)
        if capture.nofollow:
            self._leave_out(capture, self._followed, NOFOLLOW, found)
        elif capture.soft_404:
            # Such a site answers every address with a page, and its relative links would lead to ever more addresses.
            self._leave_out(capture, self._followed, SOFT_404, found)
        elif capture.mime in HTML_TYPES:
            self._discover_in_page(capture, followed, found)
            if capture.links_too_long:
                found.refused[URL_LENGTH] = found.refused.get(URL_LENGTH, 0) + capture.links_too_long
            if capture.links_left_out:
                found.refused[LINKS_TOO_LONG] = capture.links_left_out
        elif capture.mime == STYLE_TYPE:
            if followed >= ASSET_KINDS:
                for href in style_hrefs(capture.body):
                    self._offer_href(href, capture, found, anywhere=True)
        elif followed >= FOLLOWED_KINDS:
            self._discover_in_sitemap(capture, found)
        return found

    def _discover_in_page(self, capture: Capture, followed: frozenset[str], found: Discovered) -> None:
        links = capture.links
        if len(links.urls) > LINKS_MANY:
            self._before_parse(capture.url)
        untold = self._told.not_told(links.urls)
        if not untold:
            return
        unfollowed: list[str] = []
        for url, kind, rel in zip(links.urls, links.kinds, links.rels, strict=True):
            if url is None or url not in untold or kind not in followed:
                continue
            if rel and NOFOLLOW in rel:
                unfollowed.append(url)
            else:
                self._offer(url, capture, found, anywhere=kind in ASSET_KINDS)
        for url in unfollowed:
            if not self._told.has(mark_of(url)):
                self._count_left_out(url, NOFOLLOW, found)
        if self._is_last(capture):
            self._leave_out(capture, self._followed - followed, DEPTH, found)

    def _leave_out(self, capture: Capture, kinds: frozenset[str], reason: str, found: Discovered) -> None:
        """Count the links of these kinds that are not followed, each once. Links that were told before do not count,
        since the frontier knows them."""
        links = capture.links
        new = self._told.not_counted(links.urls)
        if not new:
            return
        for url, kind in zip(links.urls, links.kinds, strict=True):
            if url is not None and kind in kinds and url in new:
                self._count_left_out(url, reason, found)

    def _count_left_out(self, url: str, reason: str, found: Discovered) -> None:
        if self._told.leave_out(mark_of(url)):
            found.refused[reason] = found.refused.get(reason, 0) + 1

    def _is_last(self, capture: Capture) -> bool:
        """Whether the links of this page lead beyond the crawl's depth."""
        return self._reading.depth_max is not None and capture.depth >= self._reading.depth_max

    def _followed_from(self, capture: Capture) -> frozenset[str]:
        """The kinds of links that are followed from this page. At the crawl's depth only assets are, that is what the
        last pages show. A page that is out of scope was fetched because another page shows it (as a frame), so its
        links are not followed."""
        if self._reading.assets and capture.depth and capture.mime in HTML_TYPES and not self.in_scope(capture.url):
            return frozenset()
        depth_max = self._reading.depth_max
        if depth_max is None or capture.depth < depth_max:
            return self._followed
        return ASSET_KINDS & self._followed if capture.depth < depth_max + ASSET_DEPTH_EXTRA else frozenset()

    def _discover_in_sitemap(self, capture: Capture, found: Discovered) -> None:
        if not self._reading.sitemaps or not looks_like_sitemap(capture.mime, capture.body):
            return
        self._before_parse(capture.url)
        sitemap = parse_sitemap(capture.body, capture.url)
        # A sitemap that robots.txt names may be on another site, and so may its parts. The pages they list may not.
        elsewhere_left = SITEMAPS_ELSEWHERE_MAX if capture.found_on == NAMED_BY_ROBOTS else 0
        for href in sitemap.sitemaps:
            if self._offer_href(href, capture, found, anywhere=elsewhere_left > 0):
                elsewhere_left -= not self._scope.allows(found.urls[-1])
        for entry in sitemap.urls:
            if self._offer_href(entry.loc, capture, found):
                found.hints.extend([-1.0] * (len(found.urls) - len(found.hints) - 1))
                found.hints.append(-1.0 if entry.priority is None else entry.priority)
        capture.links_bytes = sum(map(len, found.urls))

    def _offer_href(self, href: str, capture: Capture, found: Discovered, *, anywhere: bool = False) -> bool:
        url = canonical(href, capture.url)
        if url is None and is_too_long(href, capture.url):
            found.refused[URL_LENGTH] = found.refused.get(URL_LENGTH, 0) + 1
        return url is not None and self._offer(url, capture, found, anywhere=anywhere)

    def _offer(self, url: str, capture: Capture, found: Discovered, *, anywhere: bool = False) -> bool:
        """Keep one link if it should be told. Most were told lately, and cost only the first look.

        `anywhere` is for what a page shows: it may be out of scope, since the page would look different without it."""
        url = _told_spelling(url, capture)
        known_as = mark_of(url)
        if self._told.has(known_as):
            return False
        within = self._scope.allows(url) or (anywhere and not self._scope.excludes(url))
        # One page may link to a picture that is out of scope, and another may show it.
        mark = known_as if within or anywhere or not self._reading.assets else _ONLY_LINKED + known_as
        if mark is not known_as and self._told.has(mark):
            return False
        self._told.remember(mark)
        reason = self._traps.reject(identity(url), capture.depth + 1, self._year) if within else OUT_OF_SCOPE
        if reason:
            found.refused[reason] = found.refused.get(reason, 0) + 1
            return False
        found.urls.append(url)
        return True

    @property
    def scope_version(self) -> int:
        """How many seeds have joined the scope since the crawl began."""
        return len(self._scope_seeds)

    def widen_scope(self, seeds: list[str], version: int) -> None:
        """Take in what joined the scope: where a seed redirects to is a seed too. Links refused before may be in it.

        `seeds` are all that joined so far and `version` is their number. Answers may overtake each other, so an older
        version changes nothing.
        """
        if version > self.scope_version:
            self._scope_seeds = list(seeds)
            self.follow_scope(self._make_scope)

    def follow_scope(self, make_scope: Callable[[list[str]], Scope]) -> None:
        """Use another scope from now on. What the one before refused may be in it, so every link is told again."""
        self._make_scope = make_scope
        self._scope = make_scope(self._scope_seeds)
        self.tell_again()

    def tell_again(self) -> None:
        """Every link is told when it is next seen, since the frontier may not have heard of it."""
        self._told.forget_all()

    def tell_links_again(self, capture: Capture) -> None:
        """All links of this capture are told when they are next seen."""
        if capture.mime not in HTML_TYPES:
            # The links of style sheets and sitemaps are not kept in the capture, so nobody knows which they were.
            self.tell_again()
            return
        self.tell_urls_again([url for url in capture.links.urls if url is not None])

    def tell_urls_again(self, urls: Sequence[str]) -> None:
        """These links are told again when they are next seen, in the spelling of the page or in that of the
        frontier."""
        marks = list(map(mark_of, [*urls, *map(without_dropped, urls)]))
        if self._reading.assets:
            marks += [_ONLY_LINKED + mark for mark in marks]
        self._told.forget(marks)

    def in_scope(self, url: str) -> bool:
        return self._scope.allows(url)


def _told_spelling(url: str, capture: Capture) -> str:
    """How a link is told. A link to another site loses what says nothing about the page, such as a session: the first
    spelling told is the one fetched, and a session that was made for somebody else may be answered with an error."""
    strange = ("?" in url or ";" in url) and domain_of(host_of(url)) != capture.domain
    return without_dropped(url) if strange else url
