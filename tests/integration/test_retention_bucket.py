"""Retention in a bucket, on a real S3 server: the manifest first, then the objects. Holds keep segments as they are."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drumlin.errors import BusyError, ConfigError, StorageError
from drumlin.lifecycle.book import (
    BEGUN,
    REMOVAL,
    Order,
    Signature,
    add_hold,
    begin_removal,
    end_removal,
    holds_of,
    open_book,
    set_rule,
)
from drumlin.lifecycle.held import held_segments
from drumlin.lifecycle.holds import make_hold
from drumlin.lifecycle.removal.bucket import BucketRemoval
from drumlin.lifecycle.removal.targets import Target, Targets, What
from drumlin.lifecycle.retention import in_bucket
from drumlin.lifecycle.retention.in_bucket import BucketStore
from drumlin.lifecycle.retention.planning import Left, Step, Tally, Unit
from drumlin.lifecycle.retention.policy import Action, Kind, Policy, Rule
from drumlin.lifecycle.retention.running import apply, planned
from drumlin.sql.database import answering_from
from drumlin.store.copies import stored_capture
from drumlin.store.names import TOMBSTONES
from drumlin.store.objects.bucket import Bucket
from drumlin.store.objects.collection import find_garbage, missing_objects
from drumlin.store.objects.compaction import compact, due
from drumlin.store.objects.contents import Item
from drumlin.store.objects.files import ObjectFiles
from drumlin.store.objects.founding import found_store
from drumlin.store.places import ColdPlace, check_apart, open_place
from drumlin.store.tables.lookup import StoreReader
from tests.acceptance.commands import drumlin
from tests.harness.aged import DAY_S, OLD, PAGES, add_segment, segment_of
from tests.harness.s3 import BUCKET, S3Server, s3_server

NOW = time.time()
WHO = Signature("alice", "root", NOW)
KEEP = Rule(30 * DAY_S)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3") / "data") as running:
        yield running


@pytest.fixture
def store(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectFiles:
    """A store with two old segments and a young one."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    files = server.store(tmp_path.name)
    for node, fetched in (("old", OLD), ("kept", OLD), ("young", NOW - DAY_S)):
        root = tmp_path / node
        add_segment(root, node, fetched)
        members = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
        assert files.publish(segment_of(node), members)
    files.complete(tmp_path)
    return files


def run(store: ObjectFiles) -> Tally:
    """Run it as another process would, after a dry run that says the same."""
    number = store.manifest.contents().number
    would = planned(ObjectFiles(store.bucket), None, NOW)
    assert store.manifest.contents().number == number
    done = apply(ObjectFiles(store.bucket), None, WHO)
    assert done == would
    assert apply(ObjectFiles(store.bucket), None, WHO).numbers == {}
    assert missing_objects(store) == []
    return done


def test_a_machine_whose_clock_is_days_ahead_deletes_nothing(store: ObjectFiles) -> None:
    number = store.manifest.contents().number
    with pytest.raises(ConfigError, match="The clock of this machine"):
        apply(store, None, Signature("alice", "root", NOW + 3 * DAY_S))
    assert store.manifest.contents().number == number


def numbers(tally: Tally) -> dict[str, tuple[int, int, int]]:
    return {name: (one.units, one.files, one.rows) for name, one in tally.numbers.items()}


def pages(store: ObjectFiles, what: str = "count(*)") -> int:
    sql = f"SELECT {what} FROM pages"  # noqa: S608  # words of this file
    with answering_from(ObjectFiles(store.bucket), sql) as answer:
        [(number,)] = answer.rows()
    assert isinstance(number, int)
    return number


def data_of(store: ObjectFiles, word: str) -> list[str]:
    """The objects whose names have this word."""
    return [one.name for one in store.bucket.listed("data") if word in one.name]


def test_old_warc_files_and_texts_go_and_their_objects_at_once(store: ObjectFiles) -> None:
    set_rule(open_book(store), WHO, Kind.WARC, KEEP)
    set_rule(open_book(store), WHO, Kind.TEXT, KEEP)
    objects = len(data_of(store, ""))
    assert numbers(run(store)) == {"warc delete": (2, 4, 2 * PAGES), "text delete": (2, 2, 2 * PAGES)}
    # Two WARC files and their indexes are gone; texts and the merged index were replaced.
    assert len(data_of(store, "")) == objects - 4
    assert data_of(store, "-old.warc.gz") == []
    assert (pages(store), pages(store, "count(text)")) == (3 * PAGES, PAGES)
    with store.open("warc/index.cdxj") as index:
        assert index.read().count(b"\n") == PAGES
    [found] = StoreReader(store).fetches("http://old.test/0", lambda: True)[0]
    assert store.retired(f"warc/{found.warc_filename}") == (NOW, "")
    with pytest.raises(FileNotFoundError):
        stored_capture(store, found.warc_filename, found.warc_offset or 0, 1 << 20)


