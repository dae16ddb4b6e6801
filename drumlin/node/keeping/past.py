"""What earlier runs of a crawl have found: the links of pages and sitemaps, the targets of redirects, and the hosts
whose robots.txt was asked for. Most of it is in the tables. Links of sitemaps, and pages in the journal of a killed
node, are read again from the archive."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Final

from drumlin.config import CrawlConfig
from drumlin.errors import SiteError, StorageError
from drumlin.fetch.decode import decode_body
from drumlin.model import Capture, Outcome
from drumlin.node.keeping.archive import CrawlPaths
from drumlin.node.keeping.journal import FoundJournal
from drumlin.node.keeping.recovery import rebuild
from drumlin.node.main import make_pipeline
from drumlin.parse import FOLLOWED_KINDS, looks_like_sitemap, may_be_sitemap_type, parse_sitemap
from drumlin.store.copies import stored_capture
from drumlin.store.files import StoreFiles
from drumlin.store.spools import JOURNAL_SUFFIX
from drumlin.store.tables.past_links import (
    NOFOLLOW,
    PastFinds,
    PastLinks,
    past_hosts,
    past_links,
    past_redirects,
    stored_files,
)
from drumlin.urls import canonical

RECORD_BYTES_MAX: Final = 1 << 40
"""Sitemaps are read whole, as they were stored."""


def past_finds(paths: CrawlPaths, files: StoreFiles, config: CrawlConfig) -> PastFinds:
    """All that earlier runs found. No node may be at work in the directory."""

    def links() -> Iterator[PastLinks]:
        yield from past_links(files, FOLLOWED_KINDS)
        yield from _links_of_sitemaps(files, config)
        yield from _links_left(paths, config, FOLLOWED_KINDS)

    def hosts() -> Iterator[str]:
        yield from past_hosts(files)
        yield from _hosts_left(paths)

    return PastFinds(links, lambda: past_redirects(files) | _redirects_left(paths), hosts)


def _links_left(paths: CrawlPaths, config: CrawlConfig, kinds: Collection[str]) -> Iterator[PastLinks]:
    """The links of these kinds on pages that are in journals."""
    journals = list(_journals(paths))
    if not journals:
        return
    pipeline = make_pipeline(config)
    for journal in journals:
        for batch in journal.batches:
            # If the archive cannot be read, the node that recovers this journal will report it.
            with contextlib.suppress(StorageError):
                for arrival in rebuild(paths, batch.entries, pipeline):
                    if arrival.capture is not None and (targets := _targets(arrival.capture, kinds, config)):
                        yield PastLinks(arrival.capture.url, arrival.capture.depth, targets)


def _redirects_left(paths: CrawlPaths) -> dict[str, str]:
    """The targets of redirects that are in journals, by URL."""
    results = [entry.result for journal in _journals(paths) for batch in journal.batches for entry in batch.entries]
    found = {one.url: canonical(one.redirect_to, one.url) for one in results if one.outcome == Outcome.REDIRECTED}
    return {url: target for url, target in found.items() if target}


def _hosts_left(paths: CrawlPaths) -> Iterator[str]:
    """The hosts whose robots.txt was asked for, by the journals."""
    for journal in _journals(paths):
        yield from {contact.fetch.host for batch in journal.batches for contact in batch.contacts}


def _links_of_sitemaps(files: StoreFiles, config: CrawlConfig) -> Iterator[PastLinks]:
    """The URLs that stored sitemaps list; the table of links has only those of pages."""
    if not config.sitemaps:
        return
    for one in stored_files(files, may_be_sitemap_type):
        with contextlib.suppress(StorageError, SiteError, OSError):
            capture = stored_capture(files, one.warc_filename, one.warc_offset, RECORD_BYTES_MAX)
            encoding = capture.headers.get("content-encoding", "")
            body, _ = decode_body(capture.body_raw, encoding, config.body_decoded_bytes_max)
            if targets := _listed(one.url, one.mime, body):
                yield PastLinks(one.url, one.depth, targets)


def _journals(paths: CrawlPaths) -> Iterator[FoundJournal]:
    for path in sorted(paths.spools.glob("*/*" + JOURNAL_SUFFIX)):
        yield FoundJournal(path)


def _targets(capture: Capture, kinds: Collection[str], config: CrawlConfig) -> list[str]:
    if capture.nofollow or capture.soft_404 or capture.status >= 300:
        return []
    links = zip(capture.links.urls, capture.links.kinds, capture.links.rels, strict=True)
    targets = [url for url, kind, rel in links if url and kind in kinds and NOFOLLOW not in rel]
    return targets or (_listed(capture.url, capture.mime, capture.body) if config.sitemaps else [])


def _listed(url: str, mime: str, body: bytes) -> list[str]:
    """The pages and further sitemaps that a sitemap lists; nothing if it is not a sitemap."""
    if not looks_like_sitemap(mime, body):
        return []
    sitemap = parse_sitemap(body, url)
    hrefs = [*sitemap.sitemaps, *(entry.loc for entry in sitemap.urls)]
    return [target for href in hrefs if (target := canonical(href, url))]
