"""Scrapy as a crawler of the benchmark web, tuned: `python bench/scrapy_spider.py SEEDS OUT --processes 2`.

Scrapy uses one core, so one process per core is started and the hosts are split between them; every page of a host
is reachable within the host, so all together fetch what a single process would. Each runs on uvloop, without the
parts of Scrapy that this crawl has no use for (cookies, retries, redirects, logs, telnet, statistics of depth …), obeys
robots.txt, and writes URL, status, title and body of each page as JSON lines. It writes neither text nor WARC nor
fingerprints and so does less than drumlin does. With --same-job it also extracts the text and writes each response as
a WARC record (warcio) instead of the body, which is nearer to drumlin's job, though still without duplicates.

Runs in an environment of its own (bench/requirements.txt), where drumlin is not installed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CONCURRENCY = 256
CONCURRENCY_PER_HOST = 4
WRITE_BUFFER_BYTES = 1 << 20
VISIBLE_TEXT = "//body//text()[not(ancestor::script or ancestor::style)]"

OFF: dict[str, None] = {
    "scrapy.downloadermiddlewares.httpauth.HttpAuthMiddleware": None,
    "scrapy.downloadermiddlewares.retry.RetryMiddleware": None,
    "scrapy.downloadermiddlewares.redirect.MetaRefreshMiddleware": None,
    "scrapy.downloadermiddlewares.redirect.RedirectMiddleware": None,
    "scrapy.downloadermiddlewares.cookies.CookiesMiddleware": None,
    "scrapy.downloadermiddlewares.httpproxy.HttpProxyMiddleware": None,
    "scrapy.downloadermiddlewares.stats.DownloaderStats": None,
}
SPIDER_OFF: dict[str, None] = {
    "scrapy.spidermiddlewares.referer.RefererMiddleware": None,
    "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware": None,
    "scrapy.spidermiddlewares.depth.DepthMiddleware": None,
}
EXTENSIONS_OFF: dict[str, None] = {
    "scrapy.extensions.corestats.CoreStats": None,
    "scrapy.extensions.logstats.LogStats": None,
    "scrapy.extensions.memusage.MemoryUsage": None,
    "scrapy.extensions.telnet.TelnetConsole": None,
}


def settings(per_host: int) -> dict[str, Any]:
    return {
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
        "LOG_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "COOKIES_ENABLED": False,
        "RETRY_ENABLED": False,
        "REDIRECT_ENABLED": False,
        "ROBOTSTXT_OBEY": True,
        "DOWNLOAD_DELAY": 0,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "CONCURRENT_REQUESTS": CONCURRENCY,
        "CONCURRENT_REQUESTS_PER_DOMAIN": per_host,
        # Scrapy starts so many tasks for every response; a high number would cost more than everything else together.
        "CONCURRENT_ITEMS": 4,
        "DNSCACHE_ENABLED": True,
        "REACTOR_THREADPOOL_MAXSIZE": 4,
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
        "DOWNLOADER_MIDDLEWARES": OFF,
        "SPIDER_MIDDLEWARES": SPIDER_OFF,
        "EXTENSIONS": EXTENSIONS_OFF,
        "AUTOTHROTTLE_ENABLED": False,
        "USER_AGENT": "scrapy-bench",
    }


def warc_writer(file: Any) -> Callable[[Any], None]:
    """Writes a response as one gzip member, the usual way in Python."""
    import io

    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    writer = WARCWriter(file, gzip=True)

    def write(response: Any) -> None:
        fields = [
            (name.decode("latin-1"), b", ".join(values).decode("latin-1")) for name, values in response.headers.items()
        ]
        head = StatusAndHeaders(f"{response.status} OK", fields, protocol="HTTP/1.1")
        body = io.BytesIO(response.body)
        writer.write_record(writer.create_warc_record(response.url, "response", payload=body, http_headers=head))

    return write


def crawl(seeds: list[str], output: Path, per_host: int, same_job: bool) -> None:
    """One Scrapy process over some of the hosts."""
    import scrapy
    from scrapy.crawler import CrawlerProcess
    from scrapy.linkextractors import LinkExtractor

    hosts = {urlsplit(seed).netloc for seed in seeds}
    seen = set(seeds)
    extractor = LinkExtractor(tags=("a", "area", "frame", "iframe"), attrs=("href", "src"), deny_extensions=[])

    class BenchSpider(scrapy.Spider):
        name = "bench"

        async def start(self) -> Any:
            for seed in seeds:
                yield scrapy.Request(seed)

        def parse(self, response: Any) -> Any:
            title = response.xpath("//title/text()").get()
            record = {"url": response.url, "status": response.status, "title": title}
            if same_job:
                write_warc(response)
                record["text"] = " ".join(" ".join(response.xpath(VISIBLE_TEXT).getall()).split())
            else:
                record["body"] = response.text
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            for link in extractor.extract_links(response):
                url = link.url.partition("#")[0]
                # This test saves making a request and its fingerprint for each link that was seen before.
                if url not in seen and urlsplit(url).netloc in hosts:
                    seen.add(url)
                    yield scrapy.Request(url)

    archive = output.with_suffix(".warc.gz")
    with output.open("w", buffering=WRITE_BUFFER_BYTES) as file, archive.open("wb") as warc_file:
        write_warc = warc_writer(warc_file)
        process = CrawlerProcess(settings(per_host))
        process.crawl(BenchSpider)
        process.start()


def crawl_with_processes(seeds_file: Path, directory: Path, processes: int, flags: list[str]) -> int:
    """Split the hosts between processes of this same program. Returns the worst of their exit codes."""
    seeds = seeds_file.read_text().split()
    children = []
    for number in range(processes):
        part = directory / f"seeds-{number}.txt"
        part.write_text("\n".join(seeds[number::processes]))
        arguments = [str(part), str(directory), "--part", str(number), *flags]
        children.append(subprocess.Popen([sys.executable, __file__, *arguments]))
    return max(abs(child.wait()) for child in children)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--per-host", type=int, default=CONCURRENCY_PER_HOST)
    parser.add_argument("--same-job", action="store_true", help="extract text and write WARC too")
    parser.add_argument("--part", type=int, help="set by the parent: which of its processes this is")
    options = parser.parse_args()
    if options.part is None:
        flags = ["--per-host", str(options.per_host), *(["--same-job"] if options.same_job else [])]
        return crawl_with_processes(options.seeds, options.out, options.processes, flags)
    output = options.out / f"pages-{options.part}.jsonl"
    crawl(options.seeds.read_text().split(), output, options.per_host, options.same_job)
    return 0


if __name__ == "__main__":
    sys.exit(main())