def test_nothing_is_moved_to_where_it_is(store: ObjectFiles) -> None:
    """The copy would be the object itself, which is deleted when it was copied."""
    for place in (f"{store}", f"{store}/cold"):
        set_rule(open_book(store), WHO, Kind.WARC, Rule(0.0, 30 * DAY_S, place))
        with pytest.raises(ConfigError, match="is in the store"):
            apply(ObjectFiles(store.bucket), None, WHO)
        assert missing_objects(store) == []
    # Whose name only begins with that of the store is another place.
    check_apart(f"{store}", f"{store}-cold")


def test_a_mistyped_store_is_told_of_and_nothing_is_held_there(
    store: ObjectFiles, server: S3Server, tmp_path: Path
) -> None:
    found_store(store, "a-crawl")
    elsewhere = [
        ("hold", "add", "case", "--reason", "law", "--store", f"s3://{BUCKET}/mistyped"),
        ("retention", "apply", "--store", f"s3://{BUCKET}/mistyped"),
    ]
    for arguments in elsewhere:
        done = drumlin(tmp_path, *arguments)
        assert (done.returncode, "There is no store in" in done.stderr) == (3, True), done.stderr
    assert list(server.bucket("mistyped").listed("")) == []
    add_segment(tmp_path / "own", "own")
    rule = ("retention", "set", "warc", "--move-after", "9d", "--out", tmp_path / "own", "--move-to")
    assert "is the store of a crawl" in drumlin(tmp_path, *rule, str(store)).stderr
    assert "Make the bucket" in drumlin(tmp_path, *rule, "s3://no-such-bucket/cold").stderr


def test_old_tables_go_and_do_not_come_back(store: ObjectFiles, tmp_path: Path) -> None:
    set_rule(open_book(store), WHO, Kind.TABLES, KEEP)
    assert numbers(run(store)) == {"tables delete": (2, 6, 2 * PAGES * 4)}
    assert pages(store) == PAGES
    assert store.rows_deleted() == NOW
    root = tmp_path / "old"
    members = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    assert not ObjectFiles(store.bucket).publish(segment_of("old"), members)
    assert pages(store) == PAGES
    # WARC files whose tables are gone are not joined with others.
    assert due(store.manifest.contents(), everything=True) == []


def test_a_hold_keeps_segments_from_being_deleted_and_joined(store: ObjectFiles, tmp_path: Path) -> None:
    book = open_book(store)
    for kind in (Kind.WARC, Kind.TABLES):
        set_rule(book, WHO, kind, KEEP)
    add_hold(book, WHO, make_hold("case", "why", "alice", NOW, host="kept.test"))
    assert [hold.name for hold in holds_of(open_book(store).orders()).all] == ["case"]
    assert held_segments(store) == {segment_of("kept")}
    joined = due(store.manifest.contents(), everything=True, kept=held_segments(store))
    assert segment_of("kept") not in [segment.name for segment in joined]
    done = run(store)
    assert numbers(done) == {"warc delete": (1, 2, PAGES), "tables delete": (1, 3, PAGES * 4)}
    assert dict(done.held_by) == {"case": 2}
    assert pages(store) == 2 * PAGES


