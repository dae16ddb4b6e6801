"""Keeps a store of objects in order beside a running crawl: joins small segments, and removes what is left over.

Any coordinator with the store can do it; one of them holds a claim. The work is done in a thread, one piece at a time,
and waits where the service is away: nothing depends on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drumlin.coordinator.dispatch import Dispatcher
from drumlin.errors import DrumlinError
from drumlin.logs import Event, event

if TYPE_CHECKING:
    from drumlin.store.objects.files import ObjectFiles

CLAIM: Final = "upkeep"
CLAIM_S: Final = 30.0
COMPACT_EVERY_S: Final = 60.0
COLLECT_EVERY_S: Final = 3600.0
UNTOLD_MAX: Final = 1_000
"""If Kafka is behind by more entries of the manifest than this, joining segments waits."""

log = logging.getLogger("drumlin.coordinator")


class BucketUpkeep:
    """The upkeep of one store. `folder` is one of this machine, to work in."""

    def __init__(self, dispatcher: Dispatcher, files: ObjectFiles, folder: Path) -> None:
        self._dispatcher, self._files, self._folder = dispatcher, files, folder
        self._work: asyncio.Task[None] | None = None
        self._compact_at = COMPACT_EVERY_S
        self._collect_at = COLLECT_EVERY_S
        self._began: float | None = None

    async def tick(self, now: float) -> None:
        """Begin what is due, if nothing is under way and this coordinator holds the claim."""
        self._began = now if self._began is None else self._began
        if not await self._dispatcher.engine.claim(CLAIM, self._dispatcher.name, now, until=now + CLAIM_S):
            return
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._do(now - self._began))

    async def close(self) -> None:
        """Begin nothing more. What a thread does goes on until it ends, or the process does: it can be repeated."""
        if self._work is not None:
            self._work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._work

    async def _do(self, running_s: float) -> None:
        try:
            if running_s >= self._compact_at:
                self._compact_at = running_s + COMPACT_EVERY_S
                await asyncio.to_thread(self._compact)
            if running_s >= self._collect_at:
                self._collect_at = running_s + COLLECT_EVERY_S
                await asyncio.to_thread(self._collect)
        except (DrumlinError, OSError) as away:
            log.warning("the upkeep of %s waits: %s", self._files, away)
        except Exception:
            # The store is larger without it; nothing else may suffer.
            log.exception("the upkeep of %s failed, for a reason nobody foresaw", self._files, extra=event(Event.BUG))

    def _compact(self) -> None:
        from drumlin.lifecycle.held import begin_joining, held_segments, next_to_join
        from drumlin.store.objects.compaction import compact, due
        from drumlin.store.objects.mark import read_mark, untold_segments

        contents = self._files.manifest.contents()
        if not due(contents):
            return
        mark = read_mark(self._files)
        if mark is not None and contents.number - mark > UNTOLD_MAX:
            return
        # Who is held is asked only if there is something to join: it may take to read every segment.
        untold = untold_segments(self._files)
        if not due(contents, kept=untold):
            return
        removals = begin_joining(self._files)
        segments = next_to_join(self._files, untold | held_segments(self._files))
        if segments and compact(self._files, segments, self._folder, removals):
            log.info("joined %d segments of %s into one", len(segments), self._files)

    def _collect(self) -> None:
        from drumlin.store.objects.collection import find_garbage, remove_garbage
        from drumlin.store.objects.contents import KEPT_S

        garbage = find_garbage(self._files, self._files.bucket.time(), KEPT_S)
        remove_garbage(self._files, garbage)
        if garbage.objects or garbage.uploads:
            sentence = "removed %d objects of %s that nothing needs any more, and %d unfinished uploads"
            log.info(sentence, len(garbage.objects), self._files, len(garbage.uploads))
