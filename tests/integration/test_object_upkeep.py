"""Small segments of a store in a bucket are joined, and what nothing needs is removed, without a reader noticing."""

from __future__ import annotations

import random
import secrets
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drumlin.cli.main import run
from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import EXIT_OK, EXIT_STORAGE, StorageError
from drumlin.lifecycle.book import RemovalUnderWay, Signature, end_removal, open_book
from drumlin.lifecycle.book import begin_removal as book_of_removal
from drumlin.lifecycle.held import begin_joining, next_to_join
from drumlin.lifecycle.removal.bucket import BucketRemoval
from drumlin.lifecycle.removal.targets import Targets, What, parse_target
from drumlin.model import Outcome
from drumlin.serving import upkeep
from drumlin.store import FetchRecord, SegmentWriter, WarcWriter
from drumlin.store.copies import stored_capture
from drumlin.store.names import TOMBSTONES
from drumlin.store.objects import compaction, uploads
from drumlin.store.objects.bucket import Bucket
from drumlin.store.objects.collection import find_garbage, missing_objects, remove_garbage
from drumlin.store.objects.compaction import compact, due
from drumlin.store.objects.contents import KEPT_S
from drumlin.store.objects.copying import TooLarge, copy_tables
from drumlin.store.objects.files import ObjectFiles
from drumlin.store.objects.signing import signed_url
from drumlin.store.objects.uploads import unfinished_uploads
from drumlin.store.tables.lookup import StoreReader
from drumlin.store.warc.cdxj import INDEX_NAME, write_index
from tests.harness.outputs import check_index_matches_tables, check_rows_lead_to_records, check_warcs, stored_urls
from tests.harness.s3 import S3Server, downloaded, s3_server
from tests.unit.store_captures import FETCHED, HTML, make_capture

PAGES = 3
LATER_S = 100.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3") / "data") as running:
        yield running


@pytest.fixture
def store(server: S3Server, request: pytest.FixtureRequest) -> ObjectFiles:
    return server.store(request.node.name.replace("_", "-")[:60])


def publish(
    store: ObjectFiles, folder: Path, node: str, fetched: float = FETCHED, *, path: str = "", stamp: bytes = b""
) -> list[str]:
    """A segment of a few pages, as a node makes it, perhaps with another `stamp` in its index; returns their URLs."""
    root = folder / node
    urls = [f"http://{node}.test/{path}{number}" for number in range(PAGES)]
    captures = [make_capture(url, HTML + url.encode(), fetched=fetched) for url in urls]
    writer = WarcWriter(root / "warc", node, software="drumlin/test", info={}, now=fetched)
    writer.settle(writer.store(captures), set())
    writer.close()
    for index in (root / "warc").glob("*.cdxj") if stamp else ():
        lines = [line.split(b" ", 2) for line in index.read_bytes().splitlines(keepends=True)]
        index.write_bytes(b"".join(b" ".join([key, stamp, rest]) for key, _, rest in lines))
    segment = f"{node}-1f-00001"
    tables = SegmentWriter(root / "tables", segment, node=node)
    fetches = [FetchRecord(one.url, one.host, fetched, Outcome.FETCHED, 200, node=node) for one in captures]
    for fetch, capture in zip(fetches, captures, strict=True):
        fetch.record_id = capture.record_id
    tables.add(captures, fetches)
    tables.finish()
    members = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    assert store.publish(segment, members)
    return urls


def test_joined_segments_have_the_same_pages_at_new_places(store: ObjectFiles, tmp_path: Path) -> None:
    urls = [url for node in ("a", "b", "c") for url in publish(store, tmp_path, node)]
    store.complete(tmp_path)
    assert due(store.manifest.contents()) == []
    segments = due(store.manifest.contents(), everything=True)
    assert len(segments) == 3
    assert compact(store, segments, tmp_path)
    fresh = ObjectFiles(store.bucket)
    out = downloaded(fresh, tmp_path / "out")
    assert stored_urls(out) == sorted(urls)
    assert len(list((out / "warc").glob("*.warc.gz"))) == 1
    assert check_rows_lead_to_records(out) == len(urls)
    assert check_index_matches_tables(out) == {"indexed": len(urls), "surplus": 0}
    check_warcs(out)
    [found] = StoreReader(fresh).fetches(urls[-1], lambda: True)[0]
    capture = stored_capture(fresh, found.warc_filename, found.warc_offset or 0, 1 << 20)
    assert capture.url == urls[-1]