def test_what_is_moved_is_read_in_its_new_place_and_deleted_there(
    store: ObjectFiles, server: S3Server, request: pytest.FixtureRequest
) -> None:
    cold = f"s3://{BUCKET}/cold/{request.node.name[:20]}"
    for kind in (Kind.WARC, Kind.TABLES):
        set_rule(open_book(store), WHO, kind, Rule(0.0, 30 * DAY_S, cold))
    assert numbers(run(store)) == {"warc move": (2, 2, 2 * PAGES), "tables move": (2, 6, 2 * PAGES * 4)}
    there = server.bucket(cold.removeprefix(f"s3://{BUCKET}/"))
    assert len(list(there.listed("data"))) == 8
    assert data_of(store, "-old.warc.gz") == []
    assert pages(store) == 3 * PAGES
    [found] = StoreReader(store).fetches("http://old.test/0", lambda: True)[0]
    assert stored_capture(store, found.warc_filename, found.warc_offset or 0, 1 << 20).url == "http://old.test/0"
    retired = store.retired(f"warc/{found.warc_filename}")
    assert retired is not None
    assert retired.to.startswith(cold)
    assert find_garbage(store, NOW + 9 * DAY_S, DAY_S).objects == []
    for kind in (Kind.WARC, Kind.TABLES):
        set_rule(open_book(store), WHO, kind, KEEP)
    assert numbers(run(store)) == {"warc delete": (2, 4, 2 * PAGES), "tables delete": (2, 6, 2 * PAGES * 4)}
    assert list(there.listed("data")) == []
    assert pages(store) == PAGES


