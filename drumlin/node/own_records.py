"""Which records a node has written itself, of late: the only ones that it is sure of.

A page that repeats another is archived without its body, as a `revisit` of the other's record. Where nodes belong to
different people, the other may be a node that lies: it names a record that does not exist, for contents that it has
only heard of, and the body would be lost. So where nodes show tokens, a node refers to its own records alone, and
archives in full what repeats those of others. The tables call it a duplicate all the same.
"""

from __future__ import annotations

from collections.abc import Iterable

RECORDS_MAX = 100_000
"""In each of two generations: with their ids, some 30 MB at most."""


class OwnRecords:
    """The ids of records, those of the last `records_max` at least."""

    def __init__(self, records_max: int = RECORDS_MAX) -> None:
        self._records_max = records_max
        self._recent: set[str] = set()
        self._before: set[str] = set()

    def __contains__(self, record_id: str) -> bool:
        return record_id in self._recent or record_id in self._before

    def add(self, record_ids: Iterable[str]) -> None:
        self._recent.update(record_ids)
        if len(self._recent) >= self._records_max:
            self._before, self._recent = self._recent, set()
