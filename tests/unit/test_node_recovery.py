"""What is made of a dead node's spool: each result sent once, each page's row written once, whatever is answered."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from drumlin.disk import SCRATCH_PREFIX
from drumlin.model import Duplicate, FailureKind, Outcome
from drumlin.node.keeping import archive as archive_module
from drumlin.node.keeping.archive import SHOWN_WITHIN_S, Archive, Arrival, CrawlPaths
from drumlin.node.keeping.blackbox import BlackBox
from drumlin.node.keeping.journal import Entry, FoundJournal, Journal
from drumlin.node.keeping.recovery import dead_spools, recover, report_killer
from drumlin.node.outcomes import fetch_record, result_of_capture
from drumlin.pipeline import Pipeline
from drumlin.protocol import KILLED, Accepted, Assignment, KnownPage, Rejected, Rejection, Result
from drumlin.reading import Reading
from drumlin.store import WarcWriter, record_id_of
from drumlin.store.spools import SpoolLock
from drumlin.urls import Scope
from tests.harness.outputs import check_index_matches_tables, stored_urls
from tests.unit.store_captures import make_capture

NODE = "n0"


def pipeline() -> Pipeline:
    reading = Reading(agent="drumlin", body_decoded_bytes_max=1 << 20)
    return Pipeline(reading, lambda more: Scope("any", [], [], []), year=2026, before_parse=lambda url: None)


def arrival(number: int) -> Arrival:
    body = f"<!DOCTYPE html><title>Page {number}</title><p>Words.".encode()
    capture = make_capture(f"https://example.com/{number}", body, redirects=())
    task = Assignment(
        f"{NODE}:a.0.seal/{number}.2.0.seal", capture.url, 5, 0.0, capture.host, 0.0, 2, 0, capture.found_on
    )
    result = result_of_capture(capture, task, Outcome.FETCHED, f"id {number}")
    result.content_hash, result.record_id = capture.digest.hex(), record_id_of(capture)
    capture.record_id = result.record_id
    return Arrival(result, fetch_record(result, task, capture.host, NODE), capture)


def opened(paths: CrawlPaths, now: float = 1_760_000_000.0) -> Archive:
    paths.spool(NODE).mkdir(parents=True, exist_ok=True)
    paths.tables.mkdir(parents=True, exist_ok=True)
    return Archive(paths, NODE, software="drumlin/test", info={}, now=now, sync=False)


@pytest.fixture
def paths(tmp_path: Path) -> CrawlPaths:
    return CrawlPaths(tmp_path)


@pytest.fixture
def dead(paths: CrawlPaths) -> CrawlPaths:
    """A node that died with three batches of two pages in its journal. The first batch was answered."""
    archive = opened(paths)
    batches = [archive.store([arrival(number), arrival(number + 1)], 0.0) for number in (0, 2, 4)]
    archive.publish(batches[0], Accepted(1, 1, [Rejected("", "stale")], rejected_at=[1]))
    return paths


def titles(paths: CrawlPaths) -> list[str]:
    files = (paths.tables / "pages").glob("*.parquet")
    return sorted(title for file in files for title in pq.read_table(file)["title"].to_pylist())


def check_settled(paths: CrawlPaths, surplus: int) -> None:
    """Check that index and tables agree, and that so many captures are marked as surplus."""
    assert check_index_matches_tables(paths.root)["surplus"] == surplus


def taking(asked: list[str], rejected: dict[str, str] | None = None) -> Callable[[list[Result], str], Accepted]:
    """A coordinator that accepts everything except the URLs in `rejected`, and notes what it was sent."""

    def submit(results: list[Result], bundle: str) -> Accepted:
        asked.extend(result.url.rpartition("/")[2] for result in results)
        places = [place for place, result in enumerate(results) if result.url[-1] in (rejected or {})]
        refused = [Rejected("", (rejected or {})[results[place].url[-1]]) for place in places]
        receipts = [f"{bundle}:{result.url}" for result in results] if bundle else []
        return Accepted(len(results) - len(places), len(places), refused, rejected_at=places, receipts=receipts)

    return submit


def test_what_was_answered_is_not_sent_again_and_all_that_counted_gets_its_rows(dead: CrawlPaths) -> None:
    asked: list[str] = []
    assert recover(dead, NODE, pipeline(), taking(asked, {"5": "stale"}))
    assert asked == ["2", "3", "4", "5"]
    assert titles(dead) == ["Page 0", "Page 2", "Page 3", "Page 4"]
    assert [path.name for path in dead.spool(NODE).iterdir()] == []
    assert len(list(dead.warc.glob("*.warc.gz"))) == 1
    check_settled(dead, surplus=2)


def test_half_an_upload_that_a_dead_node_left_goes(dead: CrawlPaths) -> None:
    scratch = dead.spool(NODE) / (SCRATCH_PREFIX + "1")
    scratch.mkdir()
    (scratch / "pages.parquet").write_bytes(b"pages")
    assert recover(dead, NODE, pipeline(), taking([]))
    assert not scratch.exists()


def test_what_did_not_count_is_not_in_the_index_of_a_node_that_lives(paths: CrawlPaths) -> None:
    archive = opened(paths)
    batches = [archive.store([arrival(number), arrival(number + 1)], 0.0) for number in (0, 2, 4)]
    archive.publish(batches[2], Accepted(0, 2, [], rejected_at=[0, 1]))
    archive.publish(batches[0], Accepted(1, 1, [], rejected_at=[1]))
    archive.publish(batches[1], Accepted(2, 0, []))
    archive.close()
    assert stored_urls(paths.root) == [f"https://example.com/{number}" for number in (0, 2, 3)]
    check_settled(paths, surplus=3)


def test_captures_that_never_reached_the_journal_are_surplus(dead: CrawlPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = opened(dead, now=1_760_000_001.0)
    archive.publish(archive.store([arrival(6)], 0.0), Accepted(1, 0, []))

    def killed(journal: Journal, entries: list[Entry]) -> int:
        raise SystemExit(9)

    monkeypatch.setattr(Journal, "append", killed)
    with pytest.raises(SystemExit):
        archive.store([arrival(7)], 0.0)
    assert recover(dead, NODE, pipeline(), taking([]))
    assert titles(dead) == ["Page 0", "Page 2", "Page 3", "Page 4", "Page 5", "Page 6"]
    check_settled(dead, surplus=2)


@pytest.mark.parametrize("dies_in", ["settle", "add_rows"])
def test_a_kill_after_an_answer_was_written_down_is_made_good_by_it(
    paths: CrawlPaths, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    archive = opened(paths)
    batch = archive.store([arrival(0), arrival(1)], 0.0)

    def killed(*_: object) -> None:
        raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr(WarcWriter if dies_in == "settle" else archive_module, dies_in, killed)
        with pytest.raises(SystemExit):
            archive.publish(batch, Accepted(1, 1, [], rejected_at=[0]))
    asked: list[str] = []
    assert recover(paths, NODE, pipeline(), taking(asked))
    assert (asked, titles(paths)) == ([], ["Page 1"])
    check_settled(paths, surplus=1)


def test_what_is_still_anothers_stays_for_later_and_only_that_is_asked_again(dead: CrawlPaths) -> None:
    asked: list[str] = []
    assert not recover(dead, NODE, pipeline(), taking(asked, {"3": Rejection.NOT_YOURS}))
    assert titles(dead) == []
    [journal] = dead.spool(NODE).glob("*.journal")
    assert sorted(FoundJournal(journal).answers) == [0, 2]
    asked.clear()
    assert recover(dead, NODE, pipeline(), taking(asked))
    assert asked == ["2", "3"]
    assert titles(dead) == ["Page 0", "Page 2", "Page 3", "Page 4", "Page 5"]


def test_a_page_that_repeats_another_is_marked_in_its_row_and_keeps_its_text(dead: CrawlPaths) -> None:
    earlier = Duplicate("https://example.com/first", 1.0, "urn:x")

    def submit(results: list[Result], bundle: str) -> Accepted:
        return Accepted(len(results), 0, [], duplicates=[KnownPage(1, earlier)])

    assert recover(dead, NODE, pipeline(), submit)
    [file] = (dead.tables / "pages").glob("*.parquet")
    rows = {row["title"]: row for row in pq.read_table(file).to_pylist()}
    assert [rows[f"Page {n}"]["duplicate_of"] for n in (2, 3, 5)] == [None, earlier.url, earlier.url]
    assert all(row["text"] for row in rows.values())


def test_a_node_without_a_store_makes_bundles_of_what_is_left(tmp_path: Path) -> None:
    paths = CrawlPaths(tmp_path, bundled=True)
    archive = opened(paths)
    archive.store([arrival(0)], 0.0)
    assert recover(paths, NODE, pipeline(), taking([]))
    [bundle] = paths.spool(NODE).iterdir()
    with tarfile.open(bundle) as tar:
        receipts = tar.extractfile("receipts")
        assert receipts is not None
        assert receipts.read().decode() == f"{bundle.stem}:https://example.com/0"
    assert [*paths.warc.iterdir(), *paths.tables.glob("*/*")] == []


def test_a_segment_of_which_nothing_counted_is_not_sent(tmp_path: Path) -> None:
    paths = CrawlPaths(tmp_path, bundled=True)
    archive = opened(paths)
    archive.publish(archive.store([arrival(0)], 0.0), Accepted(0, 1, [], rejected_at=[0], receipts=[""]))
    archive.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_segment_that_is_old_is_completed_when_all_of_it_is_answered(tmp_path: Path) -> None:
    paths = CrawlPaths(tmp_path, bundled=True)
    archive = opened(paths)
    first = archive.store([arrival(0)], 100.0)
    archive.show_old_rows(101.0)
    second = archive.store([arrival(1)], 101.0)
    archive.show_old_rows(1000.0)
    third = archive.store([arrival(2)], 1000.0)
    assert (first.segment is second.segment, second.segment is third.segment) == (True, False)
    archive.publish(second, Accepted(1, 0, [], receipts=["2"]))
    assert not list(paths.spool(NODE).glob("*.tar"))
    archive.publish(first, Accepted(1, 0, [], receipts=["1"]))
    assert len(list(paths.spool(NODE).glob("*.tar"))) == 1
    archive.publish(third, Accepted(1, 0, [], receipts=["3"]))
    archive.close()
    assert len(list(paths.spool(NODE).glob("*.tar"))) == 2
    assert not list(paths.spool(NODE).glob("*.journal"))


def test_only_spools_of_dead_nodes_with_something_in_them_are_found(dead: CrawlPaths) -> None:
    dead.spool("empty").mkdir()
    dead.spool("own").mkdir()
    assert list(dead_spools(dead, but="own")) == [NODE]
    lock = SpoolLock.take(dead.spool(NODE))
    assert lock is not None
    assert list(dead_spools(dead, but="own")) == []
    lock.free()


@pytest.mark.parametrize(("attempts", "kind"), [(0, KILLED), (1, KILLED), (2, FailureKind.CRASH)])
def test_the_page_a_process_died_on_is_tried_again_but_not_for_ever(tmp_path: Path, attempts: int, kind: str) -> None:
    path, told = tmp_path / "parsing", list[Result]()
    box = BlackBox(path)
    box.reading({"http://a.test/x": f"n0:a.0/7.1.{attempts}.seal"})
    box.parsing("http://a.test/x")
    box.close()

    def submit(results: list[Result], bundle: str) -> Accepted:
        told.extend(results)
        return Accepted(len(results), 0, [])

    report_killer(path, submit)
    report_killer(path, submit)
    [result] = told
    assert (result.url, result.outcome, result.kind) == ("http://a.test/x", Outcome.FAILED, kind)
    assert result.assignment_id == f"n0:a.0/7.1.{attempts}.seal"


def test_rows_are_seen_soon_each_once_and_in_few_files(paths: CrawlPaths) -> None:
    archive = opened(paths)
    for second in range(200):
        archive.publish(archive.store([arrival(second)], float(second)), Accepted(1, 0, []))
        archive.show_old_rows(float(second))
        seen = stored_urls(paths.root) if any(paths.tables.glob("pages/*.parquet")) else []
        assert len(seen) == len(set(seen))
        assert len(seen) >= second - SHOWN_WITHIN_S
    archive.close()
    assert len(stored_urls(paths.root)) == 200
    assert len(list(paths.tables.glob("pages/*.parquet"))) == 1


def test_what_was_shown_of_a_dead_nodes_segment_is_completed_and_nothing_is_there_twice(paths: CrawlPaths) -> None:
    archive = opened(paths)
    for second in range(50):
        archive.publish(archive.store([arrival(second)], float(second)), Accepted(1, 0, []))
        archive.show_old_rows(float(second))
    assert 0 < len(stored_urls(paths.root)) < 50
    del archive
    assert recover(paths, NODE, pipeline(), lambda results, bundle: Accepted(len(results), 0, []))
    assert sorted(stored_urls(paths.root)) == sorted(f"https://example.com/{number}" for number in range(50))
    check_index_matches_tables(paths.root)
