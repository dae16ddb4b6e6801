"""A waiting line for work that cannot all be done at once, in which nobody can take all places.

Requests are served in their order, except that one owner may have only so many at work and in line. So a node that
sends large batches without a pause waits for its own batches, and other nodes do not.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from drumlin.http.refusal import Refused


class FairLine:
    """`at_once` requests have their turn, at most `each` of one owner. There is place for `most` in all, and for
    `each_most` of one owner; a large request takes several places. `what` they are is told to those who are
    refused."""

    def __init__(self, *, what: str, at_once: int, each: int, most: int, each_most: int, retry_after_s: float) -> None:
        self._what = what
        self._turns = asyncio.Semaphore(at_once)
        self._each = each
        self._most = most
        self._each_most = each_most
        self._retry_after_s = retry_after_s
        self._counts: Counter[str] = Counter()
        self._own_turns: dict[str, asyncio.Semaphore] = {}

    def __len__(self) -> int:
        """How many places are taken by requests that wait or have their turn."""
        return self._counts.total()

    def turn(self, owner: str, places: int = 1) -> _Turn:
        """Wait for a turn and have it while the context lasts; entering it raises `Refused` if too many wait
        already."""
        return _Turn(self, owner, places)

    async def take(self, owner: str, places: int) -> None:
        """Wait for a turn."""
        if len(self) + places > self._most or self._counts[owner] + places > self._each_most:
            message = f"Too many {self._what} wait."
            raise Refused(503, "busy", message, "Wait as Retry-After says.", retry_after_s=self._retry_after_s)
        own = self._own_turns.setdefault(owner, asyncio.Semaphore(self._each))
        self._counts[owner] += places
        try:
            await own.acquire()
            try:
                await self._turns.acquire()
            except BaseException:
                own.release()
                raise
        except BaseException:
            self._leave(owner, places)
            raise

    def end(self, owner: str, places: int) -> None:
        """The turn is over."""
        self._turns.release()
        self._own_turns[owner].release()
        self._leave(owner, places)

    def _leave(self, owner: str, places: int) -> None:
        self._counts[owner] -= places
        if not self._counts[owner]:
            del self._counts[owner]
            self._own_turns.pop(owner, None)


class _Turn:
    """A context of its own class: what `contextlib` makes of a generator costs several times as much, for each batch of
    results."""

    __slots__ = ("_line", "_owner", "_places")

    def __init__(self, line: FairLine, owner: str, places: int) -> None:
        self._line = line
        self._owner = owner
        self._places = places

    async def __aenter__(self) -> None:
        await self._line.take(self._owner, self._places)

    async def __aexit__(self, *failure: object) -> None:
        self._line.end(self._owner, self._places)