def test_a_segment_that_is_dated_ahead_is_not_joined_with_others(store: ObjectFiles, tmp_path: Path) -> None:
    for node in ("a", "b"):
        publish(store, tmp_path, node)
    publish(store, tmp_path, "liar", time.time() + 2 * 86_400.0)
    kept: set[str] = set()
    assert {one.name for one in next_to_join(store, kept, everything=True)} == {"a-1f-00001", "b-1f-00001"}
    assert kept == {"liar-1f-00001"}


def test_a_segment_whose_dates_cannot_be_read_is_not_joined_with_others(store: ObjectFiles, tmp_path: Path) -> None:
    for node in ("a", "b"):
        publish(store, tmp_path, node)
    for number, stamp in enumerate((b"zzzzzzzzzzzzzz", b"20269999999999", b"20{61231000000")):
        publish(store, tmp_path, f"liar{number}", stamp=stamp)
    kept: set[str] = set()
    assert {one.name for one in next_to_join(store, kept, everything=True)} == {"a-1f-00001", "b-1f-00001"}
    assert kept == {f"liar{number}-1f-00001" for number in range(3)}


def test_segments_are_joined_whatever_braces_their_urls_have(store: ObjectFiles, tmp_path: Path) -> None:
    urls = [url for node in ("a", "b") for url in publish(store, tmp_path, node, path="?q={a}")]
    assert compact(store, due(store.manifest.contents(), everything=True), tmp_path)
    out = downloaded(ObjectFiles(store.bucket), tmp_path / "out")
    assert stored_urls(out) == sorted(urls)
    assert check_index_matches_tables(out) == {"indexed": len(urls), "surplus": 0}


def test_a_line_of_an_index_that_nobody_can_read_does_not_keep_others_from_being_joined(
    store: ObjectFiles, tmp_path: Path
) -> None:
    publish(store, tmp_path, "a")
    publish(store, tmp_path, "liar", stamp=b"20\n61231000000")
    assert compact(store, due(store.manifest.contents(), everything=True), tmp_path)
    [index] = [one.path for one in store.manifest.contents().items() if one.path.endswith(".cdxj")]
    with store.open(index) as file:
        assert sum(b"http://a.test/" in line for line in file) == PAGES


def test_a_second_compaction_of_the_same_segments_changes_nothing(store: ObjectFiles, tmp_path: Path) -> None:
    for node in ("a", "b"):
        publish(store, tmp_path, node)
    segments = due(store.manifest.contents(), everything=True)
    assert compact(store, segments, tmp_path)
    number = store.manifest.contents().number
    assert not compact(store, segments, tmp_path)
    assert store.manifest.contents().number == number


def test_a_segment_that_comes_again_after_it_was_joined_is_not_added_twice(store: ObjectFiles, tmp_path: Path) -> None:
    for node in ("a", "b"):
        publish(store, tmp_path, node)
    compact(store, due(store.manifest.contents(), everything=True), tmp_path)
    root = tmp_path / "a"
    members = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    assert not ObjectFiles(store.bucket).publish("a-1f-00001", members)
    assert len(store.files("tables/pages", ".parquet")) == 1


def test_only_what_nothing_needs_and_is_old_is_removed(store: ObjectFiles, tmp_path: Path) -> None:
    urls = [url for node in ("a", "b") for url in publish(store, tmp_path, node)]
    store.bucket.put("data/of-a-killed-writer/warc/x.warc.gz", b"orphan")
    store.bucket.put("incoming/n1/x.tar", b"never told of")
    compact(store, due(store.manifest.contents(), everything=True), tmp_path)
    now = time.time()
    assert find_garbage(store, now, LATER_S) == ([], [])
    garbage = find_garbage(store, now + 2 * LATER_S, LATER_S)
    names = [one.name for one in garbage.objects if not one.name.startswith("probes/")]
    assert {"data/of-a-killed-writer/warc/x.warc.gz", "incoming/n1/x.tar"} < set(names)
    # Each of the two segments had a WARC file, its index and three tables.
    assert len(names) == 2 + 2 * 5
    remove_garbage(store, garbage)
    assert find_garbage(store, now + 2 * LATER_S, LATER_S) == ([], [])
    assert missing_objects(store) == []
    assert stored_urls(downloaded(ObjectFiles(store.bucket), tmp_path / "out")) == sorted(urls)


