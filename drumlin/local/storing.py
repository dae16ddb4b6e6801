"""Where the pages of a crawl on one machine end up, and what of them has not arrived there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.taking.owed import fetch_again, owed_segments, paid
from drumlin.events.coordinating import events_left
from drumlin.lines import counted
from drumlin.local.directory import CrawlDirectory
from drumlin.node.keeping.bundles import BUNDLE_SUFFIXES
from drumlin.store.files import StoreFiles
from drumlin.store.opening import in_bucket, open_store
from drumlin.store.spools import JOURNAL_SUFFIX, KEPT_SUFFIX

LEFT = (JOURNAL_SUFFIX, KEPT_SUFFIX, *BUNDLE_SUFFIXES)
"""The suffixes of files in spools that hold what is not in the store yet."""


async def open_crawl_store(directory: CrawlDirectory, objects: str) -> StoreFiles:
    """Open the store: the directory, or the bucket `objects`. One that cannot be written is told before the first page
    is fetched."""
    files = open_store(objects or directory.root)
    if objects:
        await asyncio.to_thread(files.probe)
        directory.note_store(objects)
    return files


async def found_crawl_store(files: StoreFiles, crawl: str) -> None:
    """Refuse a bucket that has the pages of another crawl."""
    bucket = in_bucket(files)
    if bucket is not None:
        from drumlin.store.objects.founding import found_store

        await asyncio.to_thread(found_store, bucket, crawl)


def segments_left(directory: CrawlDirectory) -> set[str]:
    """The segments of which something waits on this disk."""
    return {path.stem for suffix in LEFT for path in directory.paths.spools.glob(f"*/*{suffix}")}


async def told_left(directory: CrawlDirectory, files: StoreFiles) -> bool:
    """Whether events wait for a broker."""
    return await asyncio.to_thread(events_left, directory.root, in_bucket(files))


async def fetch_lost_again(
    dispatcher: Dispatcher, directory: CrawlDirectory, files: StoreFiles, now: float, say: Callable[[str], None]
) -> None:
    """Queue pages again that were settled, are not in the bucket, and are not on this disk either."""
    engine, left = dispatcher.engine, segments_left(directory)
    for owed in await owed_segments(engine) if in_bucket(files) is not None else []:
        if await asyncio.to_thread(files.has_segment, owed.name):
            await paid(engine, owed.name)
        elif owed.name not in left:
            again = await fetch_again(engine, owed.name, now)
            say(f"{counted(again, 'page')} of {owed.name} never arrived in {files}: fetched again.")
