"""Which segments of a store in a bucket a hold covers, for those who join segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumlin.lifecycle.book import holds_in
from drumlin.lifecycle.retention.found import units
from drumlin.lifecycle.retention.planning import held_by
from drumlin.lifecycle.retention.policy import Kind, Policy, Rule

if TYPE_CHECKING:
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
