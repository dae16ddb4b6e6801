"""The web that the load test's nodes pretend to fetch: hosts with heavy-tailed sizes, URLs of usual length, links.

Hosts are numbers wherever possible, since the generator shares its cores with what it measures. A page's links are
those that pass a node's own filter: half of them are new to the crawl and half are known, most on the page's own host.
Every URL ends as a fetched page, unless the web is `mixed`: then URLs end as Common Crawl's did in 2026-30 (of
those that were decided, 78 % were fetched, 8 % redirected, 5 % not found, 7 % denied by robots.txt, 2 % failed).
"""

from __future__ import annotations

import math
import os
import random
from typing import NamedTuple

from bench.dedupe import made_up_sketch
from drumlin.protocol import Result

HOST_PREFIX = "www.site-"
HOST_SUFFIX = ".example"
URLS_PER_HOST_MEAN = 53.0
"""URLs divided by hosts in Common Crawl 2026-30; hosts of a real crawl differ widely around it."""
SIZE_SPREAD = 1.5
"""Standard deviation of the logarithm of a host's size."""
LINKS_NEW = 5
LINKS_KNOWN = 5
PAGE_BYTES = 37_000
SLUGS = 4_096
WORDS = (
    "harbour",
    "winter",
    "ledger",
    "granite",
    "meadow",
    "signal",
    "copper",
    "lantern",
    "orchard",
    "tunnel",
    "velvet",
    "canyon",
    "timber",
    "mosaic",
    "beacon",
    "thistle",
    "quarry",
    "ribbon",
    "saddle",
    "walnut",
    "glacier",
    "pepper",
    "anchor",
    "violin",
    "compass",
    "cedar",
    "falcon",
    "ember",
    "marble",
    "prairie",
)

# Shares of the 2.8 billion URLs that were decided in a crawl of Common Crawl's, as cumulative bounds.
REDIRECTED_BELOW = 0.080
NOT_FOUND_BELOW = 0.129
DENIED_BELOW = 0.202
FAILED_BELOW = 0.223


class Page(NamedTuple):
    """One leased URL that a simulated node pretends to have fetched."""

    assignment_id: str
    url: str
    host: int


class LoadWeb:
    """The hosts, and how many URLs of each the generator has given out so far."""

    def __init__(self, hosts: int, seed: int, *, mixed: bool = False) -> None:
        self.chance = random.Random(seed)
        self.mixed = mixed
        self.sizes = [0] * hosts
        self._prefixes = [f"https://{HOST_PREFIX}{number}{HOST_SUFFIX}/articles/" for number in range(hosts)]
        self._slugs = ["-".join(self.chance.choices(WORDS, k=4)) for _ in range(SLUGS)]

    def host_name(self, host: int) -> str:
        return f"{HOST_PREFIX}{host}{HOST_SUFFIX}"

    def url(self, host: int, path: int) -> str:
        return f"{self._prefixes[host]}{path}/{self._slugs[(host * 31 + path) % SLUGS]}"

    def new_url(self, host: int) -> str:
        path = self.sizes[host]
        self.sizes[host] = path + 1
        return self.url(host, path)

    def initial_sizes(self, urls: int) -> list[int]:
        """How many URLs each host begins with: about `urls` in all, lognormally spread, at least one each."""
        draws = [math.exp(self.chance.gauss(0.0, SIZE_SPREAD)) for _ in self.sizes]
        scale = urls / sum(draws)
        return [max(1, round(draw * scale)) for draw in draws]

    def links(self, host: int) -> list[str]:
        """The links of a page: half of them are new to the crawl. One leads to another host; it is by turns new or
        known."""
        draw = self.chance.random()
        elsewhere = int(draw * len(self.sizes))
        new, known = (LINKS_NEW - 1, LINKS_KNOWN) if elsewhere % 2 else (LINKS_NEW, LINKS_KNOWN - 1)
        size, prefix, slugs, turn = self.sizes[host], self._prefixes[host], self._slugs, host * 31
        first = int(draw * max(1, size - known))
        self.sizes[host] = size + new
        paths = (*range(size, size + new), *range(first, first + known))
        found = [f"{prefix}{path}/{slugs[(turn + path) % SLUGS]}" for path in paths]
        found.append(self.new_url(elsewhere) if elsewhere % 2 else self.url(elsewhere, 0))
        return found

    def results(self, pages: list[Page], digests: list[str], now: float) -> list[Result]:
        return [self._result(page, digest, now) for page, digest in zip(pages, digests, strict=True)]

    def _result(self, page: Page, digest: str, now: float) -> Result:
        draw = self.chance.random() if self.mixed else 1.0
        if draw < FAILED_BELOW:
            return self._without_page(page, draw, digest, now)
        return Result(
            page.assignment_id,
            page.url,
            200,
            digest,
            self.links(page.host),
            now,
            "fetched",
            size=PAGE_BYTES,
            sketch=made_up_sketch(self.chance),
            capture_id=digest[:24],
            record_id=f"urn:uuid:{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}",
            mime="text/html",
        )

    def _without_page(self, page: Page, draw: float, digest: str, now: float) -> Result:
        result = Result(page.assignment_id, page.url, 0, "", [], now, "failed", capture_id=digest[:24])
        if draw < REDIRECTED_BELOW:
            result.status_code, result.outcome, result.redirect_to = 301, "redirected", self.new_url(page.host)
        elif draw < NOT_FOUND_BELOW:
            result.status_code, result.kind, result.error = 404, "http_4xx", "status 404"
        elif draw < DENIED_BELOW:
            result.outcome, result.kind, result.error = "denied", "robots", "disallowed"
        else:
            result.kind, result.error = "timeout", "no answer in 30 s"
        return result


def host_number(name: str) -> int:
    """The number of a host by its name."""
    return int(name[len(HOST_PREFIX) : -len(HOST_SUFFIX)])


def random_digests(count: int) -> list[str]:
    """So many sha256 digests in hexadecimal; no two are equal."""
    text = os.urandom(32 * count).hex()
    return [text[start : start + 64] for start in range(0, 64 * count, 64)]
