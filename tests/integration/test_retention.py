"""Retention in a directory: what is old is deleted or moved as the dry run has said, and readers are told the truth."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from drumlin.errors import BusyError, ConfigError, StorageError
from drumlin.lifecycle.book import (
    Signature,
    add_hold,
    begin_removal,
    begin_run,
    end_removal,
    lift_hold,
    open_book,
    set_rule,
)
from drumlin.lifecycle.holds import make_hold
from drumlin.lifecycle.retention.planning import Tally
from drumlin.lifecycle.retention.policy import Kind, Rule
from drumlin.lifecycle.retention.running import apply, planned
from drumlin.sql.database import answering, answering_from
from drumlin.store.copies import record_pieces, stored_capture
from drumlin.store.files import DirectoryFiles
from drumlin.store.finish import alone, finish
from drumlin.store.ledger import Ledger, LedgerLine, reading
from drumlin.store.tables.lookup import StoreReader
from drumlin.store.tables.reading import has_moved_tables
from tests.harness.aged import DAY_S, PAGES, add_segment, files_below, segment_of
from tests.harness.outputs import check_index_matches_tables, check_rows_lead_to_records, stored_urls

NOW = time.time()
WHO = Signature("alice", "root", NOW)
KEEP = Rule(30 * DAY_S)
KILLED = -9


class Scene:
    """A store with an old segment of `old.test`, another of `kept.test` and a young one of `young.test`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = DirectoryFiles(root)
        self.book = open_book(self.files)
        self.old = add_segment(root, "old")
        self.kept = add_segment(root, "kept")
        self.young = add_segment(root, "young", NOW - DAY_S)
        finish(root)

    def rule(self, kind: Kind, rule: Rule = KEEP) -> None:
        set_rule(self.book, WHO, kind, rule)

    def hold(self, host: str = "", name: str = "case") -> None:
        add_hold(self.book, WHO, make_hold(name, "a lawsuit", "alice", NOW, host=host))

    def apply(self) -> Tally:
        """Run it, after a dry run that changes nothing and says the same."""
        before = files_below(self.root)
        would = planned(self.files, self.root, NOW)
        assert files_below(self.root) == before
        done = apply(DirectoryFiles(self.root), self.root, WHO)
        assert done == would
        again = apply(DirectoryFiles(self.root), self.root, WHO)
        assert again.numbers == {}
        return done

    def fetch(self, url: str) -> object:
        return StoreReader(self.files).fetches(url, lambda: True)[0]

    def count(self, what: str) -> int:
        files = DirectoryFiles(self.root)
        asked = answering_from(files, what) if has_moved_tables(files) else answering(self.root / "tables", what)
        with asked as answer:
            [(number,)] = answer.rows()
            assert isinstance(number, int)
            return number


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "store")


def numbers(tally: Tally) -> dict[str, tuple[int, int, int]]:
    return {name: (one.units, one.files, one.rows) for name, one in tally.numbers.items()}


def test_without_a_rule_nothing_is_touched(scene: Scene) -> None:
    before = files_below(scene.root)
    assert scene.apply() == Tally()
    after = files_below(scene.root)
    assert {path for path in after if not path.startswith("lifecycle/")} == set(before)


def test_old_warc_files_go_with_their_lines_of_the_index_and_rows_stay(scene: Scene) -> None:
    scene.rule(Kind.WARC)
    assert numbers(scene.apply()) == {"warc delete": (2, 4, 2 * PAGES)}
    assert stored_urls(scene.root) == sorted([*scene.old, *scene.kept, *scene.young])
    index = (scene.root / "warc" / "index.cdxj").read_text()
    assert index.count("young.test") == PAGES
    assert "old.test" not in index
    [found] = StoreReader(scene.files).fetches(scene.old[0], lambda: True)[0]
    retired = scene.files.retired(f"warc/{found.warc_filename}")
    assert retired == (NOW, "")
    with pytest.raises(FileNotFoundError):
        stored_capture(scene.files, found.warc_filename, found.warc_offset or 0, 1 << 20)