def test_a_coordinator_whose_clock_is_days_ahead_removes_nothing_that_is_new(
    store: ObjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.bucket.put("data/under-way/warc/x.warc.gz", b"its entry is still to come")
    now = time.time
    # This server accepts requests of any date.
    monkeypatch.setattr(time, "time", lambda: now() + 3 * KEPT_S)
    dispatcher = Dispatcher(MemoryEngine(1), CrawlConfig(), [], chance=random.Random(1))
    upkeep.BucketUpkeep(dispatcher, store, Path())._collect()
    assert store.bucket.head("data/under-way/warc/x.warc.gz") is not None


def test_what_has_become_part_of_the_store_since_it_was_looked_at_is_not_removed(
    store: ObjectFiles, tmp_path: Path
) -> None:
    source = tmp_path / "file"
    source.write_bytes(b"uploaded long ago by a writer that was killed")
    item = store.upload("warc/x.warc.gz", source, now=time.time())
    later = time.time() + 2 * LATER_S
    garbage = find_garbage(store, later, LATER_S)
    assert item.name in [one.name for one in garbage.objects]
    assert store.publish("n1-1f-00001", {"warc/x.warc.gz": source})
    remove_garbage(store, garbage)
    assert missing_objects(store) == []


def test_compaction_holds_the_index_of_one_segment_at_a_time(
    store: ObjectFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [url for node in ("a", "b", "c") for url in publish(store, tmp_path, node)]
    most = 0

    def counted(path: Path, lines: list[bytes]) -> None:
        nonlocal most
        most = max(most, len(lines))
        write_index(path, lines)

    monkeypatch.setattr(compaction, "write_index", counted)
    assert compact(store, due(store.manifest.contents(), everything=True), tmp_path)
    assert most == PAGES
    out = downloaded(ObjectFiles(store.bucket), tmp_path / "out")
    assert check_index_matches_tables(out) == {"indexed": len(urls), "surplus": 0}
    [index] = (out / "warc").glob("*.cdxj")
    lines = index.read_bytes().splitlines()
    assert lines == sorted(lines)


def begin_upload(bucket: Bucket, now: float) -> None:
    """An upload in parts that is never completed."""
    url = signed_url(bucket.access, bucket.address, "POST", "data/x/y", now=now, valid_s=60, query={"uploads": ""})
    with urllib.request.urlopen(urllib.request.Request(url, method="POST")) as answer:
        assert b"UploadId" in answer.read()


def test_a_removal_ends_uploads_by_requests_that_are_dated_now(
    store: ObjectFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dated: list[float] = []

    def noted(*arguments: Any, now: float, **more: Any) -> str:
        dated.append(now)
        return signed_url(*arguments, now=now, **more)

    begin_upload(store.bucket, time.time())
    monkeypatch.setattr(uploads, "signed_url", noted)
    host = Targets([parse_target(What.HOST, "a.test")])
    BucketRemoval(store, host, tmp_path, time.time()).remove(dry_run=False)
    assert list(unfinished_uploads(store.bucket, time.time())) == []
    # This server accepts requests of any date, others only those of the last and next fifteen minutes.
    assert max(abs(time.time() - date) for date in dated) < 900


def begin_removal(store: ObjectFiles, folder: Path) -> None:
    """What a removal does first and last: its tombstones enter the manifest, and what nothing names is deleted."""
    tombstones = folder / "tombstones"
    tombstones.write_bytes(secrets.token_bytes(8))
    other = ObjectFiles(store.bucket)
    other.replace(TOMBSTONES, tombstones)
    BucketRemoval(other, Targets([parse_target(What.HOST, "gone.test")]), folder, time.time()).remove(dry_run=False)


def test_a_compaction_that_a_removal_overtakes_is_not_done(
    store: ObjectFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [url for node in ("a", "b") for url in publish(store, tmp_path, node)]
    joined = compaction._join

    def joining(*arguments: Any) -> Any:
        made = joined(*arguments)
        begin_removal(store, tmp_path)
        return made

    monkeypatch.setattr(compaction, "_join", joining)
    assert not compact(store, due(store.manifest.contents(), everything=True), tmp_path)
    assert missing_objects(store) == []
    monkeypatch.setattr(compaction, "_join", joined)
    assert compact(store, due(store.manifest.contents(), everything=True), tmp_path)
    assert stored_urls(downloaded(ObjectFiles(store.bucket), tmp_path / "out")) == sorted(urls)


def test_a_segment_that_a_removal_overtakes_is_sent_again(store: ObjectFiles, tmp_path: Path) -> None:
    publish(store, tmp_path, "a")
    root = tmp_path / "a"
    members = {str(path.relative_to(root)).replace("a-1f", "b-1f"): path for path in root.rglob("*") if path.is_file()}
    members = {path.replace("-a.", "-b."): file for path, file in members.items()}
    before = store.removals()
    begin_removal(store, tmp_path)
    with pytest.raises(StorageError, match="begun to remove"):
        store.publish("b-1f-00001", members, before)
    assert store.publish("b-1f-00001", members, store.removals())
    assert missing_objects(store) == []


def test_nobody_adds_to_a_bucket_while_something_is_removed_from_it(store: ObjectFiles, tmp_path: Path) -> None:
    """Otherwise a removal would not end before all have stopped writing; and what somebody names at the very moment in
    which it is deleted, because nothing names it, would be lost."""
    for node in ("a", "c"):
        publish(store, tmp_path, node)
    root = tmp_path / "a"
    members = {str(path.relative_to(root)).replace("a-1f", "b-1f"): path for path in root.rglob("*") if path.is_file()}
    members = {path.replace("-a.", "-b."): file for path, file in members.items()}
    remover, before = ObjectFiles(store.bucket, "removal"), store.removals()
    remover.begin_removal()
    meanwhile, objects = store.removals(), len(list(store.bucket.listed("data")))
    for removals in (before, meanwhile, None):
        with pytest.raises(StorageError, match="begun to remove"):
            store.publish("b-1f-00001", members, removals)
    assert len(list(store.bucket.listed("data"))) == objects
    assert not compact(store, due(store.manifest.contents(), everything=True), tmp_path, meanwhile)
    (tmp_path / "stones").write_bytes(b"{}")
    with pytest.raises(StorageError, match="begun to remove"):
        store.replace(TOMBSTONES, tmp_path / "stones")
    remover.replace(TOMBSTONES, tmp_path / "stones")
    remover.end_removal()
    for removals in (before, meanwhile):
        with pytest.raises(StorageError, match="begun to remove"):
            store.publish("b-1f-00001", members, removals)
    assert store.publish("b-1f-00001", members, store.removals())
    assert missing_objects(store) == []


def test_nobody_joins_segments_while_a_removal_is_not_done(store: ObjectFiles, tmp_path: Path) -> None:
    publish(store, tmp_path, "a")
    who, book = Signature("alice", "root", time.time()), open_book(store)
    book_of_removal(book, who, "host:1", lambda holds: None)
    with pytest.raises(RemovalUnderWay, match="files that are joined could be lost"):
        begin_joining(store)
    end_removal(book, who, "host:1")
    assert begin_joining(store) == ""


def test_a_removal_goes_on_where_an_object_is_missing(store: ObjectFiles, tmp_path: Path) -> None:
    for node in ("a", "b", "c"):
        publish(store, tmp_path, node)
    items = store.manifest.contents().items()
    [warc] = [item for item in items if item.path.endswith("-a.warc.gz")]
    [table] = [item for item in items if item.path == "tables/pages/b-1f-00001.parquet"]
    store.bucket.delete([warc.name, table.name])
    targets = Targets([parse_target(What.HOST, f"{node}.test") for node in ("a", "b")])
    for dry_run in (True, False):
        counts = BucketRemoval(store, targets, tmp_path, time.time()).remove(dry_run=dry_run)
        assert (counts.missing_files, counts.captures, counts.pages, counts.index_lines) == (2, PAGES, PAGES, 2 * PAGES)
    assert sorted(missing_objects(store)) == sorted([warc.path, table.path])


def test_a_removal_goes_on_where_an_index_or_the_report_is_missing(store: ObjectFiles, tmp_path: Path) -> None:
    for node in ("a", "b"):
        publish(store, tmp_path, node)
    (tmp_path / "report").write_bytes(b"{}")
    store.replace("report.json", tmp_path / "report")
    store.complete(tmp_path)
    items = store.manifest.contents().items()
    store.bucket.delete([one.name for one in items if one.path.endswith("-a.cdxj") or one.path == "report.json"])
    for dry_run in (True, False):
        removal = BucketRemoval(store, Targets([parse_target(What.HOST, "a.test")]), tmp_path, time.time())
        counts = removal.remove(dry_run=dry_run)
        assert (counts.missing_files, counts.captures, counts.pages) == (2, PAGES, PAGES)
    assert missing_objects(store) == ["report.json"]
    with store.open("warc/index.cdxj") as index:
        assert index.read().count(b"http://b.test/") == PAGES


def test_a_removal_that_is_made_again_makes_the_merged_index_that_a_killed_one_has_left(
    store: ObjectFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in ("a", "b"):
        publish(store, tmp_path, node)
    store.complete(tmp_path)
    host = Targets([parse_target(What.HOST, "a.test")])

    def killed(self: ObjectFiles, folder: Path) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(ObjectFiles, "complete", killed)
        with pytest.raises(InterruptedError):
            BucketRemoval(store, host, tmp_path, time.time()).remove(dry_run=False)
    assert index_names(store, "a.test")
    BucketRemoval(store, host, tmp_path, time.time()).remove(dry_run=False)
    assert not index_names(store, "a.test")
    assert index_names(store, "b.test")
    assert missing_objects(store) == []


def index_names(store: ObjectFiles, host: str) -> bool:
    """Whether the merged index has a URL of a host."""
    item = store.manifest.contents().item(f"warc/{INDEX_NAME}")
    assert item is not None
    return host.encode() in store.bucket.get(item.name)


def test_an_upload_that_was_never_completed_is_ended(store: ObjectFiles) -> None:
    bucket, now = store.bucket, time.time()
    begin_upload(bucket, now)
    [upload] = unfinished_uploads(bucket, now)
    assert upload.name == "data/x/y"
    assert find_garbage(store, now, LATER_S).uploads == []
    later = find_garbage(store, now + 2 * LATER_S, LATER_S)
    remove_garbage(store, later)
    assert list(unfinished_uploads(bucket, now)) == []


def test_a_file_that_is_gone_is_named(store: ObjectFiles, tmp_path: Path) -> None:
    publish(store, tmp_path, "a")
    [item] = [one for one in store.manifest.contents().items() if one.path.startswith("tables/links")]
    store.bucket.delete([item.name])
    assert missing_objects(store) == [item.path]


def test_who_learnt_of_a_file_before_it_was_replaced_can_still_read_it(store: ObjectFiles, tmp_path: Path) -> None:
    publish(store, tmp_path, "a")
    publish(store, tmp_path, "b")
    [warc] = [one.name for one in store.files("warc", ".warc.gz") if "-a." in one.name]
    compact(store, due(store.manifest.contents(), everything=True), tmp_path)
    with store.open(f"warc/{warc}") as file:
        assert file.read(2) == b"\x1f\x8b"


def test_tables_are_copied_for_a_reader_without_a_network_unless_they_are_too_large(
    store: ObjectFiles, tmp_path: Path
) -> None:
    urls = [url for node in ("a", "b") for url in publish(store, tmp_path, node)]
    copy_tables(store, tmp_path / "copy", 1 << 30, lambda: True)
    assert stored_urls(tmp_path / "copy") == sorted(urls)
    with pytest.raises(TooLarge):
        copy_tables(store, tmp_path / "large", 100, lambda: True)
    assert not (tmp_path / "large").exists()


@pytest.fixture
def drumlin(
    server: S3Server, store: ObjectFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs a verb on this store; returns its exit code, and all that it says."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)

    def said(*arguments: str) -> tuple[int, str]:
        code = run([*arguments, "--store", str(store)])
        told = capsys.readouterr()
        return code, told.out + told.err

    return said


def test_an_object_that_is_missing_is_named_to_whoever_needs_it(
    store: ObjectFiles, tmp_path: Path, drumlin: Callable[..., tuple[int, str]]
) -> None:
    for node in ("a", "b"):
        publish(store, tmp_path, node)
    whole = store.manifest.contents().items()
    for suffix, code_then, told in (
        (".warc.gz", EXIT_STORAGE, "is missing"),
        (".cdxj", EXIT_OK, "Left alone"),
        (".parquet", EXIT_OK, "Left alone"),
    ):
        missing = next(item for item in whole if item.path.endswith(suffix))
        content = store.bucket.get(missing.name)
        store.bucket.delete([missing.name])
        code, said = drumlin("store", "compact", "--all")
        assert (code, "bug" in said, told in said) == (code_then, False, True), said
        assert missing.name in said or "drumlin store check" in said
        store.bucket.put(missing.name, content)


def test_an_index_that_is_missing_is_left_out_of_the_merged_one_and_named(
    store: ObjectFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for node in ("a", "b"):
        publish(store, tmp_path, node)
    missing = next(item for item in store.manifest.contents().items() if item.path.endswith("-a.cdxj"))
    store.bucket.delete([missing.name])
    store.complete(tmp_path)
    assert f"lacks {missing.path}" in caplog.text
    assert (index_names(store, "a.test"), index_names(store, "b.test")) == (False, True)


def test_segments_that_somebody_else_has_joined_meanwhile_are_not_called_joined(
    store: ObjectFiles, tmp_path: Path, drumlin: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in ("a", "b"):
        publish(store, tmp_path, node)
    monkeypatch.setattr(compaction, "compact", lambda *_: False)
    code, said = drumlin("store", "compact", "--all")
    assert (code, "Run it again." in said, "Nothing was joined." in said) == (0, True, True)
