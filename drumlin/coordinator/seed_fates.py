"""Which seeds gave no page, and why: a crawl that ends with nothing must not look like one that is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from drumlin.coordinator.host_reports import backoffs_of
from drumlin.engines.base import Engine
from drumlin.model import FailureKind, Outcome, TaskState
from drumlin.store.fates import Fate, last_fates
from drumlin.urls import host_of

SEEDS_LOOKED_AT_MAX = 1_000
UNTRIED = "not tried yet"
_REASONS = {
    FailureKind.DNS: "there is no such host",
    FailureKind.CONNECT: "no connection could be made",
    FailureKind.TLS: "no secure connection could be made",
    FailureKind.TIMEOUT: "no answer came in time",
    FailureKind.RESET: "the connection broke",
    FailureKind.PROTOCOL: "the answer was not HTTP",
    FailureKind.ROBOTS_UNREACHABLE: "its robots.txt could not be had",
    FailureKind.FORBIDDEN_ADDRESS: "its address is private",
    FailureKind.REDIRECT_LOOP: "it redirects in a circle",
    FailureKind.TOO_LARGE: "it is too large",
}


class FruitlessSeed(msgspec.Struct, frozen=True):
    """A seed that gave no page. `kind` is a kind of failure, `denied`, `status`, `redirected` or empty, for programs;
    `reason` says it to people. One that `waits` is tried again by itself as long as the crawl runs."""

    url: str
    kind: str
    reason: str
    waits: bool = False


async def fruitless_seeds(engine: Engine, tables: Path, seeds: Sequence[str], pages: int) -> list[FruitlessSeed]:
    """Of the first seeds those that gave no page. Where a seed has moved, its new address is as good, unless nothing
    at all was fetched."""
    looked_at = seeds[:SEEDS_LOOKED_AT_MAX]
    fates = last_fates(tables, looked_at)
    found: list[FruitlessSeed] = []
    for url in looked_at:
        fate = fates.get(url)
        seed = await _untried(engine, url) if fate is None else _fruitless(url, fate, pages)
        if seed is not None:
            found.append(seed)
    return found


async def _untried(engine: Engine, url: str) -> FruitlessSeed | None:
    host = host_of(url)
    shard = engine.shard_of(host)
    story = await engine.story(shard, url)
    # Done without a trace: it was stored by an earlier run whose tables have been moved away, or it repeats another.
    if story is None or story.state is TaskState.DONE:
        return None
    state = await engine.host_state(shard, host)
    backoff = backoffs_of(state.note).get(url.partition(":")[0]) if state is not None else None
    if backoff is not None:
        return FruitlessSeed(url, backoff.kind, _reason(backoff.kind) or backoff.error, waits=True)
    return FruitlessSeed(url, "", UNTRIED)


def _fruitless(url: str, fate: Fate, pages: int) -> FruitlessSeed | None:
    if fate.outcome == Outcome.DENIED:
        return FruitlessSeed(url, "denied", "its robots.txt does not allow it")
    if fate.outcome == Outcome.FAILED:
        return FruitlessSeed(url, fate.kind, _reason(fate.kind) or fate.error or f"status {fate.status}")
    if fate.outcome == Outcome.REDIRECTED and not pages:
        return FruitlessSeed(url, "redirected", "it leads to another address, which gave no page")
    if fate.status >= 400:
        return FruitlessSeed(url, "status", f"the site answered {fate.status}")
    return None


def _reason(kind: str) -> str:
    """What a kind of failure means to people; empty for one that says nothing."""
    return _REASONS.get(FailureKind(kind), "") if kind in set(FailureKind) else ""
