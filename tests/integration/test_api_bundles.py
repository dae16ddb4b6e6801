"""Bundles: captures that a node sends because it cannot write to the store, put where they belong, once."""

from __future__ import annotations

import hashlib
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from drumlin.access.tokens import Role
from drumlin.api.intake import bundles as bundles_module
from drumlin.api.intake.bundles import INCOMING, LEFTOVER_S, sweep
from drumlin.coordinator.taking import owed
from drumlin.disk import SCRATCH_PREFIX
from drumlin.protocol import Result, Results
from drumlin.store import merge
from drumlin.store.bundles import BODY
from tests.harness.bundles import BundlingNode, Members, packed, renamed, stored, table, written
from tests.harness.coordinators import RemoteNode, RunningCoordinator
from tests.harness.outputs import check_index_matches_tables, check_warcs, query, stored_urls

URLS = ("http://a.test/1", "http://a.test/2", "http://b.test/")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def coordinator(store: Path) -> Iterator[RunningCoordinator]:
    with RunningCoordinator(store=store, controlled=True) as running:
        yield running


@pytest.fixture
def node(coordinator: RunningCoordinator, tmp_path: Path) -> BundlingNode:
    return BundlingNode(RemoteNode(coordinator, "n1"), tmp_path / "n1")


def without_receipts(members: Members) -> Members:
    return {name: content for name, content in members.items() if name != "receipts"}


def test_a_bundle_is_unpacked_into_the_store_and_nothing_else_is_left(node: BundlingNode, store: Path) -> None:
    segment, members = node.bundle(*URLS)
    assert node.put(segment, members).json == {"status": "stored"}
    assert stored(store) == without_receipts(members)
    assert stored_urls(store) == sorted(URLS)
    check_warcs(store)
    merge(store / "warc")
    assert check_index_matches_tables(store) == {"indexed": 3, "surplus": 0}


def test_the_same_bundle_again_changes_nothing(node: BundlingNode, store: Path) -> None:
    segment, members = node.bundle(*URLS)
    node.put(segment, members)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    assert node.put(segment, members).json == {"status": "stored"}
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()} == before


def test_a_neighbour_may_send_what_a_dead_node_settled(
    coordinator: RunningCoordinator, node: BundlingNode, store: Path, tmp_path: Path
) -> None:
    segment, members = node.bundle(*URLS)
    neighbour = BundlingNode(RemoteNode(coordinator, "n2"), tmp_path / "n2")
    assert neighbour.put(segment, members).status == 200
    assert stored_urls(store) == sorted(URLS)


def test_what_a_dead_coordinator_left_is_swept_and_what_another_is_at_stays(store: Path) -> None:
    now = time.time()
    places = (INCOMING + "/n1/dead.1", INCOMING + "/n2/alive.1", SCRATCH_PREFIX + "dead", SCRATCH_PREFIX + "alive")
    for place, age_s in zip(places, (LEFTOVER_S + 60, LEFTOVER_S - 60) * 2, strict=True):
        part = store / place / BODY
        part.parent.mkdir(parents=True)
        part.write_bytes(b"half a bundle")
        for path in (part, part.parent):
            os.utime(path, (now - age_s,) * 2)
    sweep(store, now)
    assert [path.name for path in (store / INCOMING).glob("*/*")] == ["alive.1"]
    assert [path.name for path in store.glob(SCRATCH_PREFIX + "*")] == [SCRATCH_PREFIX + "alive"]
    sweep(store / "missing", now)


@pytest.mark.parametrize("link", ["incoming", "incoming/n1", "incoming/n1/x", SCRATCH_PREFIX + "x"])
def test_a_link_in_a_store_leads_nobody_to_remove_what_is_elsewhere(store: Path, tmp_path: Path, link: str) -> None:
    """Nodes that store in the same directory may be other machines and other users."""
    mine = tmp_path / "home" / "folder" / "folder" / "mine"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    for path in (mine, *list(mine.parents)[:3]):
        os.utime(path, (1.0, 1.0))
    (store / link).parent.mkdir(parents=True)
    (store / link).symlink_to(tmp_path / "home")
    sweep(store, time.time())
    assert mine.read_bytes() == b"mine"


