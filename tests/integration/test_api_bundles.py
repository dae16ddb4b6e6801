"""Bundles: captures that a node sends because it cannot write to the store, put where they belong, once."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.coordinator.bundles import BODY, INCOMING, LEFTOVER_S, sweep
from tests.harness.coordinators import Answer, RemoteNode, RunningCoordinator

SEGMENT = {
    "warc/n1-1.warc.gz": b"captures",
    "warc/n1-1.cdxj": b"index",
    "tables/pages/n1-1.parquet": b"pages",
    "tables/links/n1-1.parquet": b"links",
    "tables/fetches/n1-1.parquet": b"fetches",
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def coordinator(store: Path) -> Iterator[RunningCoordinator]:
    with RunningCoordinator(store=store) as running:
        RemoteNode(running, "n1")
        yield running


def packed(files: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as bundle:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.type = len(content), kind
            member.linkname = "elsewhere" if kind != tarfile.REGTYPE else ""
            bundle.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def put(coordinator: RunningCoordinator, body: bytes, name: str = "b1", digest: str | None = None) -> Answer:
    headers = {"X-Drumlin-Sha256": hashlib.sha256(body).hexdigest() if digest is None else digest}
    return coordinator.ask("PUT", f"/api/v1/nodes/n1/bundles/{name}", body=body, headers=headers)


def stored(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_a_bundle_is_unpacked_into_the_store_and_nothing_else_is_left(
    coordinator: RunningCoordinator, store: Path
) -> None:
    assert put(coordinator, packed(SEGMENT)).json == {"status": "stored"}
    assert stored(store) == SEGMENT


def test_the_same_bundle_again_changes_nothing(coordinator: RunningCoordinator, store: Path) -> None:
    put(coordinator, packed(SEGMENT))
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    assert put(coordinator, packed(SEGMENT), name="b2").json == {"status": "stored"}
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()} == before


def test_what_a_dead_coordinator_left_is_swept_and_what_another_is_at_stays(store: Path) -> None:
    now = time.time()
    for name, age_s in (("n1/dead.1", LEFTOVER_S + 60), ("n2/alive.1", LEFTOVER_S - 60)):
        part = store / INCOMING / name / BODY
        part.parent.mkdir(parents=True)
        part.write_bytes(b"half a bundle")
        for path in (part, part.parent):
            os.utime(path, (now - age_s,) * 2)
    sweep(store, now)
    assert [path.name for path in (store / INCOMING).glob("*/*")] == ["alive.1"]
    sweep(store / "missing", now)


def test_a_file_that_is_there_is_never_changed(coordinator: RunningCoordinator, store: Path) -> None:
    put(coordinator, packed(SEGMENT))
    other = put(coordinator, packed(SEGMENT | {"warc/n1-1.warc.gz": b"forged"}))
    assert (other.status, other.code) == (409, "exists")
    assert stored(store) == SEGMENT


def test_a_bundle_that_was_cut_short_or_changed_is_refused(coordinator: RunningCoordinator, store: Path) -> None:
    body = packed(SEGMENT)
    digest = hashlib.sha256(body).hexdigest()
    assert put(coordinator, body[:-600], digest=digest).code == "damaged"
    assert put(coordinator, body[:700]).code == "not_a_bundle"
    assert put(coordinator, b"").code == "not_a_bundle"
    assert put(coordinator, packed({})).code == "not_a_bundle"
    assert put(coordinator, body, digest="nonsense").code == "no_digest"
    assert stored(store) == {}


@pytest.mark.parametrize(
    "name",
    [
        "../outside.warc.gz",
        "/etc/passwd",
        "warc/../../x.warc.gz",
        "warc/.hidden.warc.gz",
        "warc/x.exe",
        "tables/other/x.parquet",
        "warc/sub/x.warc.gz",
        "warc/x\n.warc.gz",
    ],
)
def test_no_name_leads_out_of_the_store(coordinator: RunningCoordinator, store: Path, name: str) -> None:
    answer = put(coordinator, packed(SEGMENT | {name: b"x"}))
    assert (answer.status, answer.code) == (409, "not_a_bundle")
    assert stored(store) == {}
    assert not (store.parent / "outside.warc.gz").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_only_plain_files_are_taken(coordinator: RunningCoordinator, store: Path, kind: bytes) -> None:
    assert put(coordinator, packed({"warc/x.warc.gz": b""}, kind)).code == "not_a_bundle"
    assert stored(store) == {}


def test_bad_names_of_bundles_are_refused(coordinator: RunningCoordinator) -> None:
    assert put(coordinator, packed(SEGMENT), name="..%2Fx").status == 404
    assert put(coordinator, packed(SEGMENT), name=".x").code == "bad_bundle_id"


def test_a_coordinator_without_a_store_says_so() -> None:
    with RunningCoordinator() as without:
        RemoteNode(without, "n1")
        answer = put(without, packed(SEGMENT))
        assert (answer.status, answer.code) == (409, "no_store")
