"""A crawl that is started again with other settings: what differs, and what follows from it.

Budgets, paces and limits need nothing: they count from now on. Where the scope or the depth is another, what is queued
is looked at again when its turn comes, and links of stored pages that were out before are found again. Where private
addresses are permitted now, URLs given up for theirs are queued again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from drumlin.config import SETTINGS, CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.settling import by_host
from drumlin.coordinator.steering import scope_of
from drumlin.frontier import priority_of
from drumlin.model import FailureKind, NewURLs
from drumlin.parse import FOLLOWED_KINDS
from drumlin.store.past_links import PastLinks, past_links
from drumlin.urls import Scope

LETTERS_AT_ONCE = 10_000
SEEDS_NAMED = 3


def differences(before: CrawlConfig, after: CrawlConfig, seeds: Sequence[str], seeds_now: Sequence[str]) -> list[str]:
    """What is another than at the last start, in words."""
    lines = [
        f"{setting.flag} was {setting.display(getattr(before, setting.field))} and is "
        f"{setting.display(getattr(after, setting.field))}"
        for setting in SETTINGS.values()
        if setting.section == "crawl" and getattr(before, setting.field) != getattr(after, setting.field)
    ]
    known, wanted = set(seeds), set(seeds_now)
    if new := [url for url in seeds_now if url not in known]:
        lines.append(_seeds(new, "new"))
    if gone := [url for url in seeds if url not in wanted]:
        lines.append(_seeds(gone, "gone"))
    return lines


def _seeds(urls: list[str], what: str) -> str:
    named = ", ".join(urls[:SEEDS_NAMED]) + (" and others" if len(urls) > SEEDS_NAMED else "")
    return f"{len(urls):,} {'seed is' if len(urls) == 1 else 'seeds are'} {what} ({named})"


async def follow_differences(
    dispatcher: Dispatcher,
    before: CrawlConfig,
    seeds: Sequence[str],
    seeds_now: Sequence[str],
    tables: Path,
    now: float,
) -> None:
    """Have what is queued, was refused or was given up follow the settings of today."""
    config = dispatcher.config
    if before.allow_private != config.allow_private and config.allow_private:
        await _revive_private(dispatcher, now)
    if scope_of(before) == scope_of(config) and before.depth == config.depth and set(seeds) == set(seeds_now):
        return
    dispatcher.steering.scope_changed = True
    refused = _Refused(before, Scope(before.scope, seeds, before.include, before.exclude))
    for links in past_links(tables, FOLLOWED_KINDS):
        await dispatcher.add(_found_again(dispatcher, refused, links), now)


class _Refused:
    """What the crawl refused before."""

    def __init__(self, config: CrawlConfig, scope: Scope) -> None:
        self._depth = config.depth
        self._scope = scope

    def __call__(self, url: str, depth: int) -> bool:
        return not self._scope.allows(url) or (self._depth is not None and depth > self._depth)


def _found_again(dispatcher: Dispatcher, refused: _Refused, links: PastLinks) -> list[NewURLs]:
    depth, most = links.depth + 1, dispatcher.config.depth
    if most is not None and depth > most:
        return []
    urls = [url for url in dict.fromkeys(links.targets) if refused(url, depth) and dispatcher.in_scope(url)]
    return [NewURLs(host, mine, priority_of(depth), depth, links.url) for host, mine in by_host(urls).items()]


async def _revive_private(dispatcher: Dispatcher, now: float) -> None:
    engine = dispatcher.engine
    for shard in range(engine.shard_count):
        while letters := await engine.dead_letters(shard, kind=FailureKind.FORBIDDEN_ADDRESS, limit=LETTERS_AT_ONCE):
            await engine.revive(shard, [letter.url for letter in letters], now)