def test_old_segments_of_tables_go_as_a_whole_and_never_come_back(scene: Scene, tmp_path: Path) -> None:
    copy = tmp_path / "sent"
    add_segment(copy, "old")
    scene.rule(Kind.TABLES)
    # A row for each page and each attempt, and two links of each page.
    assert numbers(scene.apply()) == {"tables delete": (2, 6, 2 * PAGES * 4)}
    assert stored_urls(scene.root) == sorted(scene.young)
    assert scene.fetch(scene.old[0]) == []
    assert scene.files.rows_deleted() == NOW
    # The node that made it does not know whether it arrived, and sends it again.
    assert scene.files.has_segment(segment_of("old"))
    members = {str(path.relative_to(copy)): path for path in copy.rglob("*") if path.is_file()}
    assert not scene.files.publish(segment_of("old"), members)
    assert stored_urls(scene.root) == sorted(scene.young)


def test_texts_go_and_the_rest_of_their_rows_stays(scene: Scene) -> None:
    scene.rule(Kind.TEXT)
    path = scene.root / "tables" / "pages" / f"{segment_of('old')}.parquet"
    before = pq.read_table(path)
    assert numbers(scene.apply()) == {"text delete": (2, 2, 2 * PAGES)}
    after = pq.read_table(path)
    assert after["text"].null_count == PAGES
    assert after.drop_columns("text").equals(before.drop_columns("text"))
    assert b"the words of http://old.test" not in path.read_bytes()
    assert scene.count("SELECT count(text) FROM pages") == PAGES
    assert check_rows_lead_to_records(scene.root) == 3 * PAGES
    check_index_matches_tables(scene.root)


def test_a_hold_on_a_host_keeps_every_file_that_has_something_of_it(scene: Scene) -> None:
    for kind in Kind:
        scene.rule(kind)
    scene.hold("kept.test")
    done = scene.apply()
    assert numbers(done) == {"warc delete": (1, 2, PAGES), "tables delete": (1, 3, PAGES * 4)}
    assert dict(done.left) == {"warc held": 1, "tables held": 1, "text held": 1}
    assert dict(done.held_by) == {"case": 3}
    assert stored_urls(scene.root) == sorted([*scene.kept, *scene.young])
    assert check_rows_lead_to_records(scene.root) == 2 * PAGES
    lift_hold(scene.book, WHO, "case")
    assert numbers(scene.apply()) == {"warc delete": (1, 2, PAGES), "tables delete": (1, 3, PAGES * 4)}


def test_while_a_removal_is_not_done_nothing_is_touched(scene: Scene) -> None:
    scene.rule(Kind.WARC)
    begin_removal(scene.book, WHO, "host:1234", lambda holds: None)
    before = files_below(scene.root)
    with pytest.raises(BusyError, match="retention could move what it has to remove"):
        apply(DirectoryFiles(scene.root), scene.root, WHO)
    assert files_below(scene.root) == before
    end_removal(scene.book, WHO, "host:1234")
    assert numbers(scene.apply())


def test_a_run_ends_a_killed_one_also_if_nothing_is_left_to_do(scene: Scene) -> None:
    """Or else a removal would wait for the killed one for ever."""
    begin_run(scene.book, Signature("killed", "root", NOW - 1), "")
    with pytest.raises(BusyError, match="Retention is under way"):
        begin_removal(scene.book, WHO, "host:1234", lambda holds: None)
    assert apply(DirectoryFiles(scene.root), scene.root, WHO).numbers == {}
    begin_removal(scene.book, WHO, "host:1234", lambda holds: None)


def test_a_hold_on_the_whole_crawl_keeps_everything(scene: Scene) -> None:
    (scene.root / "logs").mkdir()
    (scene.root / "logs" / "n0.log").write_text("2025-01-01 00:00:00,123 INFO drumlin: words\n")
    for kind in Kind:
        scene.rule(kind)
    scene.hold()
    before = files_below(scene.root)
    assert scene.apply().numbers == {}
    assert {path for path in files_below(scene.root) if "lifecycle" not in path} == {
        path for path in before if "lifecycle" not in path
    }


