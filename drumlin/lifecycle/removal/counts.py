"""What a removal amounts to, in numbers: the same in a dry run and in the run."""

from __future__ import annotations

import msgspec


class Counts(msgspec.Struct):
    """How much of each kind is removed (or would be), and what others say of it and is kept."""

    hosts: int = 0
    """Hosts that the frontier does not know any more, with their paces."""
    notes: int = 0
    """Notes about hosts: robots rules and what else nodes learnt."""
    queued: int = 0
    scheduled: int = 0
    dead_letters: int = 0
    done: int = 0
    """Marks of URLs that are done."""
    contents: int = 0
    """Digests of contents, by which exact duplicates are known."""
    sketches: int = 0
    """Sketches of texts, by which near-duplicates are known."""
    values: int = 0
    """Seeds, orders, marks in the history and other small values of the crawl that named it."""
    origins: int = 0
    """Queued URLs of others that were found there: they stay, and where they were found is forgotten."""
    captures: int = 0
    """Responses and revisits in WARC files."""
    warc_records: int = 0
    """All records in WARC files: captures, their requests, and marks."""
    index_lines: int = 0
    pages: int = 0
    links: int = 0
    fetches: int = 0
    """Rows of the three tables."""
    journal_entries: int = 0
    log_lines: int = 0
    """Lines of logs, and entries of crawl.json and report.json."""
    checkpoints: int = 0
    """Checkpoints of the frontier that had something of it."""
    files: int = 0
    """Files of the store that are written anew."""
    missing_files: int = 0
    """Files of a store in a bucket whose objects are missing: damage from before, which a removal cannot look into."""
    kept_page_rows: int = 0
    kept_link_rows: int = 0
    kept_fetch_rows: int = 0
    kept_warc_records: int = 0
    kept_journal_entries: int = 0
    """Rows, records and entries of others in which the name occurs."""
    revisits_without_payload: int = 0
    """Revisit records of others whose payload was in a removed capture, and so is gone."""
    kept_settings: int = 0
    """Settings of the crawl, which its operators wrote, in which the name occurs."""

    def add(self, other: Counts) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def removed(self) -> int:
        """How many things of all kinds are removed."""
        return sum(getattr(self, name) for name in self.__struct_fields__ if name not in KEPT)

    @property
    def mentions(self) -> int:
        """How many rows, records and entries of others name it."""
        return sum(getattr(self, name) for name in self.__struct_fields__ if name.startswith("kept_"))


KEPT = frozenset(
    name
    for name in Counts.__struct_fields__
    if name.startswith("kept_") or name in ("revisits_without_payload", "files", "missing_files")
)
KEPT_ROWS = {"pages": "kept_page_rows", "links": "kept_link_rows", "fetches": "kept_fetch_rows"}
"""Where rows of others are counted, by their tables."""
