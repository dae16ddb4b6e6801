"""Rows for what counted of a batch, for whoever stores pages: a node, or a coordinator for workers without a store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from drumlin.model import Capture, Outcome
from drumlin.protocol import KnownPage, Result
from drumlin.store.tables.rows import FetchRecord
from drumlin.store.tables.segments import SegmentWriter


class Storable(Protocol):
    """The end of one URL: its result, its line of the fetch log, and its capture, if there is one."""

    @property
    def result(self) -> Result: ...

    @property
    def fetch(self) -> FetchRecord: ...

    @property
    def capture(self) -> Capture | None: ...


def add_counted(
    tables: SegmentWriter,
    batch: Sequence[Storable],
    left_out: Collection[int],
    duplicates: Iterable[KnownPage],
    contacts: Iterable[FetchRecord] = (),
) -> int:
    """Add rows for the members of a batch whose places are not `left_out`: each to `fetches`, pages also to `pages` and
    `links`, with what they are duplicates of. `contacts` are further lines of `fetches`. Returns how many counted."""
    for known in duplicates:
        capture = batch[known.index].capture
        if capture is not None:
            capture.duplicate = known.duplicate
    out = frozenset(left_out)
    counted = [one for place, one in enumerate(batch) if place not in out]
    pages = [one.capture for one in counted if one.capture and one.result.outcome == Outcome.FETCHED]
    tables.add(pages, [*(one.fetch for one in counted), *contacts])
    return len(counted)
