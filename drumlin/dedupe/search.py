"""Which earlier sketch of its domain is nearest to a given one, for a batch of sketches at a time.

The steps are taken for all sketches of a batch together, whatever their domains: numpy's calls cost more than the work
on one page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from drumlin.dedupe.overlap import bands_agreeing, overlaps
from drumlin.dedupe.runs import DomainSketches, Ordinals
from drumlin.dedupe.sketches import BANDS_AT, WORDS, Words

Selection = slice | list[int]
_Places = npt.NDArray[np.int64]


class Match(NamedTuple):
    """The nearest earlier sketch: how much it overlaps, and its ordinal in the domain, or its place in the batch."""

    overlap: float
    ordinal: int = -1
    place: int = -1


def as_words(sketches: Sequence[bytes]) -> Words:
    """Sketches as rows of words."""
    return np.frombuffer(b"".join(sketches), "<u8").reshape(-1, WORDS).astype(np.uint64, copy=False)


def nearest(domains: Sequence[DomainSketches], sketches: Words, overlap_min: float) -> list[Match | None]:
    """For each sketch, and the domain that it belongs to, the nearest one that is stored there or stands before it in
    the batch, if it overlaps enough. Of several that are as near it is the earliest."""
    matches: list[Match | None] = [None] * len(domains)
    for place, match in _stored(domains, sketches, overlap_min) + _in_batch(domains, sketches, overlap_min):
        best = matches[place]
        if best is None or match.overlap > best.overlap:
            matches[place] = match
    return matches


def _stored(domains: Sequence[DomainSketches], sketches: Words, overlap_min: float) -> list[tuple[int, Match]]:
    places, ordinals = _candidates(domains, sketches[:, BANDS_AT])
    if not len(places):
        return []
    stored = np.empty((len(places), WORDS), np.uint64)
    for domain, own in _by_domain(domains, places):
        stored[own] = domain.sketches(ordinals[own])
    found = overlaps(sketches[places], stored)
    near = np.flatnonzero(found >= overlap_min)
    chosen = zip(places[near].tolist(), found[near].tolist(), ordinals[near].tolist(), strict=True)
    # The earliest first: of several that are as near, the first stays.
    return sorted([(place, Match(overlap, ordinal)) for place, overlap, ordinal in chosen], key=_by_ordinal)


def _by_ordinal(found: tuple[int, Match]) -> int:
    return found[1].ordinal


def _by_domain(domains: Sequence[DomainSketches], places: _Places) -> Iterator[tuple[DomainSketches, Selection]]:
    """The domains of these places, each with which of the places are its own."""
    if len({id(domain) for domain in domains}) == 1:
        yield domains[0], slice(None)
        return
    chosen: dict[int, list[int]] = {}
    for at, place in enumerate(places.tolist()):
        chosen.setdefault(id(domains[place]), []).append(at)
    for own in chosen.values():
        yield domains[places[own[0]]], own


def _candidates(domains: Sequence[DomainSketches], bands: Words) -> tuple[_Places, Ordinals]:
    """Pairs of a place in the batch and an ordinal in its domain, of sketches that agree in a band."""
    tails = [domain.tail() for domain in domains]
    lengths = [len(tail) for tail, _ in tails]
    agreeing = np.flatnonzero(bands_agreeing(np.concatenate([tail for tail, _ in tails]), bands.repeat(lengths)))
    ends = np.cumsum(lengths)
    places = np.searchsorted(ends, agreeing, side="right")
    first_ordinals = np.array([first for _, first in tails]) - (ends - lengths)
    ordinals = (agreeing + first_ordinals[places]).astype(np.int32)
    more_places, more_ordinals = _listed(domains, bands)
    return np.concatenate((places, more_places)), np.concatenate((ordinals, more_ordinals))


def _listed(domains: Sequence[DomainSketches], bands: Words) -> tuple[_Places, Ordinals]:
    """The same pairs, of the sketches that are in runs."""
    lists: list[memoryview] = []
    lengths: list[int] = []
    for domain, one in zip(domains, bands.tolist(), strict=True):
        found = domain.lists(one)
        lists += found
        lengths.append(sum(map(len, found)))
    ordinals = np.frombuffer(b"".join(lists), np.int32)
    places = np.arange(len(lengths)).repeat(lengths)
    if not len(places):
        return places, ordinals
    listed = np.empty(len(places), np.uint64)
    for domain, own in _by_domain(domains, places):
        listed[own] = domain.bands(ordinals[own])
    agreeing = np.flatnonzero(bands_agreeing(listed, bands[places]))
    return places[agreeing], ordinals[agreeing]


def _in_batch(domains: Sequence[DomainSketches], sketches: Words, overlap_min: float) -> list[tuple[int, Match]]:
    """Place and match, for every sketch near to one that stands before it in the batch."""
    bands = sketches[:, BANDS_AT]
    later, earlier = np.nonzero(bands_agreeing(bands[:, None], bands))
    numbers = np.array([id(domain) for domain in domains])
    kept = (earlier < later) & (numbers[later] == numbers[earlier])
    later, earlier = later[kept], earlier[kept]
    if not len(later):
        return []
    found: npt.NDArray[np.float64] = overlaps(sketches[later], sketches[earlier])
    return [
        (place, Match(overlap, place=before))
        for place, overlap, before in zip(later.tolist(), found.tolist(), earlier.tolist(), strict=True)
        if overlap >= overlap_min
    ]
