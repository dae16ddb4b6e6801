"""`drumlin frontier` as a person uses it: checkpoints of a crawl while it runs, files, and refusals in one sentence."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drumlin.cli.main import run
from drumlin.client.remote import Remote
from drumlin.engines.blocking import open_blocking
from drumlin.local.crawl import socket_of
from drumlin.protocol import paths
from tests.harness.crawls import Crawl, Web, benchmark_web, wait_until
from tests.harness.fleet import check_politeness, needs_redis
from tests.harness.outputs import query
from tests.harness.redis import redis_server, url_of

HOSTS = 6
PAGES = 20
DELAY_S = 0.2
STEP_S_MAX = 120.0


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with benchmark_web(tmp_path, HOSTS, PAGES, "--gap-s", str(DELAY_S)) as found:
        yield found


class Verb:
    """`drumlin frontier` in this process, which starts faster than another one."""

    def __init__(self, read: pytest.CaptureFixture[str]) -> None:
        self._read = read

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        """The exit code, and what was written to stdout and stderr."""
        code = run(["frontier", *map(str, arguments)])
        return code, *self._read.readouterr()

    def told(self, *arguments: str | Path) -> Any:
        code, out, errors = self(*arguments, "--json")
        assert code == 0, errors
        return json.loads(out)

    def refused(self, *arguments: str | Path) -> tuple[int, str]:
        code, out, errors = self(*arguments)
        assert (out, len(errors.strip().splitlines())) == ("", 1), errors
        return code, errors


@pytest.fixture
def frontier(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    monkeypatch.chdir(tmp_path)
    return Verb(capsys)


def test_a_crawl_goes_back_to_a_checkpoint_made_while_it_ran(tmp_path: Path, web: Web, frontier: Verb) -> None:
    out = tmp_path / "out"
    wanted = ("--delay", f"{DELAY_S}s", "--lease", "3s", "--nodes", "1", "-i", str(web.seeds))
    crawl = Crawl(out, *wanted)
    crawl.start()
    try:
        wait_until(lambda: web.accounts()["pages_distinct"] > 0.2 * web.pages, STEP_S_MAX, "some of the pages")
        # Asked directly: until a command has started, the crawl might be over.
        running = Remote([f"unix:{socket_of(out)}"])
        early = running.post(paths.CHECKPOINT, {"name": "early"})
        assert early == {"name": "early", "path": str(out / "checkpoints" / "early")}
        known = web.accounts()["pages_distinct"]
        wait_until(lambda: web.accounts()["pages_distinct"] > known, STEP_S_MAX, "more pages")
        crawl.process.send_signal(signal.SIGINT)
        crawl.wait(STEP_S_MAX)
    finally:
        crawl.end()
    later = web.accounts()["pages_distinct"]
    assert "There is a checkpoint" in frontier.refused("checkpoint", "early", "--out", out)[1]
    assert frontier.told("checkpoint", "late", "--out", out)["path"] == str(out / "checkpoints" / "late")
    assert frontier.told("restore", "early", "--out", out)["before"] == str(out / "checkpoints" / "before-restore-1")
    at_rest = open_blocking(f"rocksdb:{out / 'frontier'}")
    done = sum(one.done for one in at_rest.stats_all(0.0))
    at_rest.close()
    assert done < later
    assert Crawl(out, *wanted).run(STEP_S_MAX)["state"] == "finished"
    assert web.accounts()["missed"] == 0
    [(urls,)] = query(out, "SELECT count(DISTINCT url) FROM {pages} WHERE fetch_status = 200")
    assert urls == web.pages
    check_politeness(web, out, DELAY_S)


@needs_redis
def test_a_frontier_goes_to_redis_and_back_in_files(tmp_path: Path, web: Web, frontier: Verb) -> None:
    out, first, second = tmp_path / "out", tmp_path / "first", tmp_path / "second"
    crawl = Crawl(out, "--pages-max", "20", "--nodes", "1", "-i", str(web.seeds))
    crawl.run(STEP_S_MAX)
    with redis_server(tmp_path / "redis") as redis:
        engine = ("--engine", url_of(redis, namespace="n"))
        steps = [
            ("export", str(first), "--out", str(out)),
            ("import", str(first), *engine),
            ("verify", str(first), *engine),
            ("export", str(second), *engine),
            ("import", str(second), "--out", str(tmp_path / "back")),
            ("verify", str(first), "--out", str(tmp_path / "back")),
            ("verify", str(second), "--out", str(out)),
        ]
        told = [frontier.told(*step)["records"] for step in steps]
        assert all(one == told[0] for one in told)
        assert told[0]["done"] >= 20
        assert told[0]["queued"] > 0
        assert frontier.refused("import", str(first), *engine)[0] == 5
        assert frontier.refused("export", str(first), *engine)[0] == 2
        other = open_blocking(f"rocksdb:{tmp_path / 'back' / 'frontier'}")
        other.set_delay(0, "new.example", 5.0)
        other.close()
        code, said = frontier.refused("verify", str(first), "--out", str(tmp_path / "back"))
        assert (code, "differ: hosts (6 and 7)" in said) == (4, True)


def test_what_cannot_be_moved_is_refused_in_one_sentence(tmp_path: Path, frontier: Verb) -> None:
    (tmp_path / "text").write_text("no frontier")
    cases = {
        ("export", "x", "--out", "nothing"): (2, "There is no queue of a crawl in"),
        ("export", "x", "--engine", "memory"): (2, "The memory engine is gone"),
        ("import", "text", "--out", "new"): (2, "is no queue that was exported"),
        ("import", "missing", "--out", "new"): (2, "Cannot read missing"),
        ("import", "text", "--engine", "rocksdb:new"): (2, "a directory is named with --out. Give --out new."),
        ("import", "text", "--engine", "redis://127.0.0.1/a", "--out", "b"): (2, "name two different things"),
        ("migrate", "--from", "redis://127.0.0.1/a", "--to", "rocksdb:b"): (2, "from a directory to Redis"),
        ("migrate", "--from", "rocksdb:a", "--to", "rocksdb:b"): (2, "from a directory to Redis"),
        ("migrate", "--from", "rocksdb:a"): (2, "from a directory to Redis"),
        ("restore", "one", "--out", "nothing"): (2, "There is no checkpoint one"),
        ("restore", "../one", "--out", "nothing"): (2, "cannot be the name of a checkpoint. Use 1 to 64 letters"),
    }
    for arguments, (code, said) in cases.items():
        found, errors = frontier.refused(*arguments)
        assert (found, said in errors) == (code, True), errors
    assert not (tmp_path / "new").exists()


@needs_redis
def test_a_frontier_of_an_older_version_on_redis_is_refused_with_what_to_do(tmp_path: Path, frontier: Verb) -> None:
    with redis_server(tmp_path / "redis") as redis:
        redis.command("HSET", "{n}", "shards", 2, "format", 1)
        code, said = frontier.refused("export", "x", "--engine", url_of(redis, namespace="n"))
    assert code == 4
    assert "is in format 1, and this version reads 2. Finish it with the version of drumlin that began it" in said
