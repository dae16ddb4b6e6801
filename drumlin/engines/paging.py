"""Lists that go over all shards, a page at a time, in one order.

Each shard has its part of such a list in order, and a cursor is simply the place of the last thing that was told: it
means the same in every shard, in every process, and after things came and went. A page is put together from the heads
of the parts, so what it costs depends on its length and the number of parts, not on how much there is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from drumlin.model import FailureKind, GroupPlace, LetterPlace

SLICE_MAX = 500
"""How much one part is asked for at a time, so no server is busy with it for long."""
SPARE = 8
"""How many more than its fair share a part is asked for: shares vary by chance."""

KINDS_IN_ORDER = sorted(FailureKind, key=str)
"""The kinds of dead letters, in the order that lists have."""

_Listed = TypeVar("_Listed")
_Place = TypeVar("_Place", str, LetterPlace, GroupPlace)


async def page_of(
    ask: Callable[[_Place | None, int], Awaitable[Sequence[Sequence[_Listed]]]],
    place_of: Callable[[_Listed], _Place],
    after: _Place | None,
    *,
    limit: int,
    parts: int,
) -> list[_Listed]:
    """The first `limit` things after a place, from all parts together. `ask` asks every part for the first so many
    after a place."""
    found: list[_Listed] = []
    size = min(limit, 2 * limit // parts + SPARE, SLICE_MAX)
    while len(found) < limit:
        heads = await ask(after, size)
        # A part that gave as much as it was asked for may have more. Nothing is missing up to the first place where one
        # was cut off.
        cut = min((place_of(head[-1]) for head in heads if len(head) >= size), default=None)
        told = [one for head in heads for one in head if cut is None or place_of(one) <= cut]
        found += sorted(told, key=place_of)
        if cut is None:
            break
        after = cut
    return found[:limit]