# How much a node may owe


def test_results_for_more_bundles_than_a_node_may_owe_change_nothing_and_are_taken_later(
    coordinator: RunningCoordinator, node: BundlingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owed, "EACH_MAX", 1)
    engine, do = coordinator.dispatcher.engine, coordinator.do
    do(owed.note_looked(engine, do(coordinator.time.now())))
    first, _ = node.bundle(URLS[0])
    coordinator.enqueue(URLS[2])
    [taken] = node.remote.take()
    result = Result(taken["assignment_id"], URLS[2], 200, "ab" * 32, ["http://b.test/new"], 1.0, size=1_000)
    more = msgspec.json.encode(Results([result], stored=True, segment=f"{first[:-1]}9"))
    before = settled_and_known(coordinator)
    answer = node.remote.send(more)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "owes_too_much", "20")
    assert settled_and_known(coordinator) == before
    do(owed.paid(engine, first))
    monkeypatch.setattr(owed, "COUNT_EVERY_S", 0.0)
    assert node.remote.send(more).json["accepted_count"] == 1
    assert settled_and_known(coordinator) == (before[0] + 1, before[1] + 1)


def settled_and_known(coordinator: RunningCoordinator) -> tuple[int, int]:
    """How many pages count, and how many URLs are known."""
    totals = coordinator.do(coordinator.dispatcher.totals(coordinator.do(coordinator.time.now())))
    return totals.pages, totals.known


# Names


def test_names_of_another_node_are_refused_even_if_one_begins_with_the_other(
    coordinator: RunningCoordinator, node: BundlingNode, store: Path, tmp_path: Path
) -> None:
    other = BundlingNode(RemoteNode(coordinator, "n1-x"), tmp_path / "other")
    theirs, their_members = other.bundle("http://c.test/")
    segment, members = node.bundle(*URLS)
    as_other = renamed(members, segment, theirs)
    assert node.put(theirs, as_other).code == "not_a_bundle"
    with_their_warc = renamed(as_other, "-n1.", "-n1-x.")
    assert node.put(theirs, with_their_warc).code == "not_a_bundle"
    assert node.put(segment, members | without_receipts(their_members)).code == "not_a_bundle"
    assert stored(store) == {}
    assert other.put(theirs, their_members).status == 200
    assert node.put(segment, members).status == 200


def test_a_file_that_is_there_is_never_changed(node: BundlingNode, store: Path) -> None:
    """For instance a bundle that another coordinator stores at the same moment."""
    segment, members = node.bundle(*URLS)
    [warc] = [name for name in members if name.endswith(".warc.gz")]
    (store / "warc").mkdir(parents=True)
    (store / warc).write_bytes(b"somebody else's")
    answer = node.put(segment, members)
    assert (answer.status, answer.code) == (409, "exists")
    assert stored(store) == {warc: b"somebody else's"}


@pytest.mark.parametrize(
    "name",
    [
        "../outside.warc.gz",
        "/etc/passwd",
        "warc/../../x.warc.gz",
        "warc/.hidden.warc.gz",
        "warc/index.cdxj",
        "report.json",
        "warc/x.exe",
        "tables/other/x.parquet",
        "warc/sub/x.warc.gz",
        "warc/x\n.warc.gz",
    ],
)
def test_no_name_leads_out_of_the_store_or_over_a_coordinators_own_file(
    node: BundlingNode, store: Path, name: str
) -> None:
    segment, members = node.bundle(*URLS)
    answer = node.put(segment, members | {name: b"x"})
    assert (answer.status, answer.code) == (409, "not_a_bundle")
    assert stored(store) == {}
    assert not (store.parent / "outside.warc.gz").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_only_plain_files_are_taken(node: BundlingNode, store: Path, kind: bytes) -> None:
    segment, members = node.bundle(*URLS)
    assert node.put(segment, packed(dict.fromkeys(members, b""), kind)).code == "not_a_bundle"
    assert stored(store) == {}


