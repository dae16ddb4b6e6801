"""Queues dead letters again or drops them, and keeps the counters of how many there are of each kind."""

from __future__ import annotations

from collections.abc import Iterable

from drumlin.engines.base import Engine
from drumlin.frontier.backoff import dead_counter
from drumlin.model import DeadLetter, FailureKind

LETTERS_AT_ONCE = 10_000
LETTERS_OF_HOST_MAX = 1_000_000
"""How many dead letters of one host are searched for given URLs."""


async def revive_kind(engine: Engine, kind: FailureKind, now: float) -> None:
    """Queue all dead letters of one kind again."""
    while letters := await engine.dead_letters_all(kind=kind, limit=LETTERS_AT_ONCE):
        await revive(engine, letters, now)


async def revive(engine: Engine, letters: Iterable[DeadLetter], now: float) -> int:
    """Queue these dead letters again; returns how many were still there to be queued."""
    changed = 0
    for (shard, kind), urls in _by_shard_and_kind(engine, letters).items():
        changed += await engine.revive(shard, urls, now, counter=dead_counter(kind))
    return changed


async def drop(engine: Engine, letters: Iterable[DeadLetter]) -> int:
    """Count these dead letters as done; returns how many were still there."""
    changed = 0
    for (shard, kind), urls in _by_shard_and_kind(engine, letters).items():
        changed += await engine.drop(shard, urls, counter=dead_counter(kind))
    return changed


def _by_shard_and_kind(engine: Engine, letters: Iterable[DeadLetter]) -> dict[tuple[int, FailureKind], list[str]]:
    urls: dict[tuple[int, FailureKind], list[str]] = {}
    for letter in letters:
        urls.setdefault((engine.shard_of(letter.host), letter.kind), []).append(letter.url)
    return urls
