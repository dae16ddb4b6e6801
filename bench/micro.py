"""What each stage of the pipeline costs: `make bench-micro` prints CPU-µs per page, on the pages of `bench.web`.

Every stage is the product's own code, called as a node or a coordinator calls it. Fetching is left out: it needs the
other end, and `make bench` measures it with everything else.
"""

from __future__ import annotations

import argparse
import io
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bench.pages import PageMaker, WebShape
from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.dedupe import digest, sketches
from drumlin.engines.blocking import drive, open_blocking
from drumlin.fetch import Transfer
from drumlin.local.crawl import SHARD_COUNT
from drumlin.model import Outcome
from drumlin.node.arriving import request_block
from drumlin.node.keeping.archive import Archive, Arrival, CrawlPaths
from drumlin.node.main import make_pipeline, prepare_process
from drumlin.node.outcomes import fetch_record, result_of_capture, result_without_capture
from drumlin.parse import Source, parse_all
from drumlin.pipeline import Pipeline
from drumlin.protocol import Accepted, Assignment, HostReport, KnownRequest, Registered, Results, WorkRequest
from drumlin.reading import capture_of
from drumlin.urls import host_of

Result = TypeVar("Result")

BATCH = 64
PORT = 8080
REQUEST = b"User-Agent: bench\r\nAccept: */*\r\n\r\n"