def test_objects_that_a_killed_run_has_left_are_deleted_by_the_next(
    store: ObjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends as a kill would end it: after the entry of the manifest, before the first object is deleted."""
    set_rule(open_book(store), WHO, Kind.WARC, KEEP)
    with monkeypatch.context() as patched:
        patched.setattr(BucketStore, "_delete_objects", _killed)
        with pytest.raises(KeyboardInterrupt):
            apply(ObjectFiles(store.bucket), None, WHO)
    assert len(data_of(store, "-old.warc.gz") + data_of(store, "-kept.warc.gz")) == 2
    apply(ObjectFiles(store.bucket), None, WHO)
    assert data_of(store, "-old.warc.gz") + data_of(store, "-kept.warc.gz") == []
    with ObjectFiles(store.bucket).open("warc/index.cdxj") as index:
        assert index.read().count(b"\n") == PAGES


def _killed(*arguments: object) -> None:
    if arguments[1]:
        raise KeyboardInterrupt


def test_a_merged_index_that_stays_the_same_is_kept(store: ObjectFiles, tmp_path: Path) -> None:
    """The segment that is deleted came after the index was made, so its WARC file is not in it."""
    root = tmp_path / "late"
    add_segment(root, "late")
    members = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    assert store.publish(segment_of("late"), members)
    add_hold(open_book(store), WHO, make_hold("a", "why", "alice", NOW, host="old.test"))
    add_hold(open_book(store), WHO, make_hold("b", "why", "alice", NOW, host="kept.test"))
    set_rule(open_book(store), WHO, Kind.WARC, KEEP)
    assert numbers(run(store)) == {"warc delete": (1, 2, PAGES)}
    with ObjectFiles(store.bucket).open("warc/index.cdxj") as index:
        assert index.read().count(b"\n") == 3 * PAGES


def test_segments_are_joined_after_their_warc_files_are_gone(store: ObjectFiles, tmp_path: Path) -> None:
    set_rule(open_book(store), WHO, Kind.WARC, KEEP)
    run(store)
    assert compact(store, due(store.manifest.contents(), everything=True), tmp_path)
    assert pages(store) == 3 * PAGES
    [found] = StoreReader(ObjectFiles(store.bucket)).fetches("http://old.test/0", lambda: True)[0]
    assert store.retired(f"warc/{found.warc_filename}") == (NOW, "")


# Beside a removal


@pytest.fixture
def cold(store: ObjectFiles, server: S3Server, tmp_path: Path) -> Bucket:
    """Another place, to which old WARC files are to be moved."""
    prefix = f"beside/{tmp_path.name}"
    set_rule(open_book(store), WHO, Kind.WARC, Rule(0.0, 30 * DAY_S, f"s3://{BUCKET}/{prefix}"))
    return server.bucket(prefix)


def remove_host(host: str, store: ObjectFiles, tmp_path: Path) -> None:
    """Remove a host from the bucket itself, whatever the book says."""
    targets = Targets([Target(What.HOST, host)])
    assert BucketRemoval(ObjectFiles(store.bucket), targets, tmp_path, NOW).remove(dry_run=False).removed


def when_a_copy_is_made(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object], number: int = 1) -> None:
    """Let something happen when a file was fetched, and its copy, the first or another, is about to be put in its
    place."""
    opened_times = itertools.count(1)

    def opened(place: str) -> ColdPlace:
        if next(opened_times) == number:
            happens()
        return open_place(place)

    monkeypatch.setattr(in_bucket, "open_place", opened)


def names_in(bucket: Bucket) -> list[str]:
    return [one.name for one in bucket.listed("data")]


def test_a_removal_does_not_begin_while_retention_moves_files(
    store: ObjectFiles, cold: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []

    def begin() -> None:
        with pytest.raises(BusyError) as busy:
            begin_removal(open_book(store), WHO, "host:1234", lambda holds: None)
        refused.append(busy.value.message)

    when_a_copy_is_made(monkeypatch, begin)
    assert numbers(apply(ObjectFiles(store.bucket), None, WHO)) == {"warc move": (2, 2, 2 * PAGES)}
    assert ["Retention is under way" in one for one in refused] == [True]
    begin_removal(open_book(store), WHO, "host:1234", lambda holds: None)


def test_retention_stops_before_its_next_step_when_a_removal_has_begun(
    store: ObjectFiles, cold: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if another run had ended this one, which was taken for killed."""
    book, perform = open_book(store), BucketStore.perform

    def performed(self: BucketStore, step: Step, now: float) -> Left | None:
        why = perform(self, step, now)
        book.add(lambda _: Order(NOW, "bob", "root", REMOVAL, name="host:1234", outcome=BEGUN))
        return why

    monkeypatch.setattr(BucketStore, "perform", performed)
    with pytest.raises(BusyError, match="retention could move what it has to remove"):
        apply(ObjectFiles(store.bucket), None, WHO)
    assert len(names_in(cold)) == 1
    assert missing_objects(store) == []
    # It has ended, so nobody waits for it.
    end_removal(book, WHO, "host:1234")
    begin_removal(book, WHO, "host:1234", lambda holds: None)


def test_a_copy_of_what_was_removed_meanwhile_does_not_stay(
    store: ObjectFiles, cold: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its file is the first that is moved.
    when_a_copy_is_made(monkeypatch, lambda: remove_host("kept.test", store, tmp_path))
    done = apply(ObjectFiles(store.bucket), None, WHO)
    assert (numbers(done), dict(done.left)) == ({"warc move": (1, 1, PAGES)}, {"warc changed": 1})
    [name] = names_in(cold)
    assert name.endswith("-old.warc.gz")
    assert missing_objects(store) == []


def tables_of_old(store: ObjectFiles, kind: Kind) -> Unit:
    """The tables of the segment `old`, or the text in them."""
    units = BucketStore(store).units(Policy({Kind.TEXT: KEEP, Kind.TABLES: KEEP}))
    return next(unit for unit in units if (unit.kind, unit.name) == (kind, segment_of("old")))


def test_a_table_without_text_that_a_removal_has_deleted_is_not_named(
    store: ObjectFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ObjectFiles(store.bucket)
    upload, tombstones = files.upload, tmp_path / "tombstones"
    tombstones.write_bytes(b"of another host")

    def overtaken(*arguments: Any, **more: Any) -> Item:
        item = upload(*arguments, **more)
        store.replace(TOMBSTONES, tombstones)
        remove_host("kept.test", store, tmp_path)
        return item

    monkeypatch.setattr(files, "upload", overtaken)
    text = Step(Action.DELETE, tables_of_old(store, Kind.TEXT))
    assert BucketStore(files).perform(text, NOW) is Left.CHANGED
    assert missing_objects(store) == []
    assert BucketStore(store).perform(text, NOW) is None


@pytest.mark.parametrize("copied", [1, 3])
def test_copies_stay_if_another_run_may_be_about_to_name_them(
    store: ObjectFiles, cold: Bucket, monkeypatch: pytest.MonkeyPatch, copied: int
) -> None:
    """Another run takes away the text, after one table or all three were fetched: links and fetches stay the same."""
    own, other = BucketStore(ObjectFiles(store.bucket)), BucketStore(ObjectFiles(store.bucket))
    text = Step(Action.DELETE, tables_of_old(store, Kind.TEXT))
    when_a_copy_is_made(monkeypatch, lambda: other.perform(text, NOW), copied)
    move = Step(Action.MOVE, tables_of_old(store, Kind.TABLES), str(cold.address))
    with contextlib.suppress(StorageError):
        # The pages that were to be copied next may be gone.
        assert own.perform(move, NOW) is Left.CHANGED
    folders = [name.split("/")[-2] for name in names_in(cold)]
    assert "pages" not in folders
    assert folders
    assert own.perform(move, NOW) is None
    assert len(names_in(cold)) == 3
    assert missing_objects(store) == []
