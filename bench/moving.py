"""How long it takes to export a large frontier, to import it into another engine and to compare both, in which memory.

    python -m bench.moving                       10 million URLs: RocksDB to a file to RocksDB
    python -m bench.moving --urls 1000000 --redis
    python -m bench.moving --keep DIR            keeps the frontiers and the file

Half of the URLs are done, a few are given up or tried again, and the rest is queued, on 1 host for every 500 URLs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.measure import run_measured
from drumlin.engines.kept import KeptCounters, KeptDone, KeptHost, KeptTask, mark_of, pages
from drumlin.engines.rocksdb.engine import RocksEngine
from drumlin.model import FailureKind, Task, TaskState
from tests.harness.redis import redis_cluster, url_of

URLS = 10_000_000
URLS_PER_HOST = 500
SHARDS = 4
NOW = 1_800_000_000.0
STEP_S_MAX = 6 * 3600.0
ODD_EVERY = 50
"""One URL in so many is given up, and one tried again."""


def host_records(number: int, shard: int) -> Iterator[KeptHost | KeptTask | KeptDone]:
    """A host of a crawl in its middle. Ids are unique in all shards."""
    host = f"host{number}.example"
    yield KeptHost(
        host, NOW + number % 60, None, 0.0, False, b"User-agent: *", URLS_PER_HOST, URLS_PER_HOST // 2, 10**6
    )
    marks, ids = [], []
    for place in range(URLS_PER_HOST):
        url, task_id = f"https://{host}/section/{place % 20}/page-{place}.html", number * URLS_PER_HOST + place + 1
        if place < URLS_PER_HOST // 2:
            marks.append(mark_of(url))
            ids.append(task_id)
            continue
        task = Task(task_id, url, 5 - place % 3, 3, 0, f"https://{host}/", (), 0, NOW)
        if place % ODD_EVERY == 1:
            yield KeptTask(host, shard, TaskState.DEAD, task, b"a" * 20, NOW, 0.0, FailureKind.TIMEOUT, "slow", NOW)
        elif place % ODD_EVERY == 2:
            yield KeptTask(host, shard, TaskState.SCHEDULED, task, b"b" * 20, NOW, NOW + 300)
        else:
            yield KeptTask(host, shard, TaskState.QUEUED, task)
    attempts = [mark[:10] + mark[:10] for mark in marks]
    yield KeptDone(host, shard, len(marks[0]), b"".join(marks), ids, attempts)


async def make(place: Path, urls: int) -> None:
    """A frontier of so many URLs. It is filled as by an import, which is the fastest way."""
    engine = RocksEngine(str(place), shard_count=SHARDS)
    by_shard: dict[int, list[int]] = {shard: [] for shard in range(SHARDS)}
    for number in range(urls // URLS_PER_HOST):
        by_shard[engine.shard_of(f"host{number}.example")].append(number)
    for shard, numbers in by_shard.items():
        every = (record for number in numbers for record in host_records(number, shard))
        step = 0
        for page in pages(every):
            step += 1
            await engine.fill(shard, step, page, NOW)
        await engine.fill(shard, step + 1, [KeptCounters(shard, {"pages": len(numbers)})], NOW)
    await engine.keep_time(NOW)
    await engine.close()


def step(name: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "drumlin", "frontier", *arguments]
    usage = run_measured(command, STEP_S_MAX)
    said = usage.output.strip().splitlines()[-1] if usage.output.strip() else ""
    print(
        f"{name:8} {usage.wall_s:8.1f} s {usage.cpu_s:8.1f} s CPU {usage.peak_bytes / 1e6:6.0f} MB peak  {said}",
        flush=True,
    )
    if usage.exit_code:
        sys.exit(f"exit code {usage.exit_code}: {usage.output}")


@contextmanager
def target(folder: Path, *, redis: bool) -> Iterator[tuple[str, str]]:
    if not redis:
        yield "--out", str(folder / "copy")
        return
    with redis_cluster(folder / "redis") as cluster:
        yield "--engine", url_of(cluster.servers[0], namespace="copy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, default=URLS)
    parser.add_argument("--redis", action="store_true", help="import into a Redis Cluster of three masters")
    parser.add_argument("--keep", metavar="DIR")
    options = parser.parse_args()
    with TemporaryDirectory() if not options.keep else nullcontext(options.keep) as name:
        folder = Path(name)
        source, file = folder / "frontier", folder / "exported"
        folder.mkdir(parents=True, exist_ok=True)
        if not source.exists():
            from drumlin.engines.blocking import drive

            began = time.monotonic()
            drive(make(source, options.urls))
            print(f"made     {time.monotonic() - began:8.1f} s  {options.urls:,} URLs", flush=True)
        with target(folder, redis=options.redis) as place:
            step("export", "export", str(file), "--out", str(source))
            print(
                f"file     {file.stat().st_size / 1e6:8,.0f} MB, {file.stat().st_size / options.urls:.1f} bytes a URL"
            )
            step("import", "import", str(file), *place)
            step("verify", "verify", str(file), *place)


if __name__ == "__main__":
    main()
