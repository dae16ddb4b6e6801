"""Finds the earlier sketch of its domain that is nearest to a given one, for a batch of sketches at a time.

Each step is done for all sketches of a batch together, also if they are of several domains: for a single page, calling
numpy would cost more than the work itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from drumlin.dedupe.overlap import bands_agreeing, overlaps
from drumlin.dedupe.runs import TABLE_BITS, TABLES, DomainSketches, Ordinals
from drumlin.dedupe.sketches import BANDS_AT, WORDS, Words

Selection = slice | list[int]
_Places = npt.NDArray[np.int64]
_NO_PLACES, _NO_ORDINALS = np.empty(0, np.int64), np.empty(0, np.int32)
_TABLE_NUMBERS = np.arange(TABLES, dtype=np.int64) << TABLE_BITS


class Match(NamedTuple):
    """The nearest earlier sketch: how much it overlaps, and its ordinal in the domain, or its place in the batch."""

    overlap: float
    ordinal: int = -1
    place: int = -1


def as_words(sketches: Sequence[bytes]) -> Words:
    """Sketches as rows of words."""
    return np.frombuffer(b"".join(sketches), "<u8").reshape(-1, WORDS).astype(np.uint64, copy=False)


def nearest(domains: Sequence[DomainSketches], sketches: Words, overlap_min: float) -> list[Match | None]:
    """For each sketch the nearest one that is stored in its domain or stands before it in the batch, if it overlaps
    enough. Of several that are equally near it is the earliest. `domains` has the domain of each sketch."""
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
    # The earliest come first, since `nearest` keeps the first of several that are equally near.
    return sorted([(place, Match(overlap, ordinal)) for place, overlap, ordinal in chosen], key=_by_ordinal)


def _by_ordinal(found: tuple[int, Match]) -> int:
    return found[1].ordinal


def _by_domain(domains: Sequence[DomainSketches], places: _Places) -> Iterator[tuple[DomainSketches, Selection]]:
    """Each domain of these places, with the indices of the places that belong to it."""
    if len({id(domain) for domain in domains}) == 1:
        yield domains[0], slice(None)
        return
    chosen: dict[int, list[int]] = {}
    for at, place in enumerate(places.tolist()):
        chosen.setdefault(id(domains[place]), []).append(at)
    for own in chosen.values():
        yield domains[places[own[0]]], own


def _candidates(domains: Sequence[DomainSketches], bands: Words) -> tuple[_Places, Ordinals]:
    """Pairs of sketches that agree in a band: the place of one in the batch, and the ordinal of one in its domain."""
    known = {domain: domain.tail() for domain in set(domains)}
    tails = [known[domain] for domain in domains]
    lengths = [len(tail) for tail, _ in tails]
    agreeing = np.flatnonzero(bands_agreeing(np.concatenate([tail for tail, _ in tails]), bands.repeat(lengths)))
    more_places, more_ordinals = _listed(domains, bands)
    if not len(agreeing):
        return more_places, more_ordinals
    ends = np.cumsum(lengths)
    places = np.searchsorted(ends, agreeing, side="right")
    first_ordinals = np.array([first for _, first in tails]) - (ends - lengths)
    ordinals = (agreeing + first_ordinals[places]).astype(np.int32)
    return np.concatenate((places, more_places)), np.concatenate((ordinals, more_ordinals))


def _listed(domains: Sequence[DomainSketches], bands: Words) -> tuple[_Places, Ordinals]:
    """The same pairs, with the sketches that are in runs."""
    if not any(domain.has_runs for domain in set(domains)):
        return _NO_PLACES, _NO_ORDINALS
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


def _any_agree(bands: Words, numbers: _Places) -> bool:
    """Whether any two sketches of one domain agree in a band. It takes far less time than comparing all pairs, and the
    answer is nearly always no."""
    quarters = bands.astype("<u8").view("<u2").reshape(-1, TABLES).astype(np.int64)
    quarters += _TABLE_NUMBERS
    quarters += numbers[:, None] << (TABLE_BITS + 2)
    marks = quarters.ravel()
    marks.sort()
    return bool((marks[1:] == marks[:-1]).any())


def _in_batch(domains: Sequence[DomainSketches], sketches: Words, overlap_min: float) -> list[tuple[int, Match]]:
    """Place and match of every sketch that is near to one before it in the batch."""
    bands = sketches[:, BANDS_AT]
    places = {domain: place for place, domain in enumerate(domains)}
    numbers = np.array([places[domain] for domain in domains])
    if not _any_agree(bands, numbers):
        return []
    later, earlier = np.nonzero(bands_agreeing(bands[:, None], bands))
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
