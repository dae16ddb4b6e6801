"""Rebuilds the near-duplicate index of a crawl that an earlier version of drumlin began.

Sketches of another format cannot be compared with today's and are never read. But the texts that they were made from
are in the store, so new sketches can be made. A process that has the store does this once: a crawl on one machine
before it goes on, a coordinator of a fleet beside its other work. Without the store the index fills only with what is
fetched from now on. Exact duplicates are recognised all the time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from drumlin.dedupe import SKETCH_FORMAT, sketches
from drumlin.engines.base import Engine
from drumlin.model import Content
from drumlin.store.files import StoreFiles
from drumlin.store.tables.past_pages import PastPage, past_pages

FORMAT_KEY = "sketches"
CLAIM = "resketcher"
CLAIM_S = 60.0
WHY = "this version recognises near-duplicates in another way, so it reads the texts of stored pages again"

log = logging.getLogger("drumlin.coordinator")


async def has_older_sketches(engine: Engine) -> bool:
    """Whether an existing crawl has contents whose sketches an earlier version made."""
    return await engine.get_meta(FORMAT_KEY) != SKETCH_FORMAT


async def note_sketches(engine: Engine) -> None:
    """Note that all contents of the crawl have sketches of today's format."""
    await engine.put_meta(FORMAT_KEY, SKETCH_FORMAT)


async def make_sketches_anew(engine: Engine, files: StoreFiles) -> int:
    """Make new sketches of all stored pages; returns how many pages have one."""
    pages = 0
    stored = past_pages(files)
    while (batch := await asyncio.to_thread(_sketched, stored)) is not None:
        await engine.contents.adopt(batch)
        pages += len(batch)
    await note_sketches(engine)
    return pages


async def make_sketches_anew_in_turn(
    engine: Engine, files: StoreFiles, name: str, time: Callable[[], Awaitable[float]]
) -> None:
    """The same if there are several coordinators: the first one that gets a claim does it."""
    now = await time()
    if await has_older_sketches(engine) and await engine.claim(CLAIM, name, now, until=now + CLAIM_S):
        log.info("%s", WHY)
        log.info("near-duplicates of %d stored pages are found again", await make_sketches_anew(engine, files))


def _sketched(stored: Iterator[list[PastPage]]) -> list[Content] | None:
    """The next contents, with sketches; None after the last."""
    pages = next(stored, None)
    if pages is None:
        return None
    made = sketches([page.text for page in pages])
    return [
        Content(page.domain, page.url, page.digest, sketch, page.fetched, page.record_id)
        for page, sketch in zip(pages, made, strict=True)
        if sketch is not None
    ]
