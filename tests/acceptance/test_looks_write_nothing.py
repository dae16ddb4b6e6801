"""A look at a crawl that does not run writes nothing, and so changes nothing: neither files nor the times it shows."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from drumlin.errors import EXIT_OK
from drumlin.testing import FakeWeb
from tests.acceptance.commands import NO_PATIENCE, chain, crawl, drumlin
from tests.harness.small_disk import small_disk

NOWHERE = "http://127.0.0.1:1/"
LOOKS = [
    ("status",),
    ("why",),
    ("why", NOWHERE),
    ("host", NOWHERE),
    ("hosts", "list"),
    ("nodes", "list"),
    ("dead-letters", "list"),
    ("status", "--json"),
]


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file of a crawl but RocksDB's own log: its size and when it was last written."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("LOG")]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def last_failed(folder: Path) -> float:
    listed = drumlin(folder, "dead-letters", "list", "--json", "--out", "crawl")
    (letter,) = json.loads(listed.stdout)
    return float(letter["last_failed"])


@pytest.fixture
def stopped(tmp_path: Path) -> tuple[Path, float]:
    """A crawl that has ended with a dead letter, and when."""
    with FakeWeb(hosts=0) as web:
        crawl(tmp_path, chain(web, "site", 3), NOWHERE, *NO_PATIENCE, "--out", "crawl")
    return tmp_path, time.time()


def test_looks_at_a_crawl_that_does_not_run_write_nothing(stopped: tuple[Path, float]) -> None:
    folder, _ = stopped
    before = files(folder / "crawl")
    for look in LOOKS:
        done = drumlin(folder, *look, "--out", "crawl")
        assert done.returncode == EXIT_OK, (look, done.stderr)
    assert files(folder / "crawl") == before


@pytest.mark.parametrize("state", ["full", "read-only"])
def test_a_crawl_on_a_disk_that_cannot_be_written_can_be_looked_at(tmp_path: Path, state: str) -> None:
    with small_disk(tmp_path / "disk", 40) as disk, FakeWeb(hosts=0) as web:
        crawl(tmp_path, chain(web, "site", 3), NOWHERE, *NO_PATIENCE, "--out", disk.folder / "crawl")
        if state == "full":
            disk.fill()
        else:
            disk.protect()
        for look in LOOKS:
            done = drumlin(tmp_path, *look, "--out", disk.folder / "crawl")
            assert done.returncode == EXIT_OK, (look, done.stderr)


def test_a_dead_letter_is_dated_by_when_it_failed_however_often_one_looks(stopped: tuple[Path, float]) -> None:
    folder, ended = stopped
    assert last_failed(folder) <= ended
    assert last_failed(folder) <= ended


def test_a_lever_works_on_a_crawl_that_does_not_run(stopped: tuple[Path, float]) -> None:
    folder, _ = stopped
    assert drumlin(folder, "dead-letters", "retry", "--all", "--out", "crawl").returncode == EXIT_OK
    assert json.loads(drumlin(folder, "dead-letters", "list", "--json", "--out", "crawl").stdout) == []
