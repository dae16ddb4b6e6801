"""`drumlin retention` and `drumlin hold` as a user runs them, on the directory of a real crawl."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from drumlin.testing import FakeWeb
from drumlin.urls import host_of
from tests.acceptance.commands import Done, chain, crawl, drumlin, sentence, stored_urls
from tests.harness.aged import PAGES, add_segment

CRAWLED = 5


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a crawl of today, in whose store are pages of the same site and of another from long ago."""
    folder = tmp_path_factory.mktemp("crawled")
    with FakeWeb(hosts=0) as web:
        home = chain(web, "shop", CRAWLED)
        done = crawl(folder, home, "--out", "crawl", "--quiet")
        assert done.returncode == 0, done.stderr
    add_segment(folder / "crawl", "past", host=host_of(home), path=".html")
    (folder / "home").write_text(home)
    return folder


@pytest.fixture
def folder(crawled: Path, tmp_path: Path) -> Path:
    shutil.copytree(crawled, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run(folder: Path, *arguments: str | Path) -> Done:
    return drumlin(folder, *arguments, "--out", "crawl")


def answer(folder: Path, *arguments: str | Path) -> Any:
    done = run(folder, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_rules_are_set_shown_and_carried_out_as_the_dry_run_says(folder: Path) -> None:
    assert "warc: kept for 30 days." in run(folder, "retention", "set", "warc", "--keep", "30d").stderr
    assert run(folder, "retention", "set", "tables", "--keep", "30d", "--by", "alice").returncode == 0
    would = answer(folder, "retention", "apply", "--dry-run")
    assert len(stored_urls(folder / "crawl")) == CRAWLED + PAGES
    done = answer(folder, "retention", "apply", "--by", "the night job")
    assert (would["dry_run"], done["dry_run"]) == (True, False)
    assert would["done"] == done["done"]
    assert [(one["kind"], one["action"], one["files"], one["rows"]) for one in done["done"]] == [
        ("warc", "delete", 2, PAGES),
        ("tables", "delete", 3, PAGES * 4),
    ]
    assert len(stored_urls(folder / "crawl")) == CRAWLED
    assert run(folder, "retention", "apply").stdout == "Nothing is due.\n"
    shown = run(folder, "retention", "show").stdout
    assert "tables  kept for 30 days" in shown
    assert "the night job  retention.apply  done  delete warc: 1 units, 2 files" in shown
    # The audit log of the crawl has it too, and a URL whose rows are gone has an answer.
    audit = answer(folder, "audit")
    assert {"retention.set", "retention.apply"} == {entry["action"] for entry in audit}
    assert "alice" in {entry["name"] for entry in audit}
    assert run(folder, "query", "outcomes").returncode == 0


def test_what_is_held_stays_and_the_crawl_cannot_be_removed(folder: Path) -> None:
    for kind in ("warc", "tables"):
        assert run(folder, "retention", "set", kind, "--keep", "30d").returncode == 0
    host = host_of((folder / "home").read_text())
    held = run(folder, "hold", "add", "case-7", "--host", host, "--reason", "a lawsuit", "--by", "counsel")
    assert held.stderr == f"Held: the host {host} (case-7).\n"
    other = run(folder, "hold", "add", "case-8", "--domain", "mistyped.example", "--reason", "a lawsuit")
    assert "Nothing in this store is under that hold yet" in other.stderr
    assert run(folder, "hold", "lift", "case-8").returncode == 0
    assert f"case-7  the host {host}, since" in run(folder, "hold", "list").stdout
    said = run(folder, "retention", "apply").stdout
    assert "tables: 1 left alone: a hold covers them." in said
    assert "The hold case-7 covers 2 that would be due." in said
    assert len(stored_urls(folder / "crawl")) == CRAWLED + PAGES
    fresh = drumlin(folder, "crawl", "http://127.0.0.1:9/", "--out", "crawl", "--fresh", "--allow-private")
    assert (fresh.returncode, "is held (case-7)" in fresh.stderr) == (2, True)
    assert len(stored_urls(folder / "crawl")) == CRAWLED + PAGES
    assert run(folder, "hold", "lift", "case-7").returncode == 0
    assert answer(folder, "hold", "list") == []
    assert len(answer(folder, "retention", "apply")["done"]) == 2


def test_what_is_moved_is_found_by_questions_and_stories(folder: Path) -> None:
    cold = folder / "cold"
    cold.mkdir()
    for kind in ("warc", "tables"):
        moved = run(folder, "retention", "set", kind, "--move-after", "30d", "--move-to", cold)
        assert moved.returncode == 0, moved.stderr
    assert "3 files with 12 rows" in run(folder, "retention", "apply").stdout
    assert answer(folder, "query", "SELECT count(*) AS n FROM pages") == [{"n": CRAWLED + PAGES}]
    told = run(folder, "why", (folder / "home").read_text() + "1.html").stdout
    assert f"of {cold}/warc/drumlin-" in told
    for kind in ("warc", "tables"):
        assert run(folder, "retention", "set", kind, "--keep", "30d").returncode == 0
    assert "3 files with 12 rows" in run(folder, "retention", "apply").stdout
    assert not [path for path in cold.rglob("*") if path.is_file()]


def test_texts_are_taken_out_of_the_tables(folder: Path) -> None:
    assert run(folder, "retention", "set", "text", "--keep", "30d").returncode == 0
    assert "text: 1 files with 3 rows" in run(folder, "retention", "apply").stdout
    counted = answer(folder, "query", "SELECT count(*) AS n, count(text) AS texts FROM pages")
    assert counted == [{"n": CRAWLED + PAGES, "texts": CRAWLED}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("retention", "set", "warc", "--keep", "soon"), "'soon' is no duration"),
        (("retention", "set", "warc", "--move-after", "9d", "--move-to", "nowhere"), "There is no directory nowhere"),
        (("retention", "set", "warc"), "It is not said how long warc is kept"),
        (("retention", "set", "warc", "--move-after", "9d", "--move-to", "crawl"), "is in the store"),
        (("retention", "set", "warc", "--move-after", "9d", "--move-to", "crawl/warc"), "is in the store"),
        (("hold", "lift", "x"), "There is no hold 'x'"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run(folder, *arguments)
    assert (done.returncode, said in sentence(done)) == (2, True), done.stderr


def test_nothing_is_moved_into_the_store_of_another_crawl(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "nodes").mkdir(parents=True)
    done = run(folder, "retention", "set", "tables", "--move-after", "9d", "--move-to", other)
    assert (done.returncode, "is the store of a crawl" in sentence(done)) == (2, True), done.stderr


@pytest.mark.parametrize("store", [(), ("--store", "s3:/crawls/news"), ("--store", "nothing")])
def test_a_check_that_looks_at_nothing_does_not_say_that_all_is_there(tmp_path: Path, store: tuple[str, ...]) -> None:
    done = drumlin(tmp_path, "store", "check", *store)
    assert (done.returncode, "nothing to check" in sentence(done)) == (2, True), done.stdout


def test_a_folder_without_a_store_is_told_of(tmp_path: Path) -> None:
    for verb in (("retention", "apply"), ("hold", "list")):
        done = drumlin(tmp_path, *verb, "--out", "nothing")
        assert (done.returncode, "There is no store in nothing" in sentence(done)) == (2, True)
    assert not (tmp_path / "nothing").exists()
