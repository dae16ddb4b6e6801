"""Which seeds gave no page, and why, so a crawl that fetched nothing does not look like a successful one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from drumlin.api.explaining.causes import cause
from drumlin.coordinator.taking.host_reports import backoffs_of
from drumlin.engines.base import Engine
from drumlin.model import Outcome, TaskState
from drumlin.store.files import StoreFiles
from drumlin.store.tables.fates import Fate, last_fates
from drumlin.urls import host_of

SEEDS_LOOKED_AT_MAX = 1_000
UNTRIED = "not tried yet"


class FruitlessSeed(msgspec.Struct, frozen=True):
    """A seed that gave no page. `kind` is for programs: a kind of failure, `denied`, `skipped`, `status`, `redirected`
    or empty; `reason` is for people. A seed that `waits` will be tried again while the crawl runs; one that was
    `dropped` from the dead letters will not."""

    url: str
    kind: str
    reason: str
    waits: bool = False
    dropped: bool = False


async def fruitless_seeds(engine: Engine, files: StoreFiles, seeds: Sequence[str], pages: int) -> list[FruitlessSeed]:
    """Those of the first `SEEDS_LOOKED_AT_MAX` seeds that gave no page. A seed that redirects counts as fruitful,
    unless nothing at all was fetched."""
    looked_at = seeds[:SEEDS_LOOKED_AT_MAX]
    fates = last_fates(files, looked_at)
    found: list[FruitlessSeed] = []
    for url in looked_at:
        fate = fates.get(url)
        seed = await _untried(engine, url) if fate is None else _fruitless(url, fate, pages)
        if seed is not None and fate is not None and fate.outcome == Outcome.FAILED:
            seed = await _as_it_stands(engine, seed)
        if seed is not None:
            found.append(seed)
    return found


async def _untried(engine: Engine, url: str) -> FruitlessSeed | None:
    host = host_of(url)
    shard = engine.shard_of(host)
    story = await engine.story(shard, url)
    # Done, but not in the tables: an earlier run stored it and its tables were moved away, or it repeats another.
    if story is None or story.state is TaskState.DONE:
        return None
    state = await engine.host_state(shard, host)
    backoff = backoffs_of(state.note).get(url.partition(":")[0]) if state is not None else None
    if backoff is not None:
        return FruitlessSeed(url, backoff.kind, cause(backoff.kind, backoff.error), waits=True)
    return FruitlessSeed(url, "", UNTRIED)


async def _as_it_stands(engine: Engine, seed: FruitlessSeed) -> FruitlessSeed:
    """The seed with its present state: it may be waiting for another try, or a person may have dropped it."""
    story = await engine.story(engine.shard_of(host_of(seed.url)), seed.url)
    state = story.state if story is not None else TaskState.DONE
    waits, dropped = state not in (TaskState.DEAD, TaskState.DONE), state is TaskState.DONE
    return msgspec.structs.replace(seed, waits=waits, dropped=dropped)


def _fruitless(url: str, fate: Fate, pages: int) -> FruitlessSeed | None:
    if fate.outcome == Outcome.DENIED:
        return FruitlessSeed(url, "denied", "its robots.txt does not allow it")
    if fate.outcome == Outcome.SKIPPED:
        return FruitlessSeed(url, "skipped", f"it is not to be fetched: {fate.error}")
    if fate.outcome == Outcome.FAILED:
        answered = f"the site answered {fate.status}" if fate.status >= 400 else ""
        return FruitlessSeed(url, fate.kind, answered or cause(fate.kind, fate.error))
    if fate.outcome == Outcome.REDIRECTED and not pages:
        return FruitlessSeed(url, "redirected", "it leads to another address, which gave no page")
    if fate.status >= 400:
        return FruitlessSeed(url, "status", f"the site answered {fate.status}")
    return None
