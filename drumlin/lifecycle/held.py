"""Which segments of a store in a bucket must not be joined with others, for those who join segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumlin.lifecycle.book import check_no_removal, holds_in, open_book
from drumlin.lifecycle.retention.found import newest_of, units
from drumlin.lifecycle.retention.planning import CLOCKS_DIFFER_S, held_by
from drumlin.lifecycle.retention.policy import Kind, Policy, Rule

if TYPE_CHECKING:
    from drumlin.store.objects.compaction import Segment
    from drumlin.store.objects.files import ObjectFiles


def held_segments(files: ObjectFiles) -> set[str]:
    """The segments that a hold covers; none if nothing is held, which costs one request. Otherwise every segment is
    read, so a store with a hold on a host is joined slowly."""
    holds = holds_in(files)
    if not holds.all:
        return set()
    segments = {item.segment for item in files.manifest.contents().items() if item.segment}
    if holds.of_all is not None:
        return segments
    found = units(files, Policy({Kind.TABLES: Rule()}), lambda kind, name: None)
    return {unit.name for unit in found if held_by(unit, holds) is not None} & segments


def begin_joining(files: ObjectFiles) -> str:
    """To be called before segments are joined; returns what `compact` wants to know of removals. RemovalUnderWay if one
    is not done: it would delete what is joined meanwhile."""
    removals = files.removals()
    check_no_removal(open_book(files).orders(), "files that are joined could be lost", "join segments")
    return removals


def next_to_join(files: ObjectFiles, kept: set[str], *, everything: bool = False) -> list[Segment]:
    """The segments to join next, without those in `kept`. Segments with a row or record that is dated ahead, or has no
    date that can be read, are left alone, and added to `kept`: retention never deletes them, and joined with others
    they would keep these too."""
    from drumlin.store.objects.compaction import due

    contents, latest = files.manifest.contents(), files.bucket.time() + CLOCKS_DIFFER_S
    while segments := due(contents, everything=everything, kept=kept):
        ahead = {one.name for one in segments if newest_of(files, [item.path for item in one.items]) > latest}
        if not ahead:
            break
        kept |= ahead
    return segments
