"""Retention is killed before each change of a file that it makes; whatever was done by then, the next run completes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drumlin.lifecycle.book import open_book, set_rule
from drumlin.lifecycle.retention.policy import Kind, Rule
from drumlin.lifecycle.retention.running import apply
from drumlin.sql.database import answering_from
from drumlin.store.files import DirectoryFiles
from drumlin.store.objects.bucket import Bucket
from drumlin.store.objects.collection import find_garbage, missing_objects, remove_garbage
from drumlin.store.objects.files import ObjectFiles
from drumlin.store.warc.cdxj import INDEX_NAME
from tests.harness.aged import DAY_S, OLD, PAGES, add_segment, segment_of
from tests.harness.s3 import BUCKET, S3Server, s3_server
from tests.integration.test_retention import KEEP, KILLED, WHO, Scene, check_ended_well, killed_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CHANGES_MAX = 100


def test_a_run_may_be_killed_before_any_change(tmp_path: Path) -> None:
    """Also when the run that completes it is killed in its turn."""
    killed = 0
    for at in range(1, CHANGES_MAX):
        scene, cold = Scene(tmp_path / str(at) / "store"), tmp_path / str(at) / "cold"
        cold.mkdir()
        scene.rule(Kind.WARC)
        scene.rule(Kind.TEXT)
        scene.rule(Kind.TABLES, Rule(0.0, 40 * DAY_S, str(cold)))
        ended = killed_run(scene.root, at)
        if ended == 0:
            break
        assert ended == KILLED
        killed_run(scene.root, 2)
        apply(DirectoryFiles(scene.root), scene.root, WHO)
        check_ended_well(scene, cold)
        killed += 1
    assert CHANGES_MAX - 1 > killed > 10


KILLER_IN_BUCKET = """
import os, sys
from drumlin.lifecycle.book import Signature
from drumlin.lifecycle.retention.running import apply
from drumlin.store.objects.bucket import Bucket
from drumlin.store.opening import open_store
left = int(sys.argv[2])
def counted(call):
    def called(*arguments):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
        return call(*arguments)
    return called
for name in ("put", "put_open", "create", "delete"):
    setattr(Bucket, name, counted(getattr(Bucket, name)))
apply(open_store(sys.argv[1]), None, Signature("a", "b", float(sys.argv[3])))
"""


def test_a_run_in_a_bucket_may_be_killed_before_any_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = 0
    with s3_server(tmp_path / "s3") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        for at in range(1, CHANGES_MAX):
            store, cold = _old_store(server, tmp_path, f"store-{at}"), f"s3://{BUCKET}/cold-{at}"
            set_rule(open_book(store), WHO, Kind.WARC, KEEP)
            set_rule(open_book(store), WHO, Kind.TEXT, KEEP)
            set_rule(open_book(store), WHO, Kind.TABLES, Rule(0.0, 40 * DAY_S, cold))
            command = [sys.executable, "-P", "-c", KILLER_IN_BUCKET, str(store), str(at), repr(WHO.at)]
            ended = subprocess.run(command, timeout=60, check=False).returncode
            if ended == 0:
                break
            assert ended == KILLED
            apply(ObjectFiles(store.bucket), None, WHO)
            _check_bucket(ObjectFiles(store.bucket), server.bucket(f"cold-{at}"))
            killed += 1
    assert CHANGES_MAX - 1 > killed > 10


def _old_store(server: S3Server, folder: Path, prefix: str) -> ObjectFiles:
    """A store with an old segment and a young one."""
    store = server.store(prefix)
    for node, fetched in (("old", OLD), ("young", WHO.at - DAY_S)):
        root = folder / prefix / node
        add_segment(root, node, fetched)
        members = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
        assert store.publish(segment_of(node), members)
    store.complete(folder)
    return store


def _check_bucket(store: ObjectFiles, cold: Bucket) -> None:
    """Old WARC files and texts are gone, old tables are in the cold place, everything can be read, and nothing is left
    over but what the next collection removes."""
    assert missing_objects(store) == []
    with answering_from(store, "SELECT count(*), count(text) FROM pages") as answer:
        assert list(answer.rows()) == [(2 * PAGES, PAGES)]
    paths = {item.path for item in store.manifest.contents().items()}
    assert not [path for path in paths if path.startswith("warc/") and "-old." in path]
    with store.open(f"warc/{INDEX_NAME}") as index:
        assert index.read().count(b"\n") == PAGES
    assert len(list(cold.listed("data"))) == 3
    later = WHO.at + 10 * DAY_S
    remove_garbage(store, find_garbage(store, later, DAY_S))
    named = {item.name for item in store.manifest.contents().items() if not item.place}
    assert {one.name for one in store.bucket.listed("data")} == named
    assert apply(ObjectFiles(store.bucket), None, WHO).numbers == {}