def test_bad_names_of_bundles_are_refused(node: BundlingNode) -> None:
    segment, members = node.bundle(*URLS)
    assert node.put("..%2Fx", members).status == 404
    for name in (".x", "n1", "index", f"{segment}-1", "n1-xyz-00001"):
        assert node.put(name, members).code in ("bad_bundle_id", "not_a_bundle")


# Contents


def test_a_bundle_that_was_cut_short_or_changed_is_refused(node: BundlingNode, store: Path) -> None:
    segment, members = node.bundle(*URLS)
    body = packed(members)
    digest = hashlib.sha256(body).hexdigest()
    assert node.put(segment, body[:-600], digest=digest).code == "damaged"
    assert node.put(segment, body[:700]).code == "not_a_bundle"
    assert node.put(segment, b"").code == "not_a_bundle"
    assert node.put(segment, packed({})).code == "not_a_bundle"
    assert node.put(segment, body, digest="nonsense").code == "no_digest"
    assert stored(store) == {}


def test_results_that_were_never_settled_are_not_stored(node: BundlingNode, store: Path) -> None:
    segment, members = node.bundle(*URLS, settled=False)
    answer = node.put(segment, members)
    assert (answer.status, answer.code) == (409, "not_settled")
    assert stored(store) == {}


def test_robots_txt_of_hosts_that_were_leased_is_stored(node: BundlingNode, store: Path) -> None:
    segment, members = node.bundle(*URLS, asked={"a.test": "", "b.test": ""})
    assert node.put(segment, members).json == {"status": "stored"}
    merge(store / "warc")
    assert check_index_matches_tables(store) == {"indexed": 5, "surplus": 0}
    rows = query(store, "SELECT url FROM {fetches} WHERE outcome = 'robots' ORDER BY url")
    assert rows == [("http://a.test/robots.txt",), ("http://b.test/robots.txt",)]
    assert stored_urls(store) == sorted(URLS)


def test_where_robots_txt_leads_elsewhere_is_told_and_not_stored(node: BundlingNode, store: Path) -> None:
    node.robots_path = "/elsewhere"
    segment, members = node.bundle(*URLS, asked={"a.test": ""})
    assert node.put(segment, members).json == {"status": "stored"}
    merge(store / "warc")
    assert check_index_matches_tables(store) == {"indexed": len(URLS), "surplus": 0}
    rows = query(store, "SELECT url, record_id FROM {fetches} WHERE outcome = 'robots'")
    assert rows == [("http://a.test/elsewhere", None)]


@pytest.mark.parametrize("time", [None, 2**62])
def test_a_robots_txt_that_was_asked_for_at_no_time_is_refused(
    node: BundlingNode, store: Path, time: int | None
) -> None:
    """Its row needs no receipt, which would bind its time."""
    segment, members = node.bundle(*URLS, asked={"a.test": ""})
    path, rows = table(members, "fetches")
    times = rows["fetch_time"].cast(pa.int64()).to_pylist()
    times = [time if kind == "robots" else at for kind, at in zip(rows["outcome"].to_pylist(), times, strict=True)]
    place = rows.schema.get_field_index("fetch_time")
    forged = rows.set_column(place, rows.schema.field(place), pa.array(times, rows.schema.field(place).type))
    assert node.put(segment, members | {path: written(forged)}).code == "not_a_bundle"
    assert stored(store) == {}


