"""Scrapy as a second opinion on which pages a site has: `python manual_spider.py SEED…` prints URL and status.

It follows what drumlin follows by default (a, area, frame, iframe; not rel=nofollow) within the hosts of its seeds.
Runs in the environment of the benchmarks, where drumlin is not installed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse

LINKS = "//a[@href] | //area[@href] | //frame[@src] | //iframe[@src]"
SETTINGS = {
    "LOG_LEVEL": "ERROR",
    "TELNETCONSOLE_ENABLED": False,
    "COOKIES_ENABLED": False,
    "ROBOTSTXT_OBEY": True,
    "DOWNLOAD_DELAY": 0,
    "CONCURRENT_REQUESTS": 16,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "HTTPERROR_ALLOW_ALL": True,
    "URLLENGTH_LIMIT": 0,
}


class ManualSpider(scrapy.Spider):  # type: ignore[misc]  # Scrapy is not installed where types are checked
    """Everything below its seeds' hosts, each URL once."""

    name = "manuals"

    def parse(self, response: Any) -> Iterator[Any]:
        sys.stdout.write(json.dumps([response.url, response.status]) + "\n")
        if not isinstance(response, HtmlResponse) or response.status != 200:
            return
        for link in response.xpath(LINKS):
            rel = link.attrib.get("rel", "").lower().split()
            target = response.urljoin(link.attrib.get("href", link.attrib.get("src", "")).strip())
            address = urlsplit(target)
            if address.scheme in ("http", "https") and address.netloc in self.netlocs and "nofollow" not in rel:
                yield scrapy.Request(target)


def main(seeds: list[str]) -> None:
    process = CrawlerProcess(SETTINGS)
    process.crawl(ManualSpider, start_urls=seeds, netlocs={urlsplit(seed).netloc for seed in seeds})
    process.start()


if __name__ == "__main__":
    main(sys.argv[1:])
