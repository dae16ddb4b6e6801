"""Strikes: how often the parsing of a URL ended its process.

On one machine the coordinator sees the process die. In a fleet the node's successor reports it. If parsing took longer
than the lease, another node may have the URL by the time of the report, and the result is stale. The strike counts
nevertheless: otherwise one page could end the nodes of a fleet one after the other, forever.
"""

from __future__ import annotations

from drumlin.coordinator.taking.settling import Kept, ResultBatch, Taken
from drumlin.engines.base import Engine
from drumlin.frontier.backoff import dead_counter
from drumlin.model import FailureKind
from drumlin.protocol import KILLED, KILLS_MAX, Rejection
from drumlin.urls import host_of

CRASHES_MAX = 2
LATE_STRIKES_MAX = 4
"""How many late strikes of one batch are considered. An honest node reports one, when it starts."""


async def strike(engine: Engine, url: str, now: float, *, error: str, limit: int = CRASHES_MAX) -> bool:
    """Note that a process died while it parsed this URL. At `limit` strikes the URL becomes a dead letter; returns
    whether it did."""
    shard, kind = engine.shard_of(host_of(url)), FailureKind.CRASH
    return await engine.strike(shard, url, now, limit=limit, kind=kind, error=error, counter=dead_counter(kind))


async def strike_late(engine: Engine, batch: ResultBatch, taken: Taken, now: float) -> None:
    """Count the strikes of results that came too late to be settled."""
    if not taken.accepted.rejected_at:
        return
    stale = {
        place
        for place, rejected in zip(taken.accepted.rejected_at, taken.accepted.rejected, strict=True)
        if rejected.reason == Rejection.STALE
    }
    late = [one for one in batch.kept if one.place in stale and one.result.kind in (KILLED, FailureKind.CRASH)]
    for one in late[:LATE_STRIKES_MAX]:
        await _strike_late(engine, one, now)


async def _strike_late(engine: Engine, one: Kept, now: float) -> None:
    """Strike if no failure was counted against the URL since it was given to the sender. So each time that it was given
    out counts at most once, however often that is reported. If two nodes had it one after the other, only the first
    report counts."""
    story = await engine.story(engine.shard_of(one.host), one.result.url)
    if story is None or story.task is None or story.task.failures != one.key.attempts:
        return
    limit = 1 if one.key.attempts + 1 >= KILLS_MAX else story.task.crashes + 2
    await strike(engine, one.result.url, now, error=one.result.error, limit=limit)
