"""Tests the engine and the store every second by writing something small to each, and tells `Health` what it found.

So within `LOOK_EVERY_S` + `LOOK_S_MAX` it is known if the engine is full, frozen, cut off or read-only, or if the store
is full or does not answer. A test that hangs is not waited for, and no second one is begun beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from drumlin.clock import monotonic, wanted_cpu_s
from drumlin.coordinator.health import Health, Part
from drumlin.engines.base import Engine
from drumlin.errors import Cause, DrumlinError, StorageError
from drumlin.store.files import StoreFiles
from drumlin.store.opening import in_bucket

LOOK_EVERY_S = 1.0
LOOK_S_MAX = 2.0
FRESH_S = LOOK_EVERY_S + 2 * LOOK_S_MAX
"""If the last test is older than this, `be_fresh` makes a new one."""
READ_S = 0.05
LOOKS_KEPT = 9
DISK_HINT = "Check the disk, or the server that it is mounted from."
SERVICE_HINT = "Check the service and the way to it; nodes keep what they fetch until it answers."
ROOM_HINT = "Free some space: the crawl then goes on. Start nodes again that ended because there was none."


class Look(NamedTuple):
    """One test: how long a small write to the engine and to a store on a disk took, and how busy this process was. How
    long one to a bucket took says nothing: nodes keep what they store until it is there, and fetch on."""

    engine_s: float
    store_s: float
    cpu_share: float


class Watch:
    """Keeps `health` up to date. `clock` must run even while the engine is gone, and never jump."""

    def __init__(
        self,
        engine: Engine,
        store: StoreFiles | None,
        health: Health,
        clock: Callable[[], float],
        *,
        on_loss: Callable[[], Awaitable[None]] | None = None,
        after_loss: Callable[[], DrumlinError | None] = lambda: None,
    ) -> None:
        """`on_loss` is called when the engine has lost data; `after_loss` says whether calls must still be refused
        because of an earlier loss."""
        self._on_loss = on_loss
        self._after_loss = after_loss
        self._engine = engine
        self._store = store
        self._health = health
        self._clock = clock
        self._looked = -FRESH_S
        self._looking: asyncio.Task[None] | None = None
        self._trying: asyncio.Future[None] | None = None
        self._soon = asyncio.Event()
        self._looks: deque[Look] = deque(maxlen=LOOKS_KEPT)
        self._cpu = (monotonic(), wanted_cpu_s())

    @property
    def lately(self) -> Look:
        """How the last tests went: the median of each time."""
        looks = list(self._looks) or [Look(0.0, 0.0, 0.0)]
        return Look(*(statistics.median(times) for times in zip(*looks, strict=True)))

    async def run(self) -> None:
        """Test again and again, forever."""
        while True:
            self._soon.clear()
            await self.look()
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._soon.wait()
            except TimeoutError:
                continue

    def look_soon(self) -> None:
        """Make the next test come at once, because something failed."""
        self._soon.set()

    async def be_fresh(self) -> None:
        """Test now, unless that was done a moment ago."""
        if asyncio.get_running_loop().time() - self._looked >= FRESH_S:
            await self.look()

    async def look(self) -> None:
        """Test now; callers that come meanwhile wait for the same test."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        (engine, engine_s), (store, store_s) = await asyncio.gather(
            self._timed(self._look_at_engine()), self._timed(self._look_at_store())
        )
        self._looks.append(Look(engine_s, 0.0 if self._in_bucket else store_s, self._cpu_share()))
        self._looked = asyncio.get_running_loop().time()
        self._health.looked(Part.ENGINE, engine, self._clock())
        self._health.looked(Part.STORE, store, self._clock())

    @property
    def _in_bucket(self) -> bool:
        return in_bucket(self._store) is not None

    async def _timed(self, test: Awaitable[DrumlinError | None]) -> tuple[DrumlinError | None, float]:
        began = monotonic()
        return await test, monotonic() - began

    def _cpu_share(self) -> float:
        """Which part of the time since the last test this process has computed, or waited for a core."""
        before, wanted_before = self._cpu
        now, wanted = self._cpu = monotonic(), wanted_cpu_s()
        return min(1.0, (wanted - wanted_before) / (now - before)) if now > before else 0.0

    async def _look_at_engine(self) -> DrumlinError | None:
        try:
            await self._engine.check(LOOK_S_MAX)
        except DrumlinError as problem:
            if problem.code == Cause.LOST and self._on_loss is not None:
                with contextlib.suppress(DrumlinError):
                    await self._on_loss()
            return problem
        return self._after_loss()

    async def _look_at_store(self) -> DrumlinError | None:
        if self._store is None:
            return None
        trying = self._trying or asyncio.ensure_future(asyncio.to_thread(try_store, self._store))
        self._trying = trying
        await asyncio.wait([trying], timeout=LOOK_S_MAX)
        # If this process itself was too busy to notice in time, give the thread's result a chance to arrive.
        await asyncio.sleep(0 if trying.done() else READ_S)
        if not trying.done():
            hint = SERVICE_HINT if self._in_bucket else DISK_HINT
            return StorageError(f"{self._store} does not answer.", hint, code=Cause.STORE_SILENT)
        # Another test may have waited for the same attempt and have begun the next one.
        self._trying = None if self._trying is trying else self._trying
        problem = trying.exception()
        if problem is None or isinstance(problem, DrumlinError):
            return problem
        return StorageError(f"Cannot write to {self._store}: {problem}.", code=Cause.STORE_FAILED)


def try_store(store: StoreFiles) -> None:
    """Write a little to the store; a `StorageError` says why that failed."""
    try:
        store.probe()
    except StorageError as problem:
        # Nodes that send bundles keep them and send them again, but nodes that write to this store have ended.
        on_disk = in_bucket(store) is None
        hint = ROOM_HINT if problem.code == Cause.STORE_FULL and on_disk else problem.hint
        raise StorageError(problem.message, hint, code=problem.code) from problem
