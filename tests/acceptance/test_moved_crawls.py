"""What a person is told of a crawl that was moved to Redis, before, meanwhile and afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.config.record import RECORD_NAME
from drumlin.store.opening import note_address
from drumlin.testing import FakeWeb
from tests.acceptance.commands import chain, crawl, drumlin, sentence
from tests.harness.fleet import needs_redis
from tests.harness.redis import RedisServer, redis_server, url_of

pytestmark = needs_redis

PAGES = 5


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A crawl of which a part is done."""
    with FakeWeb(hosts=0) as web:
        done = crawl(tmp_path, chain(web, "shop", 12), "--out", "begun", "--pages-max", str(PAGES), "--quiet")
    assert done.returncode == 0, done.stderr
    return tmp_path / "begun"


def test_whoever_looks_at_a_crawl_that_was_moved_is_told_where_it_is(begun: Path, redis: RedisServer) -> None:
    folder, url = begun.parent, url_of(redis, namespace="moved")
    moving = ("frontier", "migrate", "--from", "rocksdb:begun", "--to", url)
    moved = drumlin(folder, *moving)
    said = f"This crawl was moved to {url}."
    advice = f"Go on with it there: coordinators with --engine {url} --store {begun}, nodes with --store {begun}."
    assert moved.stdout == f"Moved from begun to {url}: 12 URLs ({PAGES} done, 0 given up) of 1 host.\n"
    assert (
        moved.stderr
        == f"{advice} It was stopped: say `drumlin resume --coordinator URL` before nodes join, or they leave again.\n"
    )
    for again in (moving, (*moving[:-1], f"{url}-2"), ("crawl", "http://shop.example/", "--out", "begun")):
        done = drumlin(folder, *again)
        assert done.returncode == 4
        assert done.stderr.endswith(f"drumlin: {said} {advice}\n"), again
    for verb in ("status", "hosts", "top --once", "report", "query outcomes"):
        done = drumlin(folder, *verb.split(), "--out", "begun", "--json")
        assert (done.returncode, done.stderr.startswith(said)) == (0, True), verb
        json.loads(done.stdout)
    assert drumlin(folder, "why", "--out", "begun").stdout == f"{said} {advice}\n"
    assert said in drumlin(folder, "pause", "--out", "begun").stderr


def test_a_crawl_that_stores_in_a_bucket_is_told_to_go_on_there(begun: Path, redis: RedisServer) -> None:
    note_address(begun, "s3://crawls/news")
    moved = drumlin(
        begun.parent, "frontier", "migrate", "--from", "rocksdb:begun", "--to", url_of(redis, namespace="n")
    )
    assert moved.returncode == 0, moved.stderr
    assert "--store s3://crawls/news --spool DIR, nodes with" in moved.stderr
    assert f"nodes with --store s3://crawls/news --spool {begun}." in moved.stderr


def test_a_namespace_that_was_mistyped_is_named_and_nothing_is_made_there(begun: Path, redis: RedisServer) -> None:
    folder, good, bad = begun.parent, url_of(redis, namespace="news"), url_of(redis, namespace="nwes")
    assert drumlin(folder, "frontier", "export", "kept", "--out", "begun").returncode == 0
    assert drumlin(folder, "frontier", "import", "kept", "--engine", good).returncode == 0
    for verb in (("frontier", "export", "new"), ("frontier", "verify", "kept"), ("tokens", "list")):
        done = drumlin(folder, *verb, "--engine", bad)
        assert done.returncode == 2
        assert sentence(done) == f"drumlin: There is no crawl at {bad}. Known there: news.", verb
    assert not redis.command("KEYS", "{nwes*")
    assert not (folder / "new").exists()
    # Tokens may be made before there is a crawl.
    assert drumlin(folder, "tokens", "create", "--role", "viewer", "--engine", bad).returncode == 0
    assert "No crawl has begun at" in sentence(drumlin(folder, "frontier", "export", "new", "--engine", bad))


def test_what_was_imported_into_a_directory_is_a_crawl_that_goes_on(begun: Path) -> None:
    folder = begun.parent
    assert drumlin(folder, "frontier", "export", "kept", "--out", "begun").returncode == 0
    done = drumlin(folder, "frontier", "import", "kept", "--out", "copy")
    seeds = json.loads((begun / RECORD_NAME).read_bytes())["seeds"]
    assert f"Go on with it: `drumlin crawl {seeds[0]} --out copy`" in done.stderr
    assert done.stdout == f"Imported from kept into copy: 12 URLs ({PAGES} done, 0 given up) of 1 host.\n"
    again = drumlin(folder, "frontier", "import", "kept", "--out", "copy")
    assert (again.returncode, "kept was copied to copy before." in sentence(again)) == (5, True)
    assert json.loads(drumlin(folder, "status", "--out", "copy", "--json").stdout)["pages"] == PAGES
    made = drumlin(folder, "frontier", "checkpoint", "first", "--out", "copy")
    assert made.stdout == f"Checkpoint first is in {folder / 'copy' / 'checkpoints' / 'first'}.\n"
    assert "Use 1 to 64 letters" in sentence(drumlin(folder, "frontier", "checkpoint", "a b", "--out", "copy"))


def test_a_coordinator_founds_no_crawl_in_the_store_of_another(begun: Path, redis: RedisServer) -> None:
    before = (begun / "report.json").read_bytes()
    mistyped = ("--engine", url_of(redis, namespace="moovd"), "--store", "begun", "--log-format", "human")
    done = drumlin(begun.parent, "coordinator", *mistyped, "--listen", "unix:socket", "--no-auth", "--finish")
    assert (done.returncode, "begun has pages of a crawl, and none has begun at" in done.stderr) == (2, True)
    assert (begun / "report.json").read_bytes() == before
