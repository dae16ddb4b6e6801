"""Bundles of nodes that were away while something was removed: it is taken out before they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from drumlin.access.tokens import Role
from drumlin.api.intake.shipping import ship
from drumlin.config import CrawlConfig
from drumlin.engines.blocking import drive
from drumlin.lifecycle.removal.targets import Target, What
from drumlin.lifecycle.removal.tombstones import IN_STORE, packed, put
from drumlin.model import Outcome
from drumlin.node.keeping import bucket_uploads
from drumlin.node.keeping.bucket_uploads import BucketUploads
from drumlin.node.keeping.bundles import SIZES
from drumlin.protocol import Result, Results
from drumlin.store import FetchRecord, SegmentWriter, WarcWriter, merge
from drumlin.urls import host_of
from tests.harness.bundles import BundlingNode, Members, stored
from tests.harness.bundles import packed as tarred
from tests.harness.coordinators import RemoteNode, RunningCoordinator
from tests.harness.outputs import (
    check_index_matches_tables,
    check_rows_lead_to_records,
    check_warcs,
    query,
    stored_urls,
)
from tests.harness.s3 import downloaded, s3_server
from tests.harness.searching import found_in
from tests.unit.store_captures import FETCHED, HTML, make_capture

URLS = ("http://a.test/1", "http://b.test/", "http://a.test/2")
GONE = Target(What.HOST, "b.test")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def coordinator(store: Path) -> Iterator[RunningCoordinator]:
    with RunningCoordinator(config=CrawlConfig(scope="host"), store=store, controlled=True) as running:
        yield running


@pytest.fixture
def node(coordinator: RunningCoordinator, tmp_path: Path) -> BundlingNode:
    return BundlingNode(RemoteNode(coordinator, "n1"), tmp_path / "n1")


def remove_host(coordinator: RunningCoordinator) -> None:
    """As if the coordinator had been started after the removal."""
    dispatcher = coordinator.dispatcher
    dispatcher.findings.removed = drive(put(dispatcher.engine, [GONE], b"k" * 32, 1_000.0))


def test_a_late_bundle_is_stored_without_what_was_removed(
    coordinator: RunningCoordinator, node: BundlingNode, store: Path
) -> None:
    segment, members = node.bundle(*URLS, asked={"a.test": "", "b.test": ""})
    remove_host(coordinator)
    assert node.put(segment, members).json == {"status": "stored"}
    assert stored_urls(store) == ["http://a.test/1", "http://a.test/2"]
    assert query(store, "SELECT DISTINCT host FROM {fetches}") == [("a.test",)]
    assert not any(found_in(store, "b.test").values())
    check_warcs(store)
    merge(store / "warc")
    check_rows_lead_to_records(store)
    check_index_matches_tables(store)


def test_the_same_late_bundle_again_changes_nothing(
    coordinator: RunningCoordinator, node: BundlingNode, store: Path
) -> None:
    segment, members = node.bundle(*URLS)
    remove_host(coordinator)
    assert node.put(segment, members).status == 200
    before = stored(store)
    assert node.put(segment, members).json == {"status": "stored"}
    assert stored(store) == before


def test_the_removed_is_refused_when_it_is_named_or_found_and_people_are_told(
    coordinator: RunningCoordinator, tmp_path: Path
) -> None:
    remove_host(coordinator)
    token = coordinator.tokens[Role.OPERATOR]
    urls = ["http://a.test/1", "http://b.test/new"]
    told = coordinator.post("/api/v1/urls", {"urls": urls}, token=token).json
    assert (told["added"], told["removed"]) == (1, 1)
    asked = coordinator.get("/api/v1/urls?url=http://b.test/new", token=token)
    assert (asked.status, asked.code) == (404, "removed")
    node = RemoteNode(coordinator, "n1")
    [task] = node.take()
    result = Result(task["assignment_id"], task["url"], 200, "", ["http://a.test/2", "http://b.test/3"], 1.0)
    result.outcome, result.capture_id = Outcome.FETCHED, "n1:1"
    assert node.send(msgspec.json.encode(Results([result], canonical_links=True))).json["accepted_count"] == 1
    engine = coordinator.dispatcher.engine
    found = [drive(engine.story(engine.shard_of(host_of(url)), url)) is not None for url in result.links]
    assert found == [True, False]


def test_a_bundle_that_was_uploaded_leaves_nothing_in_the_spool(
    node: BundlingNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node ends when it has no bundle any more, and its thread with it."""
    segment, members = node.bundle(*URLS)
    bundle = tmp_path / "spool" / f"{segment}.tar"
    bundle.parent.mkdir()
    bundle.write_bytes(tarred(members))
    left: list[list[Path]] = []
    monkeypatch.setattr(bucket_uploads, "remove_bundle", lambda path: left.append(list(path.parent.iterdir())))
    with s3_server(tmp_path / "s3") as server:
        BucketUploads(server.store("late"), bundle.parent)._upload_all([bundle])
    assert left == [[bundle]]