@pytest.mark.parametrize("path", ["/never-given", "/", "/robots.txt?", "/robots.txt/", "/x/robots.txt"])
def test_a_page_that_was_not_given_is_not_stored_as_a_robots_txt(
    node: BundlingNode, store: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Any node may visit any host that the frontier knows."""
    monkeypatch.setattr("drumlin.node.keeping.archive.is_robots_txt", lambda _: True)
    node.robots_path = path
    segment, members = node.bundle(*URLS, asked={"a.test": ""})
    assert node.put(segment, members).code == "not_settled"
    assert stored(store) == {}


@pytest.mark.parametrize("lease", ["made up", "another host's", "another node's", "none"])
def test_robots_txt_of_hosts_that_were_not_leased_is_refused(
    coordinator: RunningCoordinator, node: BundlingNode, store: Path, tmp_path: Path, lease: str
) -> None:
    asked = {"c.test": "n1:made.up.seal"}
    if lease == "another host's":
        coordinator.enqueue("http://d.test/")
        asked = {"c.test": node.remote.take()[0]["lease_id"]}
    if lease == "another node's":
        coordinator.enqueue("http://c.test/")
        asked = {"c.test": RemoteNode(coordinator, "n2").take()[0]["lease_id"]}
    segment, members = node.bundle(*URLS, asked=asked)
    if lease == "none":
        kept = [receipt for receipt in members["receipts"].split() if b"@" not in receipt]
        members["receipts"] = b"\n".join(kept)
    assert node.put(segment, members).code == "not_settled"
    assert not (store / "tables").exists()


def test_receipts_hold_for_one_segment_and_a_result_for_one_receipt(node: BundlingNode, store: Path) -> None:
    segment, members = node.bundle(*URLS)
    assert node.put(segment, members).status == 200
    before = stored(store)
    again = segment[:-1] + "2"
    moved = renamed(members, segment, again)
    assert node.put(again, moved).code == "not_settled"
    assert stored(store) == before


def test_the_same_result_sent_for_another_segment_is_stale(coordinator: RunningCoordinator, node: BundlingNode) -> None:
    coordinator.enqueue("http://a.test/")
    [assignment] = node.remote.take()
    result = Result(assignment["assignment_id"], "http://a.test/", 200, "", [], 1.0, outcome="fetched", capture_id="x")
    first = node.settle(Results([result], stored=True, segment="n1-1-00001"))
    assert (len(first.receipts), first.accepted_count) == (1, 1)
    assert node.settle(Results([result], stored=True, segment="n1-1-00001")).receipts == first.receipts
    other = node.settle(Results([result], stored=True, segment="n1-1-00002"))
    assert (other.accepted_count, other.receipts) == (0, [""])


def test_a_node_may_send_so_much_and_no_more(
    node: BundlingNode, store: Path, coordinator: RunningCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker = coordinator.app._nodes._bundles
    segment, members = node.bundle(*URLS)
    monkeypatch.setattr(taker, "_quota_bytes", sum(map(len, members.values())) // 2)
    assert node.put(segment, members).status == 200
    further, more = node.bundle("http://c.test/")
    answer = node.put(further, more)
    assert (answer.status, answer.code) == (429, "over_quota")
    assert float(answer.headers["retry-after"]) == bundles_module.QUOTA_RETRY_S
    assert stored_urls(store) == sorted(URLS)


def test_a_node_that_sends_bad_bundles_is_put_out(node: BundlingNode, coordinator: RunningCoordinator) -> None:
    segment, members = node.bundle(*URLS, settled=False)
    answers = [node.put(segment, members).code for _ in range(12)]
    assert (answers[0], answers[-1]) == ("not_settled", "quarantined")
    page = coordinator.ask("GET", "/metrics", token=coordinator.tokens[Role.VIEWER]).body.decode()
    bad = answers.count("not_settled")
    assert f'drumlin_misdeeds_total{{kind="bad_bundle"}} {bad}' in page
    assert "drumlin_quarantines_total 1" in page


def test_a_coordinator_without_a_store_says_so(tmp_path: Path) -> None:
    with RunningCoordinator() as without:
        node = BundlingNode(RemoteNode(without, "n1"), tmp_path)
        segment, members = node.bundle(*URLS)
        answer = node.put(segment, members)
        assert (answer.status, answer.code) == (409, "no_store")
