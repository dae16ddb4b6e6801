"""A crawl into a bucket while its nodes, its coordinator and the S3 server are killed: nothing is lost or left over."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from pathlib import Path

import pytest

from drumlin.store.bundles import TABLES
from drumlin.store.objects.collection import find_garbage, missing_objects, remove_garbage
from drumlin.store.objects.compaction import compact, due
from drumlin.store.objects.files import ObjectFiles
from tests.harness.crawls import DRUMLIN, Crawl, Web, benchmark_web, kill_process, wait_until
from tests.harness.outputs import (
    check_index_matches_tables,
    check_rows_lead_to_records,
    check_warcs,
    query,
    warc_files,
)
from tests.harness.s3 import BUCKET, S3Server, downloaded, s3_server

pytestmark = pytest.mark.timeout(1_800)

HOSTS, PAGES_EACH = 40, 100
NODE_KILLS = 6
AWAY_S = 60.0
STALL_S_MAX = 300.0
RUN_S_MAX = 900.0
LATER_S = 3 * 24 * 3600.0
"""After this, whatever nothing needs may be removed."""


def check_store(store: ObjectFiles, web: Web, folder: Path) -> dict[str, int]:
    """Every page is in the tables once and can be read. Returns how many rows each table has."""
    copy = downloaded(store, folder)
    [(rows, urls)] = query(copy, "SELECT count(*), count(DISTINCT url) FROM {pages} WHERE fetch_status = 200")
    assert (rows, urls) == (web.pages, web.pages)
    assert check_rows_lead_to_records(copy) == web.pages
    check_warcs(copy)
    check_index_matches_tables(copy)
    counts = {table: query(copy, f"SELECT count(*) FROM {{{table}}}")[0][0] for table in TABLES}  # noqa: S608
    return counts | {"files": len(warc_files(copy))}


def kill_nodes(web: Web, crawl: Crawl, chance: random.Random) -> None:
    """Kill nodes while they fetch and upload: bundles are small, so some upload is under way at most moments."""
    for number in range(NODE_KILLS):
        mark = web.pages * (number + 1) // (NODE_KILLS + 2)
        wait_until(lambda mark=mark: web.accounts()["pages_distinct"] >= mark, STALL_S_MAX, f"{mark} pages")  # type: ignore[misc]
        wait_until(lambda: bool(crawl.nodes()), STALL_S_MAX, "a node to kill")
        kill_process(chance.choice(crawl.nodes()))


def be_away(server: S3Server) -> None:
    server.kill()
    time.sleep(AWAY_S)
    server.start()


def test_a_crawl_into_a_bucket_survives_kills_of_nodes_and_of_the_server(tmp_path: Path) -> None:
    chance = random.Random(15)
    with s3_server(tmp_path / "s3") as server, benchmark_web(tmp_path, HOSTS, PAGES_EACH) as web:
        address = f"s3://{BUCKET}/crash"
        arguments = ("-i", str(web.seeds), "--store", address, "--nodes", "2", "--concurrency", "16")
        crawl = Crawl(tmp_path / "out", *arguments, environment=server.environment)
        crawl.start()
        try:
            killing = threading.Thread(target=kill_nodes, args=(web, crawl, chance), daemon=True)
            killing.start()
            wait_until(lambda: web.accounts()["pages_distinct"] >= web.pages // 4, STALL_S_MAX, "a quarter")
            be_away(server)
            killing.join(STALL_S_MAX)
            assert not killing.is_alive()
            if crawl.running:
                crawl.process.kill()
                crawl.process.wait()
            crawl.start()
            assert crawl.wait(RUN_S_MAX) == 0, crawl.errors
        finally:
            crawl.end()
        store = server.store("crash")
        before = check_store(store, web, tmp_path / "before")
        _tidy(store, tmp_path)
        after = check_store(ObjectFiles(store.bucket), web, tmp_path / "after")
        assert after == before | {"files": 1}
        _check_verbs(address, server)
        assert web.accounts()["missed"] == 0


def _tidy(store: ObjectFiles, folder: Path) -> None:
    """Join all segments, then remove what is left over: afterwards every object is in the manifest."""
    now = time.time()
    assert compact(store, due(store.manifest.contents(), everything=True), folder)
    remove_garbage(store, find_garbage(store, now + LATER_S, LATER_S / 3))
    named = {item.name for item in store.manifest.contents().items()}
    assert {one.name for one in store.bucket.listed("data")} == named
    assert missing_objects(store) == []
    assert find_garbage(store, now + LATER_S, LATER_S / 3) == ([], [])


def _check_verbs(address: str, server: S3Server) -> None:
    command = [DRUMLIN, "store", "check", "--store", address]
    done = subprocess.run(command, env=server.environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
