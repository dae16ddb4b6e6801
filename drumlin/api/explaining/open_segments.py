"""What the journals of nodes say about one URL or one host, before readers of the tables can see it.

A row can be read up to a minute after its page, and a page that has been fetched but not settled has no row at all. A
node that shares the store has both in its journal. A journal is read as bytes and searched for the URL; only batches
that contain it are decoded, so 30 MB take about 0.03 s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from drumlin.model import Outcome
from drumlin.node.keeping.journal import Answer, ContactEntry, Entry, JournalBatch, batches_with
from drumlin.store.files import StoreFiles
from drumlin.store.spools import JOURNAL_SUFFIX, SPOOLS
from drumlin.store.tables.lookup import REDIRECT, StoredFetch, StoredLink, of_record
from drumlin.urls import host_of, identities, identity

JOURNAL_BYTES_MAX: Final = 256 * 1024 * 1024
"""What of one journal is read. Segments end long before; this bounds what a strange file can cost."""
FOLLOWED: Final = "a"
"""The kind of a link of which only that it was followed is known."""
_SPELLED: Final = re.compile("[%?;]")


class _Found(NamedTuple):
    """One result in a journal: what the tables will say of it, and the links that it told first."""

    fetch: StoredFetch
    links: list[str]


def unshown_fetches(files: StoreFiles, url: str, in_time: Callable[[], bool]) -> list[StoredFetch]:
    """The attempts on a URL in the journals of nodes that use this store."""
    page = identity(url)
    return [one.fetch for one in _results(files, _needle(page), in_time) if identity(one.fetch.url) == page]


def unshown_of_host(files: StoreFiles, host: str, in_time: Callable[[], bool]) -> list[StoredFetch]:
    """The attempts on the URLs of a host in the same journals."""
    return [one.fetch for one in _results(files, f"//{host}/".encode(), in_time) if host_of(one.fetch.url) == host]


def unshown_links(files: StoreFiles, url: str, in_time: Callable[[], bool]) -> list[StoredLink]:
    """Links and redirects to a URL in the same journals. A node tells a link with the first page that has it alone, and
    only a link that it follows."""
    page, found = identity(url), list[StoredLink]()
    for fetch, links in _results(files, _needle(page), in_time):
        if fetch.redirect_to and identity(fetch.redirect_to) == page:
            found.append(StoredLink(fetch.url, REDIRECT, "", 0, nofollow=False, soft_404=False))
        elif page in identities(links):
            found.append(StoredLink(fetch.url, FOLLOWED, "", 0, nofollow=False, soft_404=False))
    return found


def _needle(page: str) -> bytes:
    """What all spellings of a URL with this identity begin with."""
    return _SPELLED.split(page, maxsplit=1)[0].encode()


def _results(files: StoreFiles, needle: bytes, in_time: Callable[[], bool]) -> Iterator[_Found]:
    """The results and contacts that are in batches with the `needle`."""
    for folder in files.folders(SPOOLS):
        for file in files.files(f"{SPOOLS}/{folder}", JOURNAL_SUFFIX):
            if not in_time():
                return
            content = _content(files, f"{SPOOLS}/{folder}/{file.name}")
            yield from _in_journal(content, needle, file.name.removesuffix(JOURNAL_SUFFIX))


def _content(files: StoreFiles, path: str) -> bytes:
    try:
        with files.open(path) as file:
            return file.read(JOURNAL_BYTES_MAX)
    except OSError:
        # Its tables were completed meanwhile, and have what it had.
        return b""


def _in_journal(content: bytes, needle: bytes, segment: str) -> Iterator[_Found]:
    try:
        batches = batches_with(content, needle)
    except msgspec.MsgspecError:
        # A journal of another version.
        return
    for batch, answer in batches:
        yield from _counted(batch, answer, segment)


def _counted(batch: JournalBatch, answer: Answer | None, segment: str) -> Iterator[_Found]:
    """The members of a batch that count, or may: those that the coordinator has not rejected."""
    rejected = frozenset(answer.rejected) if answer else frozenset[int]()
    twins = {known.index: known.duplicate for known in answer.duplicates} if answer else {}
    for place, entry in enumerate(batch.entries):
        if place not in rejected:
            found = _stored(entry, segment, unsettled=answer is None)
            if twin := twins.get(place):
                found.duplicate_of, found.duplicate_kind = twin.url, "exact" if twin.exact else "near"
            yield _Found(found, entry.result.links)
    for contact in batch.contacts:
        # They settle no URL, so they count in any case.
        yield _Found(_shown_later(contact, segment), [])


def _stored(entry: Entry, segment: str, *, unsettled: bool) -> StoredFetch:
    found = _shown_later(entry, segment)
    found.found_on, found.redirects, found.unsettled = entry.found_on, entry.result.redirect_chain, unsettled
    found.page = bool(entry.warc_filename) and entry.fetch.outcome == Outcome.FETCHED
    return found


def _shown_later(entry: Entry | ContactEntry, segment: str) -> StoredFetch:
    """An attempt that tables show later, and where its answer is in the archive, if there was one."""
    found = of_record(entry.fetch, segment)
    found.unshown = True
    if entry.warc_filename:
        found.warc_filename, found.warc_offset = entry.warc_filename, entry.warc_offset
    return found
