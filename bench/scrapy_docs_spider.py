"""Scrapy as its documentation teaches it, on the benchmark web: `python bench/scrapy_docs_spider.py SEEDS OUT`.

A CrawlSpider with a rule that follows all links, in the one process that `scrapy crawl` is, with every setting that
Scrapy's page on broad crawls recommends, robots.txt obeyed, and items written by the feed export. A reader of the
manual gets this; scrapy_spider.py is what somebody gets after profiling Scrapy for a day.

Runs in an environment of its own (bench/requirements.txt), where drumlin is not installed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

BROAD_CRAWL: dict[str, Any] = {
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    "CONCURRENT_REQUESTS": 100,
    "REACTOR_THREADPOOL_MAXSIZE": 20,
    "LOG_LEVEL": "INFO",
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "DOWNLOAD_TIMEOUT": 15,
    "REDIRECT_ENABLED": False,
    # Breadth first, which the same page recommends for memory's sake.
    "DEPTH_PRIORITY": 1,
    "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
    "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
}


def crawl(seeds: list[str], output: Path) -> None:
    from scrapy import Request
    from scrapy.crawler import CrawlerProcess
    from scrapy.linkextractors import LinkExtractor
    from scrapy.spiders import CrawlSpider, Rule

    hosts = sorted({urlsplit(seed).hostname or "" for seed in seeds})

    class BroadSpider(CrawlSpider):
        name = "broad"
        allowed_domains = hosts
        rules = (Rule(LinkExtractor(), callback="parse_page", follow=True),)

        async def start(self) -> Any:
            # `start_urls` would not pass the seeds through the duplicate filter, so a link to one would fetch it again.
            for seed in seeds:
                yield Request(seed)

        def parse_start_url(self, response: Any, **_: Any) -> Any:
            return self.parse_page(response)

        def parse_page(self, response: Any) -> Any:
            title = response.xpath("//title/text()").get()
            return {"url": response.url, "status": response.status, "title": title, "body": response.text}

    choices = {
        "ROBOTSTXT_OBEY": True,
        # A new project has a delay of one second for each host, but this web asks for none.
        "DOWNLOAD_DELAY": 0,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
        "USER_AGENT": "scrapy-bench",
        "FEEDS": {str(output): {"format": "jsonlines"}},
    }
    process = CrawlerProcess(BROAD_CRAWL | choices)
    process.crawl(BroadSpider)
    process.start()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    crawl(options.seeds.read_text().split(), options.out / "pages.jsonl")
    return 0


if __name__ == "__main__":
    sys.exit(main())
