"""What results bring for the frontier: links, redirect targets and sitemaps; and which of them may be followed.

Nodes of drumlin send links that are canonical and in scope already. Checking each again would cost as much as all other
work of a coordinator. So one look at all links of a batch together finds spellings that do harm, and only a few links
of each batch, chosen at random, are checked in full: a node that sends many foreign ones is soon found out.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from drumlin.config import CrawlConfig
from drumlin.coordinator.breathing import Breathe
from drumlin.coordinator.steering import scope_of
from drumlin.coordinator.taking.settling import Kept, Prospects, ResultBatch, canonical_links
from drumlin.engines.base import Engine
from drumlin.frontier import OUT_OF_SCOPE, priority_of
from drumlin.lifecycle.removal.tombstones import Tombstones
from drumlin.model import NewURLs, Task, Verdict
from drumlin.protocol import NAMED_BY_ROBOTS, SITEMAPS_ELSEWHERE_MAX, Result
from drumlin.urls import Scope, are_well_spelled, by_host, canonical, host_of, origin_of

SCOPE_SEEDS_TABLE = "scope_seeds"
LINKS_SAMPLED = 8
LINKS_SAMPLED_RESULTS = 100
LINKS_SAMPLED_MAX = 40
"""How many links of each hundred results are checked, and of a batch at most. If a tenth of the links are foreign, a
batch of a hundred results is found out every other time."""
LINKS_AT_ONCE = 5_000
HREFS_AT_ONCE = 1_000
"""How many links are processed between two breaths; those that must be made canonical first take longer."""
HOSTS_NAMING_MAX = 10_000
FORMER_SCOPES_MAX = 8
"""How many earlier scopes are remembered: nodes that have not heard of a change yet still send links by those."""


class LinksApart(NamedTuple):
    """The links of a page to its own origin, which are most of them, and the others by their origin."""

    own: list[str]
    others: dict[str, list[str]]


class Findings:
    """The scope of a crawl as this coordinator knows it, and which URLs of results it lets through."""

    def __init__(self, engine: Engine, config: CrawlConfig, seeds: list[str], chance: random.Random) -> None:
        self._engine = engine
        self._config = config
        self.seeds = seeds
        self._chance = chance
        self.removed = Tombstones()
        """What was removed on request, and must not come back."""
        self.scope_seeds: list[str] = []
        """Seeds that joined the scope during the crawl, in the same order at all coordinators."""
        self._scope = self._make_scope()
        self._former: deque[Scope] = deque(maxlen=FORMER_SCOPES_MAX)
        self._elsewhere: OrderedDict[str, set[str]] = OrderedDict()
        """Out-of-scope sitemaps by the host that named them, for the hosts that did so most recently."""

    # The scope

    def _make_scope(self) -> Scope:
        config = self._config
        return Scope(config.scope, [*self.seeds, *self.scope_seeds], config.include, config.exclude)

    @property
    def scope(self) -> Scope:
        return self._scope

    def allows(self, url: str) -> bool:
        return self._scope.allows(url)

    def follow(self, config: CrawlConfig) -> None:
        """Follow changed settings of the crawl."""
        changed = scope_of(config) != scope_of(self._config)
        self._config = config
        if changed:
            self._former.append(self._scope)
            self._scope = self._make_scope()

    async def open(self) -> None:
        """Read what the engine knows. What was removed is read only here: nothing is removed while a coordinator
        runs."""
        self.removed = await Tombstones.read(self._engine)
        if self.removed:
            self.seeds = self.removed.without(self.seeds)
            self._scope = self._make_scope()
        await self.refresh()

    def allowed(self, offered: Sequence[NewURLs]) -> Sequence[NewURLs]:
        """What may be offered to the frontier: all but what was removed on request."""
        return self.removed.refuse(offered) if self.removed else offered

    async def refresh(self) -> None:
        """Learn which seeds have joined the scope through any coordinator."""
        seeds = list(await self._engine.get_entries(SCOPE_SEEDS_TABLE))
        if len(seeds) != len(self.scope_seeds):
            self.scope_seeds = seeds
            self._scope = self._make_scope()

    async def widen(self, urls: list[str]) -> None:
        """Let these URLs, and the pages around them, join the scope as seeds do."""
        await self._engine.put_entries(SCOPE_SEEDS_TABLE, dict.fromkeys(urls, b""))
        await self.refresh()

    # Checking what nodes claim about links

    async def are_honest(self, kept: list[Kept], apart: list[LinksApart]) -> bool:
        """Whether all links are well spelled, and none of a few, chosen at random, is foreign. Seeds may have joined
        the scope that this coordinator does not know yet, so it reads them again before it calls a link foreign."""
        every = [link for one in kept for link in one.result.links]
        if not are_well_spelled(every, {origin for one in apart for origin in one.others}):
            return False
        strange = [(of, url) for of, url in self._sample(kept) if not self._is_own(url)]
        if not strange:
            return True
        await self.refresh()
        for of, url in strange:
            if not self._is_own(url) and not await self._is_part_of_sitemap(of, url):
                return False
        return True

    async def _is_part_of_sitemap(self, kept: Kept, url: str) -> bool:
        """Whether a link may be out of scope because it comes from a sitemap that a robots.txt names."""
        if not self._config.sitemaps or canonical(url) != url or self._scope.excludes(url):
            return False
        if kept.key.depth or not _is_sitemap(await self._task(kept)):
            return False
        return sum(not self._is_own(link) for link in kept.result.links) <= SITEMAPS_ELSEWHERE_MAX

    def _sample(self, kept: list[Kept]) -> list[tuple[Kept, str]]:
        ends = list(accumulate(len(one.result.links) for one in kept))
        total = ends[-1] if ends else 0
        wanted = min(LINKS_SAMPLED_MAX, LINKS_SAMPLED * math.ceil(len(kept) / LINKS_SAMPLED_RESULTS))
        places = range(total) if total <= wanted else (self._chance.randrange(total) for _ in range(wanted))
        return [_link_at(kept, ends, place) for place in places]

    def _is_own(self, url: str) -> bool:
        """Whether a link is canonical and in scope, now or by an earlier scope that its node may still follow."""
        if canonical(url) != url:
            return False
        if self.removed.covers(url):
            # Its seeds are gone, and with them its scope. Results from before still have links there; they are refused
            # when they are offered, and the results count.
            return True
        scopes = (self._scope, *self._former)
        if self._config.assets:
            # Images, scripts and other assets of a page may be on any host, and we cannot see which links are assets.
            return not all(scope.excludes(url) for scope in scopes)
        return any(scope.allows(url) for scope in scopes)

    # What was found

    async def of(
        self, batch: ResultBatch, prospects: Prospects, apart: list[LinksApart] | None, breathe: Breathe
    ) -> list[NewURLs]:
        """The URLs to offer to the frontier: links of the results that will count, one level deeper than their pages,
        redirect targets, and the sitemaps of hosts that were reported under a live lease. `apart` has the links of all
        results if the node's word is taken that they are canonical and in scope."""
        found: list[NewURLs] = []
        trusted = apart is not None
        looked_at, at_once = 0, LINKS_AT_ONCE if trusted else HREFS_AT_ONCE
        for place, (kept, verdict) in enumerate(zip(batch.kept, prospects.verdicts, strict=True)):
            if verdict is not Verdict.SETTLED:
                continue
            if apart is not None and not kept.result.link_hints:
                found += self._offered(kept, apart[place], trusted=True)
                looked_at += len(kept.result.links)
            else:
                for links, hints in _cut(kept.result, at_once):
                    found += self._links(kept, links, hints, trusted=trusted)
                    looked_at += len(links)
                    if looked_at >= at_once:
                        looked_at = 0
                        await breathe()
            if looked_at >= at_once:
                looked_at = 0
                await breathe()
            if kept.result.redirect_to:
                found += await self._redirected(kept)
        for report in prospects.live:
            found += self.sitemaps(report.host, report.sitemaps)
        return found

    def sitemaps(self, host: str, hrefs: Iterable[str]) -> list[NewURLs]:
        """Those sitemaps that the robots.txt of `host` names and that may be followed. They may be on any host, because
        only URLs in scope are taken from them. In a crawl of single pages nothing would be, so no other host is asked
        for one."""
        urls = [url for href in hrefs if (url := canonical(href)) and self._may_name(host, url)]
        return [NewURLs(host_of(url), [url], priority_of(0), 0, NAMED_BY_ROBOTS) for url in urls]

    def _may_name(self, host: str, url: str) -> bool:
        if self._scope.excludes(url):
            return False
        if host_of(url) == host or self._scope.allows(url):
            return True
        return self._scope.mode != "page" and self._may_name_elsewhere(host, url)

    def _may_name_elsewhere(self, host: str, url: str) -> bool:
        """Whether a host may name this out-of-scope sitemap: it may name `SITEMAPS_ELSEWHERE_MAX` in all."""
        named = self._elsewhere.setdefault(host, set())
        self._elsewhere.move_to_end(host)
        if len(self._elsewhere) > HOSTS_NAMING_MAX:
            self._elsewhere.popitem(last=False)
        if url not in named and len(named) >= SITEMAPS_ELSEWHERE_MAX:
            return False
        named.add(url)
        return True

    def _links(self, kept: Kept, links: list[str], hints: list[float], *, trusted: bool) -> list[NewURLs]:
        source, depth = kept.result.page, kept.key.depth + 1
        if not trusted:
            links = canonical_links(links, source, self._scope)
        if not hints:
            return self._offered(kept, _apart(links, kept.result.url), trusted=trusted)
        if self._too_deep(depth, trusted=trusted):
            return []
        plain = priority_of(depth)
        hinted: dict[int, list[str]] = defaultdict(list)
        for place, url in enumerate(links):
            hint = hints[place] if place < len(hints) else -1.0
            hinted[plain if not 0 <= hint <= 1 else priority_of(depth, sitemap_hint=hint)].append(url)
        return [
            NewURLs(host, urls, priority, depth, source)
            for priority, alike in hinted.items()
            for host, urls in by_host(alike).items()
        ]

    def _offered(self, kept: Kept, links: LinksApart, *, trusted: bool) -> list[NewURLs]:
        source, depth = kept.result.page, kept.key.depth + 1
        if self._too_deep(depth, trusted=trusted):
            return []
        priority = priority_of(depth)
        found = [NewURLs(kept.host, links.own, priority, depth, source)] if links.own else []
        for origin, urls in links.others.items():
            found.append(NewURLs(host_of(origin), urls, priority, depth, source))
        return found

    def _too_deep(self, depth: int, *, trusted: bool) -> bool:
        """Whether links of this depth are not followed. Assets of the deepest pages are one level deeper than the
        limit; only nodes that are trusted to know assets may send those."""
        limit = self._config.depth
        return limit is not None and depth > limit and not (trusted and self._config.assets)

    async def _redirected(self, kept: Kept) -> list[NewURLs]:
        """The target of a redirect, at the depth of the page that redirects. The target of a sitemap counts as a
        sitemap too. Otherwise a URL that only a site has named would be treated as a seed after one redirect, and could
        widen the scope."""
        source, depth, target = kept.result.page, kept.key.depth, canonical(kept.result.redirect_to)
        if not target:
            return []
        task = await self._task(kept)
        of_sitemap = depth == 0 and _is_sitemap(task)
        # A sitemap may redirect out of scope on its own host, but not to another one, and its target joins no scope.
        may_lead = of_sitemap and host_of(target) == kept.host and not self._scope.excludes(target)
        if not may_lead and not await self._may_follow(source, target, depth, is_seed=depth == 0 and not of_sitemap):
            # It is counted when the result is settled, together with the links that the node left out.
            kept.result.traps[OUT_OF_SCOPE] = kept.result.traps.get(OUT_OF_SCOPE, 0) + 1
            return []
        found_on = NAMED_BY_ROBOTS if of_sitemap else source
        return [NewURLs(host_of(target), [target], priority_of(depth), depth, found_on, self._chain(kept, task))]

    def _chain(self, kept: Kept, task: Task | None) -> tuple[str, ...]:
        """The URLs that led to the target of a redirect, the latest of them if there are more than the crawl permits.
        They come from the frontier and not from the node: other nodes believe them."""
        before = task.redirects if task is not None else ()
        result = kept.result
        chain = (*before, result.url, result.page_url) if result.page_url else (*before, result.url)
        return chain[-max(1, self._config.redirects_max) :]

    async def _task(self, kept: Kept) -> Task | None:
        """A URL as the frontier keeps it; None if it is settled."""
        story = await self._engine.story(self._engine.shard_of(kept.host), kept.result.url)
        return story.task if story is not None else None

    async def _may_follow(self, source: str, target: str, depth: int, *, is_seed: bool) -> bool:
        """Whether the target of a redirect may be queued. It must be in scope, with two exceptions. The target of a
        seed becomes a seed too, because the site has moved, for instance to `www.`. And if assets are fetched, an
        out-of-scope source is an asset, whose target may be anywhere as well. If other redirects could widen the scope,
        any site could send the crawl wherever it likes."""
        if self.removed.covers(target):
            return False
        if self._scope.allows(target):
            return True
        if self._scope.excludes(target):
            return False
        if self._config.assets and depth > 0 and not self._scope.allows(source):
            return True
        if is_seed and self._config.scope != "page":
            await self.widen([target])
        return is_seed


