"""Removal on request from crawls that were killed, on every engine and store: after decompression, a search over all
files, objects, queues and indexes finds the host only where others name it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_remove import KILLER, kept_in
from tests.harness.crawls import DRUMLIN, Crawl, Web, benchmark_web, wait_until
from tests.harness.fleet import needs_redis
from tests.harness.outputs import (
    check_index_matches_tables,
    check_no_leftovers,
    check_rows_lead_to_records,
    check_warcs,
    query,
)
from tests.harness.redis import redis_server, url_of
from tests.harness.s3 import BUCKET, downloaded, s3_server
from tests.harness.searching import found_in, in_redis

pytestmark = pytest.mark.timeout(1_800)

HOSTS, PAGES_EACH = 8, 40
STEP_S_MAX = 300.0
SHARE = 0.4
KILLS = 8


def removed(*arguments: str | Path, environment: dict[str, str] | None = None) -> dict[str, Any]:
    command = [DRUMLIN, "remove", *map(str, arguments), "--json"]
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, timeout=STEP_S_MAX, env=variables, check=False)
    assert done.returncode == 0, done.stderr.decode()
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def a_host(web: Web) -> str:
    return web.seeds.read_text().split()[2].split("/")[2]


def killed(crawl: Crawl, web: Web) -> None:
    """Kill a crawl in the middle: journals and open WARC files are left."""
    crawl.start()
    try:
        wait_until(lambda: web.accounts()["pages_distinct"] >= SHARE * web.pages, STEP_S_MAX, "a part of the pages")
    finally:
        crawl.end()


def kill_removals(kills: int, host: str, out: Path, environment: dict[str, str] | None = None) -> None:
    """Begin a removal so many times, each of which is killed after it has renamed or deleted some files."""
    chance, variables = random.Random(kills), {**os.environ, **(environment or {})}
    for _ in range(kills):
        command = [sys.executable, "-c", KILLER, str(chance.randrange(25)), "remove", "--host", host, "--yes"]
        command += ["--out", str(out), "--quiet"]
        done = subprocess.run(command, timeout=STEP_S_MAX, env=variables, check=False)
        assert done.returncode in (0, -signal.SIGKILL)


def pages_of_others(out: Path, host: str) -> tuple[int, int]:
    sql = "SELECT count(*), count(DISTINCT url) FROM {pages} WHERE fetch_status = 200 AND NOT contains(url, ?)"
    [(rows, urls)] = query(out, sql, f"//{host}/")
    return rows, urls


def check_ended(out: Path, web: Web, host: str) -> None:
    """All pages of the others are stored, each once, and none of the host."""
    others = web.pages - PAGES_EACH
    assert pages_of_others(out, host) == (others, others)
    assert query(out, "SELECT count(*) FROM {fetches} WHERE contains(url, ?)", f"//{host}/") == [(0,)]
    check_rows_lead_to_records(out)
    check_warcs(out)
    check_index_matches_tables(out)
    check_no_leftovers(out)


@pytest.mark.parametrize("kills", [0, KILLS])
def test_a_host_is_removed_from_a_crawl_that_was_killed_and_the_crawl_goes_on_without_it(
    tmp_path: Path, kills: int
) -> None:
    out = tmp_path / "out"
    with benchmark_web(tmp_path, HOSTS, PAGES_EACH) as web:
        host = a_host(web)
        arguments = ("-i", str(web.seeds), "--nodes", "2", "--concurrency", "8")
        killed(Crawl(out, *arguments), web)
        assert list(out.glob("nodes/*/*.journal"))
        assert list(out.glob("warc/*.open"))
        dry = removed("--host", host, "--dry-run", "--out", out)["counts"]
        assert dry["journal_entries"] > 0
        kill_removals(kills, host, out)
        counts = removed("--host", host, "--yes", "--out", out)["counts"]
        if not kills:
            assert counts == dry
        found = found_in(out, host)
        mentions = kept_in(removed("--host", host, "--dry-run", "--out", out)["counts"])
        # A journal is one file, however many entries in it name the host.
        assert {**found, "raw": 0} == mentions
        assert found["raw"] <= len(list(out.glob("nodes/*/*.journal")))
        before = web.accounts()
        assert Crawl(out, *arguments).run(STEP_S_MAX)["state"] == "finished"
        assert web.accounts()["pages_distinct"] > before["pages_distinct"]
        check_ended(out, web, host)


@needs_redis
def test_a_host_is_removed_from_a_frontier_on_redis(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with redis_server(tmp_path / "redis") as server, benchmark_web(tmp_path, HOSTS, PAGES_EACH) as web:
        host, engine = a_host(web), url_of(server, namespace="removal")
        arguments = ("-i", str(web.seeds), "--engine", engine, "--nodes", "2", "--concurrency", "8")
        killed(Crawl(out, *arguments), web)
        place = ("--engine", engine, "--store", out)
        dry = removed("--host", host, "--dry-run", *place)["counts"]
        assert dry["queued"] + dry["done"] > 0
        assert removed("--host", host, "--yes", *place)["counts"] == dry
        assert in_redis(server, host) == []
        assert {**found_in(out, host), "raw": 0} == kept_in(dry)
        assert Crawl(out, *arguments).run(STEP_S_MAX)["state"] == "finished"
        check_ended(out, web, host)


@pytest.mark.parametrize("kills", [0, KILLS])
def test_a_host_is_removed_from_a_store_in_a_bucket(tmp_path: Path, kills: int) -> None:
    out, address = tmp_path / "out", f"s3://{BUCKET}/removal"
    with s3_server(tmp_path / "s3") as server, benchmark_web(tmp_path, HOSTS, PAGES_EACH) as web:
        host = a_host(web)
        arguments = ("-i", str(web.seeds), "--store", address, "--nodes", "2", "--pages-max", str(web.pages * 2 // 3))
        Crawl(out, *arguments, environment=server.environment).run(STEP_S_MAX)
        place = ("--out", out)
        dry = removed("--host", host, "--dry-run", *place, environment=server.environment)["counts"]
        assert dry["captures"] > 0
        kill_removals(kills, host, out, server.environment)
        counts = removed("--host", host, "--yes", *place, environment=server.environment)["counts"]
        assert counts == dry or kills
        assert found_in(server.folder / BUCKET, host) == kept_in(dry)
        assert found_in(out, host) == dict.fromkeys(kept_in(dry), 0)
        longer = (*arguments[:-1], str(10 * web.pages))
        crawl = Crawl(out, *longer, environment=server.environment)
        assert crawl.run(STEP_S_MAX)["state"] == "finished"
        check_ended(downloaded(server.store("removal"), tmp_path / "copy"), web, host)
