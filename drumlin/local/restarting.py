"""A crawl that is started again with other settings: what differs, and what has to be done about it.

Most settings need nothing: they count from now on. These need more:
- Another scope or depth. Queued URLs are checked again when their turn comes; URLs that were taken out of the queue
  because of an earlier scope are queued again; and links of stored pages, targets of redirects and sitemaps that were
  out of scope are found again in the store.
- More URLs for each host (`host_urls_max`). Nobody noted which URLs were refused, so all links of stored pages and
  all sitemaps are offered again; the frontier knows which of them it has.
- Private addresses are permitted now. URLs that were given up because of their address are queued again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from drumlin.config import CrawlConfig, changes
from drumlin.config.changes import CHANGEABLE
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.letters import revive_kind
from drumlin.coordinator.steering import scope_of
from drumlin.engines.base import Engine
from drumlin.frontier import DEPTH, OUT_OF_SCOPE, TrapFilter, TrapLimits, priority_of
from drumlin.model import FailureKind, NewURLs
from drumlin.protocol import read_note
from drumlin.robots import sitemaps_in
from drumlin.store.tables.past_links import PastFinds, PastLinks
from drumlin.urls import Scope, by_host, host_of, identity

SEEDS_NAMED = 3
COUNTED_URLS_MAX = 1_000_000
CONFIG_BEFORE_KEY = "config_before"
"""The key in the engine of the settings of the last start, kept until all differences have been applied."""


def differences(before: CrawlConfig, after: CrawlConfig, seeds: Sequence[str], seeds_now: Sequence[str]) -> list[str]:
    """What differs from the last start, in words."""
    lines = list(changes.differences(before, after).values())
    known, wanted = set(seeds), set(seeds_now)
    if new := [url for url in seeds_now if url not in known]:
        lines.append(_seeds(new, "new"))
    if gone := [url for url in seeds if url not in wanted]:
        lines.append(_seeds(gone, "gone"))
    return lines


def still_set(flags: CrawlConfig, in_force: CrawlConfig) -> list[str]:
    """Sentences that name the settings which `drumlin set` changed and which still hold, against the flags."""
    pairs = [(one, getattr(flags, one.field), getattr(in_force, one.field)) for one in CHANGEABLE.values()]
    return [
        f"Still in force: {one.flag} is {one.shown(now)}, as `drumlin set` changed it from {one.shown(flag)}."
        for one, flag, now in pairs
        if flag != now
    ]


def _seeds(urls: list[str], what: str) -> str:
    named = ", ".join(urls[:SEEDS_NAMED]) + (" and others" if len(urls) > SEEDS_NAMED else "")
    return f"{len(urls):,} {'seed is' if len(urls) == 1 else 'seeds are'} {what} ({named})"


async def follow_differences(
    dispatcher: Dispatcher,
    before: CrawlConfig,
    seeds: Sequence[str],
    seeds_now: Sequence[str],
    past: PastFinds,
    now: float,
    year: int,
) -> None:
    """Apply the new settings to URLs that are queued, were refused or were given up. `past` is read only if it matters,
    since there may be much of it."""
    config = dispatcher.config
    if before.allow_private != config.allow_private and config.allow_private:
        await revive_kind(dispatcher.engine, FailureKind.FORBIDDEN_ADDRESS, now)
    other_scope = scope_of(before) != scope_of(config) or before.depth != config.depth or set(seeds) != set(seeds_now)
    if other_scope:
        dispatcher.steering.scope_changed = True
        await revive_kind(dispatcher.engine, FailureKind.SCOPE_CHANGED, now)
    more = _allows_more_urls(before, config) or (config.follows_sitemaps and not before.follows_sitemaps)
    if other_scope or more:
        await _offer_sitemaps(dispatcher, past.hosts(), now)
        again = _FoundAgain(dispatcher, None if more else before, seeds, past, year)
        for found in again.all(seeds_now):
            await dispatcher.add(found, now)
        if other_scope:
            await _recount(dispatcher.engine, again.left_out)


async def _offer_sitemaps(dispatcher: Dispatcher, hosts: Iterable[str], now: float) -> None:
    """Offer the sitemaps that robots.txt names again. Nodes name them only when they fetch that file, which they will
    not do again for a host that they know, and the settings of that time may have refused them."""
    if not dispatcher.config.follows_sitemaps:
        return
    engine = dispatcher.engine
    for host in hosts:
        note = read_note(await engine.host_note(engine.shard_of(host), host))
        await dispatcher.add(dispatcher.findings.sitemaps(host, sitemaps_in(note, host)), now)


async def _recount(engine: Engine, left_out: dict[str, int]) -> None:
    """Correct the report's counts of refused links: they should count what the new settings leave out, not the old
    ones. No count may grow, since a URL that is left out now may have been fetched before."""
    for reason, left in left_out.items():
        name = f"refused.{reason}"
        for shard, stats in enumerate(await engine.stats_all(0.0)):
            before = stats.counters.get(name, 0)
            kept = min(left, before)
            left -= kept
            if kept != before:
                await engine.count(shard, {name: kept - before})


def _allows_more_urls(before: CrawlConfig, after: CrawlConfig) -> bool:
    """Whether a host may have more URLs than before."""
    if before.host_urls_max is None:
        return False
    return after.host_urls_max is None or after.host_urls_max > before.host_urls_max


class _FoundAgain:
    """Links and redirect targets that the old settings refused and the new ones do not. Without the old settings
    (`before`) all links are offered again; the frontier knows which of them it has."""

    def __init__(
        self, dispatcher: Dispatcher, before: CrawlConfig | None, seeds: Sequence[str], past: PastFinds, year: int
    ) -> None:
        self._dispatcher = dispatcher
        self._traps = TrapFilter(TrapLimits(depth_max=None))
        self._year = year
        self._before = before
        # Without the seeds that joined later: before they did, links to their hosts were refused too.
        self._scope = Scope(before.scope, seeds, before.include, before.exclude) if before is not None else None
        self._links, self._redirects = past.links, past.redirects()
        self.left_out = {OUT_OF_SCOPE: 0, DEPTH: 0}
        """How many distinct URLs are still left out, by reason."""
        self._counted: set[str] = set()

    def all(self, seeds_now: Sequence[str]) -> Iterator[list[NewURLs]]:
        yield [new for seed in seeds_now for new in self._redirected(seed, 0)]
        for links in self._links():
            yield self._from_page(links)

    def _from_page(self, links: PastLinks) -> list[NewURLs]:
        depth, most = links.depth + 1, self._dispatcher.config.depth
        targets = dict.fromkeys(links.targets)
        if most is not None and depth > most:
            for url in targets:
                self._count(url, DEPTH)
            return []
        own = by_host(url for url in targets if self._is_admitted(url, depth))
        found = [NewURLs(host, mine, priority_of(depth), depth, links.url) for host, mine in own.items()]
        redirecting = [url for url in targets if url in self._redirects]
        return found + [new for url in redirecting for new in self._redirected(url, depth)]

    def _redirected(self, source: str, depth: int) -> list[NewURLs]:
        """The targets of the chain of redirects that begins at `source`, as far as they are admitted now."""
        found: list[NewURLs] = []
        chain: list[str] = []
        while source not in chain and (target := self._redirects.get(source)) is not None:
            chain.append(source)
            if self._is_admitted(target, depth):
                found.append(NewURLs(host_of(target), [target], priority_of(depth), depth, source, tuple(chain)))
            source = target
        return found

    def _is_admitted(self, url: str, depth: int) -> bool:
        if not self._dispatcher.in_scope(url):
            self._count(url, OUT_OF_SCOPE)
            return False
        if not self._was_refused(url, depth):
            return False
        return not self._traps.reject(identity(url), depth, self._year)

    def _count(self, url: str, reason: str) -> None:
        """Count a URL once. After `COUNTED_URLS_MAX` of them all are forgotten, and some may count twice."""
        if url in self._counted:
            return
        if len(self._counted) >= COUNTED_URLS_MAX:
            self._counted.clear()
        self._counted.add(url)
        self.left_out[reason] += 1

    def _was_refused(self, url: str, depth: int) -> bool:
        if self._before is None or self._scope is None:
            return True
        most = self._before.depth
        return not self._scope.allows(url) or (most is not None and depth > most)
