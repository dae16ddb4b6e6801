"""Long work in parts, so that others have their turn in between.

A coordinator is one thread. What one request asks for may take seconds; cut into parts of some hundredths of a second,
with a breath after each, it delays nobody else by more than that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from drumlin.model import NewURLs

PART_WEIGHT = 5_000
"""What one part of adding URLs weighs: a few hundredths of a second. An honest batch is one part."""
GROUP_WEIGHT = 2
"""What a host weighs beside its URLs."""

Breathe = Callable[[], Awaitable[None]]


async def go_on() -> None:
    """No breath, for callers without an event loop."""


def slices(batches: Mapping[int, Sequence[NewURLs]]) -> Iterator[Mapping[int, Sequence[NewURLs]]]:
    """URLs by shard in parts of about `PART_WEIGHT`, in their order."""
    if sum(map(_weight, batches.values())) <= PART_WEIGHT:
        yield batches
        return
    part: dict[int, list[NewURLs]] = {}
    weight = 0
    for shard, found in batches.items():
        for new in found:
            for piece in _pieces(new):
                part.setdefault(shard, []).append(piece)
                weight += len(piece.urls) + GROUP_WEIGHT
                if weight >= PART_WEIGHT:
                    yield part
                    part, weight = {}, 0
    if part:
        yield part


def _weight(found: Sequence[NewURLs]) -> int:
    return sum(len(new.urls) + GROUP_WEIGHT for new in found)


def _pieces(new: NewURLs) -> Iterator[NewURLs]:
    if len(new.urls) <= PART_WEIGHT:
        yield new
        return
    for start in range(0, len(new.urls), PART_WEIGHT):
        urls = new.urls[start : start + PART_WEIGHT]
        yield NewURLs(new.host, urls, new.priority, new.depth, new.found_on, new.redirects)
