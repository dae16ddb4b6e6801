"""Looks at the engine and the store every second by writing something small to each, and tells `Health` what it found.

Known are then, within `LOOK_EVERY_S` + `LOOK_S_MAX`: an engine that is full, frozen, cut off or read-only, and a store
that is full or does not answer. A look that hangs is not waited for, and no second one is begun beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from drumlin.coordinator.health import Health, Part
from drumlin.engines.base import Engine
from drumlin.errors import Cause, DrumlinError, StorageError
from drumlin.store.disk import translated_disk_errors

LOOK_EVERY_S = 1.0
LOOK_S_MAX = 2.0
FRESH_S = LOOK_EVERY_S + 2 * LOOK_S_MAX
"""How old the last look may be before whoever asks has one made."""
READ_S = 0.05
PROBE_BYTES = 64 * 1024
"""More than a file system keeps beside a file's name, so that writing it needs room on the disk."""
PROBE_NAME = ".drumlin-probe-"


class Watch:
    """Keeps `health` up to date. `clock` goes on while the engine is gone, and never jumps."""

    def __init__(
        self,
        engine: Engine,
        store: Path | None,
        health: Health,
        clock: Callable[[], float],
        *,
        on_loss: Callable[[], Awaitable[None]] | None = None,
        after_loss: Callable[[], DrumlinError | None] = lambda: None,
    ) -> None:
        """`on_loss` is called when the engine has lost something; `after_loss` says what is wrong since then."""
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

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self._soon.clear()
            await self.look()
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._soon.wait()
            except TimeoutError:
                continue

    def look_soon(self) -> None:
        """Something failed: look at once."""
        self._soon.set()

    async def be_fresh(self) -> None:
        """Look now, unless that was done a moment ago."""
        if asyncio.get_running_loop().time() - self._looked >= FRESH_S:
            await self.look()

    async def look(self) -> None:
        """Look now; all who ask meanwhile wait for the same look."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        engine, store = await asyncio.gather(self._look_at_engine(), self._look_at_store())
        self._looked = asyncio.get_running_loop().time()
        self._health.looked(Part.ENGINE, engine, self._clock())
        self._health.looked(Part.STORE, store, self._clock())

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
        # It may be this process that was busy: whoever is done can say so now.
        await asyncio.sleep(0 if trying.done() else READ_S)
        if not trying.done():
            hint = "Check the disk, or the server that it is mounted from."
            return StorageError(f"{self._store} does not answer.", hint, code=Cause.STORE_SILENT)
        # Another look may have waited for the same try, and have begun the next one.
        self._trying = None if self._trying is trying else self._trying
        problem = trying.exception()
        if problem is None or isinstance(problem, DrumlinError):
            return problem
        return StorageError(f"Cannot write to {self._store}: {problem}.", code=Cause.STORE_FAILED)


def try_store(store: Path) -> None:
    """Write a little to the store and remove it again; a `StorageError` says why that cannot be."""
    try:
        with translated_disk_errors(store):
            store.mkdir(parents=True, exist_ok=True)
            _write_and_remove(store / f"{PROBE_NAME}{os.getpid()}")
    except StorageError as problem:
        # Here nothing has to be repeated by hand: nodes keep what they have and send it again.
        hint = (
            "Free some space; the crawl then goes on by itself." if problem.code == Cause.STORE_FULL else problem.hint
        )
        raise StorageError(problem.message, hint, code=problem.code) from problem


def _write_and_remove(path: Path) -> None:
    try:
        with path.open("wb", buffering=0) as file:
            file.write(bytes(PROBE_BYTES))
    finally:
        path.unlink(missing_ok=True)
