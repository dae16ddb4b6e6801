"""Of several removals on one shared engine, on whichever machines, only one is at work."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncIterator
from typing import Final

from drumlin.engines.base import Engine
from drumlin.errors import BusyError, DrumlinError

BEAT_TABLE: Final = "removal_beat"
BEAT: Final = "last"
"""The entry in which a removal says that it is at work. It goes when the removal ends, since a dry run changes nothing,
not even what `drumlin frontier verify` compares."""
BEAT_S: Final = 0.25
BEATS_SEEN_S: Final = 1.5
"""For how long a removal that is at work is looked for."""
AT_WORK: Final = (
    "Another removal is at work on this crawl.",
    "Wait until it has ended, and repeat. If it was killed, repeat the command that was given then.",
)


@contextlib.asynccontextmanager
async def only_one(engine: Engine) -> AsyncIterator[None]:
    """BusyError if another removal is at work on this engine. Locks of directories do not reach other machines, so a
    removal says in the engine several times a second that it is at work. One that was killed falls silent."""
    if not engine.shared:
        yield
        return
    before, mine = await engine.get_entry(BEAT_TABLE, BEAT), secrets.token_hex(8)
    await asyncio.sleep(BEATS_SEEN_S)
    if await engine.get_entry(BEAT_TABLE, BEAT) != before:
        raise BusyError(*AT_WORK)
    await engine.put_entries(BEAT_TABLE, {BEAT: mine.encode()})
    # If two begin at the same moment, the later word counts.
    await asyncio.sleep(BEATS_SEEN_S)
    if await engine.get_entry(BEAT_TABLE, BEAT) != mine.encode():
        raise BusyError(*AT_WORK)
    beating = asyncio.create_task(_beat(engine, mine))
    try:
        yield
    finally:
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating
        with contextlib.suppress(DrumlinError):
            await engine.delete_entries(BEAT_TABLE, [BEAT])


async def _beat(engine: Engine, mine: str) -> None:
    for number in itertools.count():
        # An engine that is away for a moment must not silence it for good.
        with contextlib.suppress(DrumlinError):
            await engine.put_entries(BEAT_TABLE, {BEAT: f"{mine} {number}".encode()})
        await asyncio.sleep(BEAT_S)
