"""An event loop whose time is virtual: it jumps to the next event, so an idle hour costs nothing.

It runs the coordinators' coroutines and everything else that happens in a simulation, in one order that depends on
nothing but the order in which events were planned. There are no sockets, no threads and no signals.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

_Answer = TypeVar("_Answer")
_Arguments = TypeVarTuple("_Arguments")
_Planned = tuple[float, int, Callable[..., object], tuple[Any, ...]]
SLICES_PER_S = 10


class Pause:
    """Await this to let virtual time pass. It costs much less than `asyncio.sleep`, where whoever runs the coroutine
    knows it (`coordinator`)."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs callbacks at virtual moments. `now` is the time in seconds since the simulation began."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        """How many events have happened."""
        self._planned: list[_Planned] = []
        """A heap of the events of the present slice of time. Those of later slices lie unsorted in `_later`: a heap of
        all of them would be so large that every step in it has to wait for memory."""
        self._later: dict[int, list[_Planned]] = {}
        self._slices: list[int] = []
        """A heap of the numbers of these slices."""
        self._slice = 0
        self._ready: deque[asyncio.Handle] = deque()
        self._number = 0
        self._failure: BaseException | None = None
        self.over = False
        """Whether the simulation has ended."""

    # For the simulation

    def at(self, when: float, act: Callable[[*_Arguments], object], *arguments: *_Arguments) -> None:
        """Plan something. Of two events at the same moment the one that was planned first happens first."""
        self._number += 1
        event, number = (when, self._number, act, arguments), int(when * SLICES_PER_S)
        if number <= self._slice:
            heapq.heappush(self._planned, event)
        elif number in self._later:
            self._later[number].append(event)
        else:
            self._later[number] = [event]
            heapq.heappush(self._slices, number)

    def _begin_slice(self) -> None:
        """Go on to the next slice of time in which anything is planned."""
        self._slice = heapq.heappop(self._slices)
        self._planned += sorted(self._later.pop(self._slice))

    def run_until(self, end: float) -> None:
        """Let everything happen until `end`. An exception of any event or task is raised here."""
        planned, ready = self._planned, self._ready
        asyncio._set_running_loop(self)
        try:
            while True:
                while ready:
                    handle = ready.popleft()
                    if not handle._cancelled:
                        handle._run()
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                if not planned and self._slices:
                    self._begin_slice()
                if not planned or planned[0][0] > end:
                    break
                self.now, _, act, arguments = heapq.heappop(planned)
                self.events += 1
                act(*arguments)
            self.now = max(self.now, end)
        finally:
            asyncio._set_running_loop(None)

    # For asyncio

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]  # asyncio's own loops take the same arguments
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.at(when, _ring, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer stays planned; it does nothing when its moment comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, _Answer] | Generator[Any, None, _Answer],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[_Answer]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        failure = context.get("exception")
        if self._failure is None and isinstance(failure, BaseException):
            self._failure = failure


def _ring(handle: asyncio.TimerHandle) -> None:
    if not handle._cancelled:
        handle._run()