class Stages:
    """CPU time by stage, and how many pages went through."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.pages = 0

    def run(self, name: str, work: Callable[[], Result]) -> Result:
        start = time.process_time()
        result = work()
        self.seconds[name] += time.process_time() - start
        return result

    def show(self) -> None:
        for name, seconds in self.seconds.items():
            print(f"{name:<44} {seconds / self.pages * 1e6:8.1f}")


class Transferred(Transfer):
    """A transfer that has ended, with what libcurl would have received."""

    def __init__(self, response: bytes) -> None:
        super().__init__(None)
        head, _, body = response.partition(b"\r\n\r\n")
        self.header_lines = [line + b"\r\n" for line in head.split(b"\r\n")] + [b"\r\n"]
        self.body = io.BytesIO(body)
        self.status = 200
        self.protocol = "http/1.1"
        self.ip = "127.0.0.1"
        self.finished = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--pages", type=int, default=100, help="pages per host")
    options = parser.parse_args()
    prepare_process()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        stages = Stages()
        crawl(stages, Path(folder), WebShape(options.hosts, options.pages))
        print(f"{'stage':<44} µs a page ({stages.pages} pages, batches of {BATCH})")
        stages.show()
        steps = {"parse alone", "sha256 alone", "sketch alone"}
        total = sum(seconds for name, seconds in stages.seconds.items() if name not in steps)
        print(f"{'all but the fetch itself':<44} {total / stages.pages * 1e6:8.1f}")


def crawl(stages: Stages, folder: Path, shape: WebShape) -> None:
    """Take every page of the web through the stages, leased and settled as in a crawl."""
    maker = PageMaker(shape, PORT)
    web = {
        maker.origins[host] + path: b"".join(parts)
        for host in range(shape.hosts)
        for path, parts in maker.host_pages(host)
    }
    config = CrawlConfig(delay_s=0.0)
    seeds = [origin + "/" for origin in maker.origins]
    engine = open_blocking(f"rocksdb:{folder / 'frontier'}", shard_count=SHARD_COUNT)
    dispatcher = Dispatcher(engine.engine, config, seeds, chance=random.Random(1))
    drive(dispatcher.open())
    drive(dispatcher.seed(seeds, time.time()))
    for name in ("warc", "tables", "nodes/n0"):
        (folder / name).mkdir(parents=True)
    archive = Archive(CrawlPaths(folder), "n0", software="bench", info={}, now=time.time(), sync=False)
    pipeline = make_pipeline(config, seeds)
    node = Node(stages, dispatcher, archive, pipeline, web)
    while node.lease():
        pass
    stages.run("store: close segment and WARC", archive.close)
    engine.close()


def joined(seeds: list[str]) -> Registered:
    return Registered("n0", "registered", 1.0, "", {}, "", seeds, [])


class Node:
    """Does what a node does, one batch after the other, with a stop watch."""

    def __init__(
        self, stages: Stages, dispatcher: Dispatcher, archive: Archive, pipeline: Pipeline, web: dict[str, bytes]
    ) -> None:
        self.stages = stages
        self.dispatcher = dispatcher
        self.archive = archive
        self.pipeline = pipeline
        self.web = web
        self.requests = 0

    def lease(self) -> bool:
        """One round of leases: fetch all their URLs and give them back. False when nothing is left."""
        self.requests += 1
        request = WorkRequest(2_000, max_hosts=32, request_id=f"r{self.requests}", flat=False)
        work = self.stages.run("lease", lambda: drive(self.dispatcher.work("n0", request, time.time())))
        tasks = [task for lease in work.leases for task in lease.assignments]
        self.deny([task for task in tasks if task.url not in self.web])
        pages = [task for task in tasks if task.url in self.web]
        for start in range(0, len(pages), BATCH):
            self.batch(pages[start : start + BATCH])
        reports = [HostReport(lease.lease_id, lease.host, True, 0.0) for lease in work.leases]
        self.stages.run("release", lambda: self.settle(Results([], reports)))
        return bool(tasks)

    def deny(self, tasks: list[Assignment]) -> None:
        """Settle what robots.txt forbids, uncounted."""
        results = [result_without_capture(task, Outcome.DENIED, "denied", time.time(), "robots", "") for task in tasks]
        self.settle(Results(results))

    def settle(self, results: Results) -> Accepted:
        return drive(self.dispatcher.take("n0", results, time.time())).accepted

    def batch(self, tasks: list[Assignment]) -> None:
        run = self.stages.run
        self.stages.pages += len(tasks)
        transfers = [(task, Transferred(self.web[task.url])) for task in tasks]
        arrivals = run("capture, result, fetch record", lambda: [self.arrival(*each) for each in transfers])
        captures = [arrival.capture for arrival in arrivals if arrival.capture is not None]
        run("parse alone", lambda: parse_all([Source(c.body, "text/html; charset=utf-8", c.url) for c in captures]))
        run("sha256 alone", lambda: [digest(c.body) for c in captures])
        run("read: parse, resolve, sha256, sketch", lambda: self.pipeline.read(captures))
        run("sketch alone", lambda: sketches([c.text for c in captures]))
        found = run("discover: scope, traps, told before", lambda: [self.pipeline.discover(c) for c in captures])
        for arrival, capture, discovered in zip(arrivals, captures, found, strict=True):
            result = arrival.result
            result.content_hash, result.sketch = capture.digest.hex(), capture.sketch
            result.record_id = capture.record_id
            result.links = discovered.urls
        known = KnownRequest([(c.domain, c.digest.hex()) for c in captures])
        run("known contents", lambda: drive(self.dispatcher.known(known)))
        stored = run("store: WARC and journal", lambda: self.archive.store(arrivals, time.time()))
        results = Results([arrival.result for arrival in arrivals], canonical_links=True)
        accepted = run("settle: links, contents, frontier", lambda: self.settle(results))
        run("store: tables", lambda: self.archive.publish(stored, accepted))

    def arrival(self, task: Assignment, transfer: Transferred) -> Arrival:
        host = host_of(task.url)
        now = time.time()
        request = request_block(task.url, host, REQUEST)
        capture = capture_of(transfer, task, host, request=request, now=now)
        result = result_of_capture(capture, task, Outcome.FETCHED, f"{task.number}:{now!r}")
        return Arrival(result, fetch_record(result, task, host, "n0", transfer), capture)


if __name__ == "__main__":
    main()
