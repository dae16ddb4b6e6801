"""Long work in parts, so that others have their turn in between.

A coordinator is one thread. What one request asks for may take seconds; cut into parts of some hundredths of a second,
with a breath after each, it delays nobody else by more than that. Of heavy requests only one is worked on at a time:
if several took turns with each other, everybody else would wait for a part of each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from drumlin.model import NewURLs

PART_WEIGHT = 2_000
"""What one part of adding URLs weighs: a few hundredths of a second."""
PART_WEIGHT_REMOTE = 10_000
"""The same where the engine is another process: parts cost round trips there, and an honest batch is one part."""
GROUP_WEIGHT = 8
"""What a host weighs beside its URLs."""
LIGHT_WEIGHT = 10_000
"""What a request weighs at most that is not heavy: twice what a full batch of pages with many links does."""

Breathe = Callable[[], Awaitable[None]]


async def go_on() -> None:
    """No breath: for callers without an event loop, and for light work."""


async def breathe() -> None:
    """Let other requests have their turn."""
    await asyncio.sleep(0)


class Lanes:
    """Without an event loop there is nobody to let pass."""

    breathe: Breathe = staticmethod(go_on)

    def lane(self, weight: int) -> AbstractAsyncContextManager[Breathe]:
        """Work of this weight; what it is given is to be called between its parts."""
        return nullcontext(self.breathe)


class LoopLanes(Lanes):
    """For an event loop: light work goes on at once and without a pause, heavy work in its turn."""

    breathe: Breathe = staticmethod(breathe)

    def __init__(self) -> None:
        self._heavy = asyncio.Lock()

    def lane(self, weight: int) -> AbstractAsyncContextManager[Breathe]:
        return nullcontext(go_on) if weight <= LIGHT_WEIGHT else self._alone()

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[Breathe]:
        async with self._heavy:
            yield breathe


def parts(found: Sequence[NewURLs], part_weight: int = PART_WEIGHT) -> Iterator[Sequence[NewURLs]]:
    """URLs in parts of about this weight, in their order."""
    part: list[NewURLs] = []
    weight = 0
    for new in found:
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
