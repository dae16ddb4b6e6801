"""What the journals of nodes say about one URL or one host, before readers of the tables can see it.

A row can be read up to a minute after its page, and a page that has been fetched but not settled has no row at all. A
node that shares the store has both in its journal. A journal is read as bytes, a batch at a time, and searched for the
URL; only batches that contain it are decoded, so 30 MB take about 0.03 s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from drumlin.model import Outcome
from drumlin.node.keeping.journal import (
    Answer,
    Batch,
    ContactEntry,
    Entry,
    JournalBatch,
    LinklessBatch,
    LinklessEntry,
    look_through,
)
from drumlin.protocol import read_assignment_id
from drumlin.store.files import StoreFiles
from drumlin.store.spools import JOURNAL_SUFFIX, SPOOLS
from drumlin.store.tables.lookup import REDIRECT, StoredFetch, StoredLink, of_record
from drumlin.store.tables.reading import InTime, TimeUp, check_time
from drumlin.store.tables.rows import FetchRecord
from drumlin.urls import host_of, identities, identity

JOURNAL_BYTES_MAX: Final = 256 * 1024 * 1024
"""What of one journal is read. Segments end long before; this bounds what a strange file can cost."""
FOLLOWED: Final = "a"
"""The kind of a link of which only that it was followed is known."""
AnyEntry = Entry | LinklessEntry | ContactEntry
Wanted = Callable[[AnyEntry], bool]
_SPELLED: Final = re.compile("[%?;]")


def unshown_fetches(files: StoreFiles, url: str, in_time: InTime) -> list[StoredFetch]:
    """The attempts on a URL in the journals of nodes that use this store."""
    page = identity(url)
    return _found(files, LinklessBatch, _needle(page), lambda one: identity(one.fetch.url) == page, in_time)


def unshown_of_host(files: StoreFiles, host: str, in_time: InTime) -> list[StoredFetch]:
    """The attempts on the URLs of a host in the same journals."""
    return _found(files, LinklessBatch, f"//{host}/".encode(), lambda one: host_of(one.fetch.url) == host, in_time)


def unshown_links(files: StoreFiles, url: str, in_time: InTime) -> list[StoredLink]:
    """Links and redirects to a URL in the same journals. A node tells a link with the first page that has it alone, and
    only a link that it follows."""
    page = identity(url)

    def leads_here(fetch: FetchRecord | StoredFetch) -> bool:
        return bool(fetch.redirect_to) and identity(fetch.redirect_to) == page

    def refers(one: AnyEntry) -> bool:
        return leads_here(one.fetch) or (isinstance(one, Entry) and page in identities(one.result.links))

    return [
        StoredLink(one.url, REDIRECT if leads_here(one) else FOLLOWED, "", 0, nofollow=False, soft_404=False)
        for one in _found(files, JournalBatch, _needle(page), refers, in_time)
    ]


def _needle(page: str) -> bytes:
    """What all spellings of a URL with this identity begin with."""
    return _SPELLED.split(page, maxsplit=1)[0].encode()


def _found(files: StoreFiles, kind: type[Batch], needle: bytes, wanted: Wanted, in_time: InTime) -> list[StoredFetch]:
    """What is wanted of all journals, as far as there is time: the entries and contacts that count, or may."""
    found: list[StoredFetch] = []
    with suppress(TimeUp):
        check_time(in_time)
        for folder in files.folders(SPOOLS):
            check_time(in_time)
            for file in files.files(f"{SPOOLS}/{folder}", JOURNAL_SUFFIX):
                check_time(in_time)
                looked = _Journal(file.name.removesuffix(JOURNAL_SUFFIX), wanted)
                looked.look(files, f"{SPOOLS}/{folder}/{file.name}", kind, needle, in_time)
                found += looked.counted()
    return found


class _Journal:
    """A journal while it is looked through. Of a batch only what is wanted is kept: all batches of a hostile site
    together would not fit into memory."""

    def __init__(self, segment: str, wanted: Wanted) -> None:
        self._segment = segment
        self._wanted = wanted
        self._results: list[tuple[int, int, StoredFetch]] = []
        """With the number of the batch, and the place in it."""
        self._contacts: list[StoredFetch] = []
        self._answers: dict[int, Answer] = {}
        self._whole = False

    def look(self, files: StoreFiles, path: str, kind: type[Batch], needle: bytes, in_time: InTime) -> None:
        # A file that is gone: its tables were completed meanwhile, and have what it had.
        # Anything that cannot be decoded: a journal of another version.
        with suppress(OSError, msgspec.MsgspecError, TimeUp), files.open(path) as journal:
            for one in look_through(journal, JOURNAL_BYTES_MAX, kind, needle, in_time):
                if isinstance(one, Answer):
                    self._answers[one.batch] = one
                else:
                    self._take(*one)
            self._whole = True

    def _take(self, number: int, batch: JournalBatch | LinklessBatch) -> None:
        entries: Sequence[Entry | LinklessEntry] = batch.entries
        for place, entry in enumerate(entries):
            if self._wanted(entry):
                self._results.append((number, place, _stored(entry, self._segment)))
        self._contacts += [_shown_later(one, self._segment) for one in batch.contacts if self._wanted(one)]

    def counted(self) -> list[StoredFetch]:
        """What counts, or may: what the coordinator has not rejected. Contacts settle no URL, so they count in any
        case."""
        results = [fetch for number, place, fetch in self._results if self._counts(fetch, number, place)]
        return [*results, *self._contacts]

    def _counts(self, fetch: StoredFetch, number: int, place: int) -> bool:
        answer = self._answers.get(number)
        fetch.unsettled = answer is None
        if answer is None:
            # Its answer may stand in what was not read.
            return self._whole
        for known in answer.duplicates:
            if known.index == place:
                twin = known.duplicate
                fetch.duplicate_of, fetch.duplicate_kind = twin.url, "exact" if twin.exact else "near"
        return place not in answer.rejected


def _stored(entry: Entry | LinklessEntry, segment: str) -> StoredFetch:
    found = _shown_later(entry, segment)
    found.found_on, found.redirects = entry.found_on, entry.result.redirect_chain
    found.page = bool(entry.warc_filename) and entry.fetch.outcome == Outcome.FETCHED
    key = read_assignment_id(entry.result.assignment_id) if found.page else None
    # The table of pages has it too. With it, a seed is not told to have been found on a page that links to it.
    found.depth = key.depth if key is not None else None
    return found


def _shown_later(entry: AnyEntry, segment: str) -> StoredFetch:
    """An attempt that tables show later, and where its answer is in the archive, if there was one."""
    found = of_record(entry.fetch, segment)
    found.unshown = True
    if entry.warc_filename:
        found.warc_filename, found.warc_offset = entry.warc_filename, entry.warc_offset
    return found
