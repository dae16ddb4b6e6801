"""Brings segments that a coordinator has completed on its disk into a store that is elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from drumlin.api.intake.kept import NAME_PREFIX
from drumlin.disk import remove, scratch_folder, translated_disk_errors
from drumlin.lifecycle.removal.tombstones import stored
from drumlin.store.bundles import TABLES
from drumlin.store.files import StoreFiles
from drumlin.store.names import node_of_warc
from drumlin.store.spools import unfinished_segments
from drumlin.store.tables.schema import PAGES
from drumlin.store.tables.segments import PARQUET_SUFFIX
from drumlin.store.warc.cdxj import CDXJ_SUFFIX
from drumlin.store.warc.file import WARC_SUFFIX


def ship(folder: Path, files: StoreFiles) -> None:
    """Publish the complete segments of coordinators in a folder, and remove them there. A kill at any moment does no
    harm: `pages` are removed last, and a segment that is published again changes nothing."""
    with translated_disk_errors(folder):
        found = sorted((folder / "tables" / PAGES).glob(f"{NAME_PREFIX}*{PARQUET_SUFFIX}"))
        growing = unfinished_segments(folder)
        for pages in found:
            segment = pages.name.removesuffix(PARQUET_SUFFIX)
            if segment not in growing:
                members = _members(folder, segment)
                _publish(folder, files, segment, members)
                for path in sorted(members.values(), key=lambda path: path == pages):
                    remove(path)


def _publish(folder: Path, files: StoreFiles, segment: str, members: Mapping[str, Path]) -> None:
    """Publish a segment without what was removed on request: that may have been while it lay here, where a removal from
    another machine does not reach it."""
    removals, removed = files.removals(), stored(files)
    if not removed:
        files.publish(segment, members, removals)
    elif not files.has_segment(segment):
        # If the store has it already, it may have been written anew since, and must not be compared.
        # It loads what only a crawl needs from which something was removed.
        from drumlin.lifecycle.removal.bundles import take_out

        with scratch_folder(folder) as work:
            left = {member: work / member.replace("/", "-") for member in members}
            for member, path in members.items():
                # None of its files is changed: new ones take their places, so a kill leaves the segment as it was.
                os.link(path, left[member])
            take_out(left, removed.covers)
            files.publish(segment, left, removals)


def _members(folder: Path, segment: str) -> dict[str, Path]:
    """The files of a segment by their paths in the store. Its WARC file is named after the segment."""
    tables = [folder / "tables" / table / (segment + PARQUET_SUFFIX) for table in TABLES]
    warcs = [
        path
        for suffix in (WARC_SUFFIX, CDXJ_SUFFIX)
        for path in (folder / "warc").glob(f"*-{segment}{suffix}")
        if node_of_warc(path.name.removesuffix(suffix)) == segment
    ]
    return {path.relative_to(folder).as_posix(): path for path in [*warcs, *tables] if path.exists()}
