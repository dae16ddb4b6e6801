"""A line for work that only so much of can be done at once, in which nobody can take all the places.

All who wait are served in their order, except that one owner has only so many places at work and in line: a node that
sends large batches without a pause waits for itself, not the others for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from drumlin.coordinator.bodies import Refused


class FairLine:
    """`at_once` turns at a time, `each` of them of one owner; `most` in line, `each_most` of them of one owner."""

    def __init__(self, *, at_once: int, each: int, most: int, each_most: int, retry_after_s: float) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._each = each
        self._most = most
        self._each_most = each_most
        self._retry_after_s = retry_after_s
        self._counts: Counter[str] = Counter()
        self._own_turns: dict[str, asyncio.Semaphore] = {}

    def __len__(self) -> int:
        """How many wait or have their turn."""
        return self._counts.total()

    @contextlib.asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Wait for a turn and have it, or raise `Refused` where too many wait already."""
        if len(self) >= self._most or self._counts[owner] >= self._each_most:
            message = "Too many batches of results wait to be settled."
            raise Refused(503, "busy", message, "Wait as Retry-After says.", retry_after_s=self._retry_after_s)
        own = self._own_turns.setdefault(owner, asyncio.Semaphore(self._each))
        self._counts[owner] += 1
        try:
            async with own, self._turns:
                yield
        finally:
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]
                self._own_turns.pop(owner, None)
