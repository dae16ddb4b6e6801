"""The loop of a crawl. Read this file first.

    seeds ─► canonical URL ─► seen? ─► frontier ─► lease ─► robots ─► fetch ─► decode ─► parse ─► fingerprint
                                ▲                                                                   │
                                └──────────┐                                                        ▼
    index, Parquet ◄─ settle ◄─ contents ◄─ links ◄─ send ◄─ WARC, journal ◄─ content known? ◄─ discover links

    which stages                       what they are           where they are
    canonical URL to lease             what is decided         drumlin.coordinator over drumlin.engines
    lease to fetch                     contact with sites      drumlin.contact decides, drumlin.node performs
    decode to discover links           this file               over drumlin.parse, drumlin.dedupe, drumlin.reading
    content known? to send             archiving               drumlin.node (settling, keeping), drumlin.store
    links, contents, settle            what is decided         drumlin.coordinator.taking
    index, Parquet                     publishing              drumlin.node.keeping, once the results are answered

A response is on disk before its result is sent, links are known before their page is settled, and only what was settled
is published. So when a process dies, its URL is leased again or its result is sent again: no page is lost, and none is
published twice.

The stages in this file run over a batch of pages, each stage over all of them. What they do is in `drumlin.reading`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drumlin.dedupe import digest, sketches
from drumlin.fetch.decode import decode_body, decoded_bytes_max
from drumlin.model import Capture
from drumlin.parse import parse_all, sniff
from drumlin.reading import LINKS_MANY, Discovery, PageReader, Reading, is_page, source_of
from drumlin.store import UNSPECIFIED, record_id_of
from drumlin.urls import Scope


class Pipeline:
    """The stages between fetch and store, with the caches that make them cheap. One per node."""

    def __init__(
        self,
        reading: Reading,
        make_scope: Callable[[list[str]], Scope],
        *,
        year: int,
        before_parse: Callable[[str], None],
    ) -> None:
        self._reading = reading
        self._before_parse = before_parse
        self._pages = PageReader(reading.agent)
        self._discovery = Discovery(reading, make_scope, year=year, before_parse=before_parse)
        self.discover = self._discovery.discover
        """The last stage, for one page: its links that the frontier should hear of."""

    def decode_body(self, capture: Capture) -> None:
        """The first stage, for one page: decode its body. Raises SiteError if the body cannot be decoded. It is done
        now and not when the body arrives, because hundreds of bodies can arrive at once and each may grow a
        thousandfold when it is decoded."""
        encoding = capture.headers.get("content-encoding", "")
        if encoding and capture.body_raw and not capture.body:
            most = decoded_bytes_max(capture.body_raw, self._reading.body_decoded_bytes_max)
            capture.body, complete = decode_body(capture.body_raw, encoding, most)
            capture.truncated = capture.truncated or ("" if complete else UNSPECIFIED)

    def read(self, captures: Sequence[Capture]) -> None:
        """Parse and fingerprint a batch: fills in each capture's page, links and fingerprints."""
        # Stage by stage, not page by page: each then finds its code and its tables in the CPU's caches.
        for capture in captures:
            capture.digest = digest(capture.body)
        for capture in captures:
            capture.record_id = record_id_of(capture)
            capture.mime = sniff(capture.headers.get("content-type", ""), capture.body)
        pages = [capture for capture in captures if is_page(capture)]
        parsed = parse_all(list(map(source_of, pages)), self._before_parse, agent=self._reading.agent)
        for capture, page in zip(pages, parsed, strict=True):
            if len(page.hrefs) > LINKS_MANY:
                # Resolving so many links takes long. If the process dies of it, this page is to blame, not the one that
                # was parsed last.
                self._before_parse(capture.url)
            self._pages.fill(capture, page)
        if self._reading.near_duplicates:
            texts = [capture.text if capture.status < 300 else b"" for capture in captures]
            for capture, sketch in zip(captures, sketches(texts), strict=True):
                capture.sketch = sketch

    # The scope, and which links the frontier has to hear of again: all of this is `drumlin.reading.discovery`.

    @property
    def scope_version(self) -> int:
        return self._discovery.scope_version

    def in_scope(self, url: str) -> bool:
        return self._discovery.in_scope(url)

    def widen_scope(self, seeds: list[str], version: int) -> None:
        self._discovery.widen_scope(seeds, version)

    def follow_scope(self, make_scope: Callable[[list[str]], Scope]) -> None:
        self._discovery.follow_scope(make_scope)

    def tell_again(self) -> None:
        self._discovery.tell_again()

    def tell_links_again(self, capture: Capture) -> None:
        self._discovery.tell_links_again(capture)

    def tell_urls_again(self, urls: Sequence[str]) -> None:
        self._discovery.tell_urls_again(urls)