def _cut(result: Result, at_once: int) -> list[tuple[list[str], list[float]]]:
    """The links of a page, with their hints, in parts of at most `at_once`."""
    links, hints = result.links, result.link_hints
    if len(links) <= at_once:
        return [(links, hints)] if links else []
    parts = [slice(start, start + at_once) for start in range(0, len(links), at_once)]
    return [(links[part], hints[part]) for part in parts]


def _is_sitemap(task: Task | None) -> bool:
    """Whether a URL of depth 0 is not a seed but a sitemap that a robots.txt names."""
    return task is not None and task.found_on == NAMED_BY_ROBOTS


async def links_apart(kept: list[Kept], breathe: Breathe) -> list[LinksApart]:
    """The links of each result, told apart."""
    apart: list[LinksApart] = []
    looked_at = 0
    for one in kept:
        apart.append(_apart(one.result.links, one.result.url))
        looked_at += len(one.result.links)
        if looked_at >= LINKS_AT_ONCE:
            looked_at = 0
            await breathe()
    return apart


def _apart(links: list[str], url: str) -> LinksApart:
    """The links of the page at `url` told apart. The URL must be the one that was given out, because its host's lease
    is what counts."""
    own_origin = origin_of(url)
    own: list[str] = []
    others: dict[str, list[str]] = {}
    for link in links:
        if link.startswith(own_origin):
            own.append(link)
        else:
            others.setdefault(origin_of(link), []).append(link)
    return LinksApart(own, others)


def _link_at(kept: list[Kept], ends: list[int], place: int) -> tuple[Kept, str]:
    """Link number `place` of all results together, with its result; `ends` are the running totals of links."""
    holder = bisect_right(ends, place)
    return kept[holder], kept[holder].result.links[place - ends[holder]]
