"""The records that a node has written itself lately: the only ones of which it can be sure.

A page with the same content as another is archived without its body, as a `revisit` of the other's record. If nodes
belong to different people, the other node may lie: it may name a record that does not exist, and then the body would be
lost. So if access is controlled, a node refers only to its own records, and archives pages in full that repeat those of
others. The tables call such a page a duplicate all the same.
"""

from __future__ import annotations

from collections.abc import Iterable

RECORDS_MAX = 100_000
"""How many records each of the two generations holds: some 30 MB at most."""


class OwnRecords:
    """The ids of at least the last `records_max` records."""

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