def test_logs_go_by_the_time_of_their_last_entry(scene: Scene) -> None:
    logs = scene.root / "logs"
    logs.mkdir()
    (logs / "old.log").write_text("2025-01-01 00:00:00,123 INFO drumlin: a\n2025-01-02 00:00:00,123 INFO drumlin: b\n")
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(NOW - DAY_S))
    (logs / "new.log").write_text(f'{{"time":"2025-01-01T00:00:00.000Z"}}\n{{"time":"{stamp}.000Z"}}\n')
    scene.rule(Kind.LOGS)
    assert numbers(scene.apply()) == {"logs delete": (1, 1, 2)}
    assert [path.name for path in logs.iterdir()] == ["new.log"]


def test_times_that_strangers_bring_into_a_log_are_not_taken_for_its_own(scene: Scene) -> None:
    logs = scene.root / "logs"
    logs.mkdir()
    old = "2025-01-01 00:00:00,123 INFO drumlin: "
    (logs / "ahead.log").write_text(f"{old}http://a.test/2999-01-01T00:00:00.000Z\n")
    (logs / "never.log").write_text(f"{old}http://a.test/2026-99-99T99:99:99.000Z\n2026-99-99 99:99:99,000 x\n")
    scene.rule(Kind.LOGS)
    assert numbers(scene.apply()) == {"logs delete": (2, 2, 3)}


