"""What results have found and the frontier should hear of: links, where redirects lead, sitemaps. What may be followed.

Nodes of drumlin send links that are canonical and in scope already. To look at each again would cost as much as all
else that a coordinator does, so that a few of each batch are looked at, chosen by chance: who sends many others is soon
found out.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from itertools import accumulate

from drumlin.config import CrawlConfig
from drumlin.coordinator.breathing import Breathe
from drumlin.coordinator.settling import Batch, Kept, Prospects, by_host, canonical_links
from drumlin.coordinator.steering import scope_of
from drumlin.engines.base import Engine
from drumlin.frontier import priority_of
from drumlin.model import NewURLs, Verdict
from drumlin.protocol import NAMED_BY_ROBOTS, SITEMAPS_ELSEWHERE_MAX, HostReport
from drumlin.urls import Scope, canonical, host_of

SCOPE_SEEDS_TABLE = "scope_seeds"
LINKS_SAMPLED = 8
"""Links looked at in each batch. Where a tenth of them are foreign, every other batch is found out."""
LINKS_AT_ONCE = 5_000
HREFS_AT_ONCE = 1_000
"""Links sorted between two breaths; those that must be made canonical first take longer."""
HOSTS_NAMING_MAX = 10_000
FORMER_SCOPES_MAX = 8
"""Scopes from before somebody narrowed it: nodes that have not heard of it yet send links by those."""


class Findings:
    """The scope of a crawl as this coordinator knows it, and what it makes of results."""

    def __init__(self, engine: Engine, config: CrawlConfig, seeds: list[str], chance: random.Random) -> None:
        self._engine = engine
        self._config = config
        self._seeds = seeds
        self._chance = chance
        self.scope_seeds: list[str] = []
        """Seeds that joined the scope on the way, in the order in which all coordinators know them."""
        self._scope = self._make_scope()
        self._former: deque[Scope] = deque(maxlen=FORMER_SCOPES_MAX)
        self._elsewhere: OrderedDict[str, set[str]] = OrderedDict()
        """Sitemaps out of scope that hosts have named here, of hosts that did so lately."""

    # The scope

    def _make_scope(self) -> Scope:
        config = self._config
        return Scope(config.scope, [*self._seeds, *self.scope_seeds], config.include, config.exclude)

    @property
    def scope(self) -> Scope:
        return self._scope

    def allows(self, url: str) -> bool:
        return self._scope.allows(url)

    def follow(self, config: CrawlConfig) -> None:
        """Somebody has changed the crawl's settings."""
        changed = scope_of(config) != scope_of(self._config)
        self._config = config
        if changed:
            self._former.append(self._scope)
            self._scope = self._make_scope()

    async def refresh(self) -> None:
        """Learn which seeds have joined the scope, here or at another coordinator."""
        seeds = list(await self._engine.get_entries(SCOPE_SEEDS_TABLE))
        if len(seeds) != len(self.scope_seeds):
            self.scope_seeds = seeds
            self._scope = self._make_scope()

    async def widen(self, urls: list[str]) -> None:
        """Have these URLs join the scope as seeds, and what is around them."""
        await self._engine.put_entries(SCOPE_SEEDS_TABLE, dict.fromkeys(urls, b""))
        await self.refresh()

    # Whether links are what their node says

    async def are_honest(self, kept: list[Kept]) -> bool:
        """Whether none of a few links, chosen by chance, is foreign. This coordinator may be the one that does not know
        yet what joined the scope, so that it learns that before it says no."""
        strange = [(of, url) for of, url in self._sample(kept) if not self._is_own(url)]
        if not strange:
            return True
        await self.refresh()
        return all([self._is_own(url) or await self._is_part_of_sitemap(of, url) for of, url in strange])

    async def _is_part_of_sitemap(self, kept: Kept, url: str) -> bool:
        """Whether a link may be anywhere because a sitemap that robots.txt names has it."""
        if not self._config.sitemaps or canonical(url) != url or self._scope.excludes(url):
            return False
        if kept.key.depth or not await self._is_sitemap(kept):
            return False
        return sum(not self._is_own(link) for link in kept.result.links) <= SITEMAPS_ELSEWHERE_MAX

    def _sample(self, kept: list[Kept]) -> list[tuple[Kept, str]]:
        ends = list(accumulate(len(one.result.links) for one in kept))
        total = ends[-1] if ends else 0
        places = (
            range(total) if total <= LINKS_SAMPLED else (self._chance.randrange(total) for _ in range(LINKS_SAMPLED))
        )
        return [_link_at(kept, ends, place) for place in places]

    def _is_own(self, url: str) -> bool:
        """Canonical and in scope, or in a scope that its node had reason to go by."""
        if canonical(url) != url:
            return False
        scopes = (self._scope, *self._former)
        if self._config.assets:
            # What a page shows may be anywhere, and whether it is shown only the page can tell.
            return not all(scope.excludes(url) for scope in scopes)
        return any(scope.allows(url) for scope in scopes)

    # What was found

    async def of(self, batch: Batch, prospects: Prospects, *, trusted: bool, breathe: Breathe) -> list[NewURLs]:
        """The links of those results that will count, one level deeper than their pages, where redirects lead, and the
        sitemaps of hosts whose live leases were shown."""
        found: list[NewURLs] = []
        looked_at, at_once = 0, LINKS_AT_ONCE if trusted else HREFS_AT_ONCE
        for kept, verdict in zip(batch.kept, prospects.verdicts, strict=True):
            if verdict is not Verdict.SETTLED:
                continue
            links = kept.result.links
            for start in range(0, len(links), at_once):
                found += self._links(kept, slice(start, start + at_once), trusted=trusted)
                looked_at += min(at_once, len(links) - start)
                if looked_at >= at_once:
                    looked_at = 0
                    await breathe()
            if kept.result.redirect_to:
                found += await self._redirected(kept)
        for report in prospects.live:
            urls = list(self._sitemaps(report))
            found += [NewURLs(host_of(url), [url], priority_of(0), 0, NAMED_BY_ROBOTS) for url in urls]
        return found

    def _sitemaps(self, report: HostReport) -> Iterator[str]:
        """Sitemaps that the host's robots.txt names: they may be anywhere, and what they list is in scope or refused.
        In a crawl of single pages they could list nothing, so that nobody else is asked for them."""
        anywhere = self._scope.mode != "page"
        for href in report.sitemaps:
            url = canonical(href)
            if not url or self._scope.excludes(url):
                continue
            own = host_of(url) == report.host or self._scope.allows(url)
            if own or (anywhere and self._may_name_elsewhere(report.host, url)):
                yield url

    def _may_name_elsewhere(self, host: str, url: str) -> bool:
        """Whether a host may name this sitemap, which is out of scope; it may name only so many in all."""
        named = self._elsewhere.setdefault(host, set())
        self._elsewhere.move_to_end(host)
        if len(self._elsewhere) > HOSTS_NAMING_MAX:
            self._elsewhere.popitem(last=False)
        if url not in named and len(named) >= SITEMAPS_ELSEWHERE_MAX:
            return False
        named.add(url)
        return True

    def _links(self, kept: Kept, which: slice, *, trusted: bool) -> list[NewURLs]:
        result, depth = kept.result, kept.key.depth + 1
        links = result.links[which]
        if not trusted:
            links = canonical_links(links, result.url, self._scope)
        # The assets of the last pages are deeper than any page may be.
        bound = self._config.depth is not None and not (trusted and self._config.assets)
        if not links or (bound and self._config.depth is not None and depth > self._config.depth):
            return []
        plain, hints, source = priority_of(depth), result.link_hints[which], result.url
        if not hints:
            # Most links lead to their own host.
            origin = source[: source.index("/", len("https://")) + 1]
            own = [url for url in links if url.startswith(origin)]
            found = [NewURLs(kept.host, own, plain, depth, source)] if own else []
            if len(own) < len(links):
                others = by_host([url for url in links if not url.startswith(origin)])
                found += [NewURLs(host, urls, plain, depth, source) for host, urls in others.items()]
            return found
        hinted: dict[int, list[str]] = defaultdict(list)
        for place, url in enumerate(links):
            hint = hints[place] if place < len(hints) else -1.0
            hinted[plain if not 0 <= hint <= 1 else priority_of(depth, sitemap_hint=hint)].append(url)
        return [
            NewURLs(host, urls, priority, depth, source)
            for priority, alike in hinted.items()
            for host, urls in by_host(alike).items()
        ]

    async def _redirected(self, kept: Kept) -> list[NewURLs]:
        """Where a redirect leads, as deep as the page that it stands for. Where a sitemap leads is a sitemap too, so
        that the site's own word does not pass for a seed one redirect later."""
        source, depth, target = kept.result.url, kept.key.depth, canonical(kept.result.redirect_to)
        of_sitemap = depth == 0 and await self._is_sitemap(kept)
        if not target:
            return []
        # A sitemap may be anywhere, but no other host may be sent for by it; where it leads joins no scope.
        may_lead = of_sitemap and host_of(target) == kept.host and not self._scope.excludes(target)
        if not may_lead and not await self._may_follow(source, target, depth, is_seed=depth == 0 and not of_sitemap):
            return []
        chain, found_on = (*kept.result.redirect_chain, source), NAMED_BY_ROBOTS if of_sitemap else source
        return [NewURLs(host_of(target), [target], priority_of(depth), depth, found_on, chain)]

    async def _is_sitemap(self, kept: Kept) -> bool:
        """Whether a URL without depth is not a seed, but what a site's robots.txt names."""
        story = await self._engine.story(self._engine.shard_of(kept.host), kept.result.url)
        return story is not None and story.task is not None and story.task.found_on == NAMED_BY_ROBOTS

    async def _may_follow(self, source: str, target: str, depth: int, *, is_seed: bool) -> bool:
        """A redirect stays in scope, except that where a seed leads is a seed too: the site has moved, say to www. What
        was out of scope from the start is something that a page shows, and may be anywhere. A site that could widen the
        scope by any other redirect could send the crawl wherever it likes."""
        if self._scope.allows(target):
            return True
        if self._scope.excludes(target):
            return False
        if self._config.assets and depth > 0 and not self._scope.allows(source):
            return True
        if is_seed and self._config.scope != "page":
            await self.widen([target])
        return is_seed


def _link_at(kept: list[Kept], ends: list[int], place: int) -> tuple[Kept, str]:
    """The result and link number `place` of all results together; `ends` are how many there are up to each."""
    holder = bisect_right(ends, place)
    return kept[holder], kept[holder].result.links[place - ends[holder]]
