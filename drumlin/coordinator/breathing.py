"""Long work is cut into parts, so other requests get their turn in between.

A coordinator is one thread, and one request may mean seconds of work. Cut into parts of some hundredths of a second,
with a breath (a return to the event loop) after each, it delays no other request by more than one part. Only one heavy
request is worked on at a time: if several took turns, everybody else would wait for a part of each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from drumlin.model import NewURLs

PART_WEIGHT = 2_000
"""How much one part of adding URLs weighs: a few hundredths of a second of work."""
PART_WEIGHT_REMOTE = 10_000
"""The same if the engine is another process: each part costs a round trip there, and most honest batches fit into
one."""
GROUP_WEIGHT = 8
"""The weight of a host, in addition to its URLs."""
LIGHT_WEIGHT = 10_000
"""Requests above this weight are heavy: a full batch of pages with nine new links each weighs about as much."""
LIGHT_WEIGHT_REMOTE = 30_000
"""The same if the engine is another process: if full batches of pages with many links were heavy, it would have only
one of them to work on at a time."""

Breathe = Callable[[], Awaitable[None]]


async def go_on() -> None:
    """Take no breath: for callers without an event loop, and for light work."""


async def breathe() -> None:
    """Return to the event loop, so other requests get their turn."""
    await asyncio.sleep(0)


class Lanes:
    """Lanes for callers without an event loop: no other work waits, so there is no need to pause."""

    breathe: Breathe = staticmethod(go_on)

    def lane(self, weight: int) -> AbstractAsyncContextManager[Breathe]:
        """Enter this around work of the given weight, and call what it yields between the parts of the work."""
        return nullcontext(self.breathe)


class LoopLanes(Lanes):
    """Lanes for an event loop: light work runs at once and, up to `LIGHT_WEIGHT`, without pauses; heavy work one after
    the other."""

    breathe: Breathe = staticmethod(breathe)

    def __init__(self, light_weight: int = LIGHT_WEIGHT) -> None:
        self._light_weight = light_weight
        self._heavy = asyncio.Lock()

    def lane(self, weight: int) -> AbstractAsyncContextManager[Breathe]:
        if weight > self._light_weight:
            return self._alone()
        return nullcontext(go_on if weight <= LIGHT_WEIGHT else breathe)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[Breathe]:
        async with self._heavy:
            yield breathe


def parts(offered: Sequence[NewURLs], part_weight: int = PART_WEIGHT) -> Iterator[Sequence[NewURLs]]:
    """URLs in parts of about this weight, in their order."""
    if sum([len(new.urls) for new in offered]) + GROUP_WEIGHT * len(offered) <= part_weight:
        if offered:
            yield offered
        return
    part: list[NewURLs] = []
    weight = 0
    for new in offered:
        for piece in _pieces(new):
            part.append(piece)
            weight += len(piece.urls) + GROUP_WEIGHT
            if weight >= part_weight:
                yield part
                part, weight = [], 0
    if part:
        yield part


def _pieces(new: NewURLs) -> Iterator[NewURLs]:
    if len(new.urls) <= PART_WEIGHT:
        yield new
        return
    for start in range(0, len(new.urls), PART_WEIGHT):
        urls = new.urls[start : start + PART_WEIGHT]
        yield NewURLs(new.host, urls, new.priority, new.depth, new.found_on, new.redirects)
