"""What two frontiers have in common, as a few numbers: a count and a digest of each section.

A digest is the sum of the hashes of all records, so their order does not matter, nor in which shard they are. The order
of a host's queue does matter: a queued task is hashed with its place in it. Ids of tasks do not, since an import may
give new ones; nor whether a task was leased, since nothing that is told is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from xxhash import xxh3_128_intdigest

from drumlin.engines.kept import (
    SHORT_BITS,
    Kept,
    KeptContent,
    KeptCounters,
    KeptDone,
    KeptSketch,
    KeptTask,
    Section,
    short_mark,
)

CALLED = {
    Section.COUNTERS: "totals",
    Section.HOSTS: "hosts",
    Section.QUEUED: "queued URLs",
    Section.SCHEDULED: "URLs to be tried again",
    Section.DEAD: "URLs that were given up",
    Section.DONE: "URLs that are done",
    Section.CONTENTS: "contents of pages, by which duplicates are found",
    Section.SKETCHES: "texts of pages, by which near-duplicates are found",
    Section.VALUES: "settings and notes",
}
"""What people call the sections."""
ALIKE = {
    Section.COUNTERS: "the totals of pages, bytes and answers",
    Section.HOSTS: "what is known of the hosts (delays, times of contact, robots.txt)",
    Section.QUEUED: "the queued URLs, or their order",
    Section.VALUES: "the settings, or what is noted of nodes, tokens and history",
}
"""What differs in a section that has as many records on both sides."""
DIGEST_BYTES = 12
"""How much of the digest of a content all engines keep."""
_MODULUS = 1 << 128
_encode = msgspec.msgpack.Encoder().encode


class Digest:
    """The numbers of one frontier. `mark_bits` is how much of a URL that is done is compared: no more than the one of
    the two knows that knows less."""

    def __init__(self, mark_bits: int) -> None:
        self._short = mark_bits <= SHORT_BITS
        self.counts: dict[Section, int] = dict.fromkeys(Section, 0)
        self.sums: dict[Section, int] = dict.fromkeys(Section, 0)
        self._counters: Counter[str] = Counter()
        self._group, self._place = "", 0

    def add(self, section: Section, records: Sequence[Kept]) -> None:
        total = 0
        for record in records:
            if isinstance(record, KeptDone):
                total += self._add_done(record)
            elif isinstance(record, KeptCounters):
                self._counters.update(record.counters)
            else:
                total += xxh3_128_intdigest(_encode(self._comparable(section, record)))
                self.counts[section] += 1
        self.sums[section] = (self.sums[section] + total) % _MODULUS

    def _add_done(self, record: KeptDone) -> int:
        host = record.host.encode() + b"\0"
        self.counts[Section.DONE] += record.urls
        if self._short:
            return sum(xxh3_128_intdigest(host + short_mark(mark)) for mark, _, _ in record.each())
        return sum(xxh3_128_intdigest(host + mark + attempt_id) for mark, _, attempt_id in record.each())

    def _comparable(self, section: Section, record: Kept) -> Any:
        if isinstance(record, KeptTask):
            task = record.task
            place = self._next_place(record.host) if section is Section.QUEUED else 0
            found = (task.url, task.priority, task.depth, task.found_on, task.redirects, task.added)
            past = (task.attempts, task.crashes, record.attempt_id, record.first_failed, record.retry_at)
            return (record.host, record.state, place, *found, *past, record.kind, record.error, record.last_failed)
        if isinstance(record, KeptContent):
            content = record.content
            known = (content.domain, content.digest[:DIGEST_BYTES], content.url, content.fetched, content.record_id)
            return (*known, record.near)
        if isinstance(record, KeptSketch):
            return (record.domain, self._next_place(record.domain), record.digest[:DIGEST_BYTES], record.sketch)
        return record

    def _next_place(self, group: str) -> int:
        """The place of a record among those of its host or domain, which follow one another."""
        if group != self._group:
            self._group, self._place = group, 0
        self._place += 1
        return self._place

    def finish(self) -> None:
        """Counters are compared as sums over all shards."""
        for name, value in self._counters.items():
            if value:
                self.counts[Section.COUNTERS] += 1
                self.sums[Section.COUNTERS] += xxh3_128_intdigest(_encode((name, value)))
        self._counters.clear()


def differences(one: Digest, other: Digest) -> list[str]:
    """In what two frontiers differ, in a few words each."""
    found = []
    for section in Section:
        mine, its = one.counts[section], other.counts[section]
        if section is not Section.COUNTERS and mine != its:
            found.append(f"{CALLED[section]} ({mine:,} and {its:,})")
        elif one.sums[section] != other.sums[section]:
            found.append(ALIKE.get(section, f"some of the {CALLED[section]}"))
    return found