def put_bundle(spool: Path, segment: str, members: Members, kind: str) -> None:
    if kind == "tar":
        (spool / f"{segment}.tar").write_bytes(tarred(members))
        return
    for name, content in members.items():
        (spool / f"{segment}.bundle" / name).parent.mkdir(parents=True, exist_ok=True)
        (spool / f"{segment}.bundle" / name).write_bytes(content)
    (spool / f"{segment}.bundle" / SIZES).write_bytes(
        msgspec.json.encode({name: len(content) for name, content in members.items()}, order="sorted")
    )


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_a_node_with_credentials_takes_it_out_before_it_uploads(
    coordinator: RunningCoordinator, node: BundlingNode, tmp_path: Path, kind: str
) -> None:
    segment, members = node.bundle(*URLS)
    remove_host(coordinator)
    with s3_server(tmp_path / "s3") as server:
        files = server.store("late")
        (tmp_path / "stones").write_bytes(drive(packed(coordinator.dispatcher.engine)))
        files.replace(IN_STORE, tmp_path / "stones")
        spool = tmp_path / "spool"
        spool.mkdir()
        uploads = BucketUploads(files, spool)
        for _ in range(2):
            put_bundle(spool, segment, members, kind)
            uploads._upload_all(uploads.waiting())
            assert list(spool.iterdir()) == []
        copy = downloaded(files, tmp_path / "copy")
    assert stored_urls(copy) == ["http://a.test/1", "http://a.test/2"]
    assert not any(found_in(copy, "b.test").values())


def test_a_coordinator_that_slept_through_a_removal_stores_nothing_of_it(tmp_path: Path) -> None:
    with s3_server(tmp_path / "s3") as server:
        files = server.store("slept")
        config = CrawlConfig(scope="host")
        with RunningCoordinator(config=config, store=tmp_path / "work", files=files, controlled=True) as coordinator:
            node = BundlingNode(RemoteNode(coordinator, "n1"), tmp_path / "n1")
            segment, members = node.bundle(*URLS)
            engine = coordinator.dispatcher.engine
            drive(put(engine, [GONE], b"k" * 32, 1_000.0))
            (tmp_path / "stones").write_bytes(drive(packed(engine)))
            server.store("slept").replace(IN_STORE, tmp_path / "stones")
            assert not coordinator.dispatcher.findings.removed
            assert node.put(segment, members).json == {"status": "stored"}
        copy = downloaded(server.store("slept"), tmp_path / "copy")
    assert stored_urls(copy) == ["http://a.test/1", "http://a.test/2"]
    assert not any(found_in(copy, "b.test").values())


def test_what_a_coordinator_had_not_brought_to_the_bucket_comes_without_what_was_removed(
    coordinator: RunningCoordinator, tmp_path: Path
) -> None:
    """It is on the disk of the coordinator, where a removal from another machine does not reach it."""
    folder, segment = tmp_path / "work", "coordinator-c-1f-00001"
    captures = [make_capture(url, HTML + url.encode()) for url in URLS]
    writer = WarcWriter(folder / "warc", segment, software="drumlin/test", info={}, now=FETCHED)
    writer.settle(writer.store(captures), set())
    writer.close()
    tables = SegmentWriter(folder / "tables", segment, node="coordinator-c")
    fetches = [FetchRecord(one.url, one.host, FETCHED, Outcome.FETCHED, 200, node="coordinator-c") for one in captures]
    for fetch, capture in zip(fetches, captures, strict=True):
        fetch.record_id = capture.record_id
    tables.add(captures, fetches)
    tables.finish()
    remove_host(coordinator)
    with s3_server(tmp_path / "s3") as server:
        files = server.store("late")
        (tmp_path / "stones").write_bytes(drive(packed(coordinator.dispatcher.engine)))
        files.replace(IN_STORE, tmp_path / "stones")
        ship(folder, files)
        copy = downloaded(server.store("late"), tmp_path / "copy")
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert stored_urls(copy) == ["http://a.test/1", "http://a.test/2"]
    assert not any(found_in(copy, "b.test").values())
    check_warcs(copy)
    check_rows_lead_to_records(copy)


def test_a_node_uploads_nothing_while_a_removal_is_under_way(node: BundlingNode, tmp_path: Path) -> None:
    """The removal deletes whatever no manifest names."""
    segment, members = node.bundle(*URLS)
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / f"{segment}.tar").write_bytes(tarred(members))
    with s3_server(tmp_path / "s3") as server:
        removal, uploads = server.store("late"), BucketUploads(server.store("late"), spool)
        removal.begin_removal()
        uploads._upload_all(uploads.waiting())
        assert uploads.waiting()
        assert [one.name for one in removal.bucket.listed("data") if segment in one.name] == []
        removal.end_removal()
        uploads._upload_all(uploads.waiting())
        assert not uploads.waiting()
        assert server.store("late").has_segment(segment)