def test_a_ledger_that_leads_out_of_the_store_is_not_followed(scene: Scene, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    scene.rule(Kind.WARC)
    forged = LedgerLine(NOW, Kind.WARC, "x", deleted=[f"../{mine.name}", str(mine)])
    Ledger(scene.root).append(forged)
    with pytest.raises(StorageError, match="is not in"):
        scene.apply()
    assert mine.exists()


def test_what_may_grow_or_is_owed_to_kafka_is_left_alone(scene: Scene) -> None:
    spool = scene.root / "nodes" / "old"
    spool.mkdir(parents=True)
    [warc] = (scene.root / "warc").glob("*-old.warc.gz")
    (spool / f"{segment_of('old')}.journal").write_bytes(b"before" + warc.name.encode() + b"after")
    coordinator = scene.root / "events" / "coordinator-c-1"
    coordinator.mkdir(parents=True)
    (coordinator / f"{segment_of('kept')}.events").write_bytes(b"{}")
    for kind in (Kind.WARC, Kind.TABLES):
        scene.rule(kind)
    done = scene.apply()
    assert numbers(done) == {"warc delete": (1, 2, PAGES)}
    assert dict(done.left) == {"warc growing": 1, "tables growing": 1, "tables events_owed": 1}
    assert stored_urls(scene.root) == sorted([*scene.old, *scene.kept, *scene.young])


def test_what_is_moved_can_be_read_as_before(scene: Scene, tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    cold.mkdir()
    before = files_below(scene.root)
    for kind in (Kind.WARC, Kind.TABLES):
        scene.rule(kind, Rule(0.0, 30 * DAY_S, str(cold)))
    assert numbers(scene.apply()) == {"warc move": (2, 2, 2 * PAGES), "tables move": (2, 6, 2 * PAGES * 4)}
    moved = files_below(cold)
    assert len(moved) == 8
    assert all(before[path] == content for path, content in moved.items())
    assert not any((scene.root / path).exists() for path in moved)
    [found] = StoreReader(scene.files).fetches(scene.old[0], lambda: True)[0]
    capture = stored_capture(scene.files, found.warc_filename, found.warc_offset or 0, 1 << 20)
    assert capture.url == scene.old[0]
    assert scene.files.retired(f"warc/{found.warc_filename}") == (NOW, f"{cold}/warc/{found.warc_filename}")
    assert scene.count("SELECT count(*) FROM pages") == 3 * PAGES
    # What was moved is deleted there when its time has come.
    for kind in (Kind.WARC, Kind.TABLES):
        scene.rule(kind)
    assert numbers(scene.apply()) == {"warc delete": (2, 4, 2 * PAGES), "tables delete": (2, 6, 2 * PAGES * 4)}
    assert files_below(cold) == {}
    assert stored_urls(scene.root) == sorted(scene.young)


@pytest.mark.parametrize("inside", ["", "warc", "link"])
def test_nothing_is_moved_to_where_it_is(scene: Scene, tmp_path: Path, inside: str) -> None:
    """The copy would be the file itself, which is deleted when it was copied."""
    (tmp_path / "link").symlink_to(scene.root)
    place = tmp_path / "link" if inside == "link" else scene.root / inside
    scene.rule(Kind.WARC, Rule(0.0, 30 * DAY_S, str(place)))
    before = files_below(scene.root)
    with pytest.raises(ConfigError, match="is in the store"):
        planned(scene.files, scene.root, NOW)
    with pytest.raises(ConfigError, match="is in the store"):
        apply(scene.files, scene.root, WHO)
    assert {path for path in before if path.endswith(".gz")} <= set(files_below(scene.root))


def test_a_table_that_is_being_asked_is_left_for_the_next_run(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drumlin.lifecycle.retention.in_directory.READERS_WAIT_S", 0.0)
    scene.rule(Kind.TABLES)
    with reading(scene.root):
        done = apply(scene.files, scene.root, WHO)
    assert (done.numbers, dict(done.left)) == ({}, {"tables being_read": 2})
    assert numbers(scene.apply()) == {"tables delete": (2, 6, 2 * PAGES * 4)}


def test_while_another_process_works_on_the_store_it_refuses(scene: Scene) -> None:
    scene.rule(Kind.TABLES)
    with alone(scene.root), pytest.raises(BusyError):
        apply(scene.files, scene.root, WHO)
    assert len(stored_urls(scene.root)) == 3 * PAGES


KILLER = """
import os, sys, time
from pathlib import Path
from drumlin.lifecycle.book import Signature
from drumlin.lifecycle.retention.running import apply
from drumlin.store.files import DirectoryFiles
root, left, now = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
def count(event, arguments):
    global left
    if event in ("os.remove", "os.rename", "os.truncate"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
sys.addaudithook(count)
apply(DirectoryFiles(root), root, Signature("a", "b", now))
"""


def killed_run(root: Path, at: int) -> int:
    """A run that is killed before its nth change of a file; returns how it ended."""
    command = [sys.executable, "-P", "-c", KILLER, str(root), str(at), repr(NOW)]
    return subprocess.run(command, timeout=60, check=False).returncode


@pytest.mark.parametrize("at", [4, 9, 14])
def test_a_run_that_was_killed_is_completed_by_the_next(tmp_path: Path, at: int) -> None:
    scene = Scene(tmp_path / "store")
    cold = tmp_path / "cold"
    cold.mkdir()
    scene.rule(Kind.WARC)
    scene.rule(Kind.TEXT)
    scene.rule(Kind.TABLES, Rule(0.0, 40 * DAY_S, str(cold)))
    assert killed_run(scene.root, at) == KILLED
    apply(DirectoryFiles(scene.root), scene.root, WHO)
    check_ended_well(scene, cold)


def check_ended_well(scene: Scene, cold: Path) -> None:
    """Old WARC files and texts are gone, old tables are in the cold place, and nothing is left over."""
    there = {path for path in files_below(scene.root) if not path.startswith("lifecycle/")}
    [young] = [path.removesuffix(".warc.gz") for path in there if path.endswith(".warc.gz")]
    tables = {f"tables/{table}/{segment_of('young')}.parquet" for table in ("pages", "links", "fetches")}
    assert there == {f"{young}.warc.gz", f"{young}.cdxj", "warc/index.cdxj", *tables}
    moved = files_below(cold)
    assert len(moved) == 6
    texts = [pq.read_table(io.BytesIO(moved[path]))["text"] for path in moved if "/pages/" in path]
    assert all(column.null_count == PAGES for column in texts)
    assert (scene.root / "warc" / "index.cdxj").read_text().count("\n") == PAGES
    assert scene.count("SELECT count(*) FROM pages") == 3 * PAGES
    assert scene.count("SELECT count(text) FROM pages") == PAGES
    assert apply(DirectoryFiles(scene.root), scene.root, WHO).numbers == {}


def test_a_record_by_itself_is_what_is_stored(scene: Scene) -> None:
    [found] = StoreReader(scene.files).fetches(scene.old[1], lambda: True)[0]
    content = (scene.root / "warc" / found.warc_filename).read_bytes()
    with scene.files.open(f"warc/{found.warc_filename}") as file:
        record = b"".join(record_pieces(file, found.warc_offset or 0))
    start = found.warc_offset or 0
    assert record == content[start : start + len(record)]
    assert stored_capture(scene.files, found.warc_filename, start, 1 << 20).warc_length == len(record)
