"""Stored data taken away through the API: each call with each role, what is given, and that it is noted."""

from __future__ import annotations

import csv
import gzip
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow.parquet as pq
import pytest

from drumlin.access.tokens import Role
from drumlin.lifecycle.book import Signature, open_book, set_rule
from drumlin.lifecycle.retention.policy import Kind, Rule
from drumlin.lifecycle.retention.running import apply
from drumlin.store.files import DirectoryFiles
from tests.harness.aged import DAY_S, OLD, PAGES, add_segment, segment_of
from tests.harness.coordinators import Answer, RemoteNode, RunningCoordinator

NAME = f"{segment_of('old')}.parquet"
URL = "http://old.test/1"
CALLS = {
    "record": f"/api/v1/captures/record?url={quote(URL)}",
    "list": "/api/v1/tables?table=pages",
    "table": f"/api/v1/tables/file?table=pages&name={NAME}",
    "export": "/api/v1/export?table=pages&columns=url,text",
}


class Scene:
    def __init__(self, coordinator: RunningCoordinator, store: Path) -> None:
        self.coordinator, self.store = coordinator, store
        self.tokens = {**coordinator.tokens, Role.NODE: RemoteNode(coordinator, "n1").token}

    def ask(self, path: str, role: Role = Role.READER) -> Answer:
        return self.coordinator.get(path, token=self.tokens[role])

    def audit(self, limit: int = 100) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.ask(f"/api/v1/audit?limit={limit}", Role.VIEWER).json["entries"]
        return entries


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    store = tmp_path_factory.mktemp("taking") / "store"
    add_segment(store, "old")
    add_segment(store, "young", time.time() - DAY_S, host="sub.young.test:8080")
    with RunningCoordinator(controlled=True, store=store) as coordinator:
        yield Scene(coordinator, store)


@pytest.mark.parametrize("call", CALLS)
def test_data_is_for_readers_and_operators_alone(scene: Scene, call: str) -> None:
    assert scene.coordinator.get(CALLS[call]).status == 401
    statuses = {role: scene.ask(CALLS[call], role).status for role in Role}
    assert statuses == {
        Role.VIEWER: 403,
        Role.READER: 200,
        Role.OPERATOR: 200,
        Role.NODE: 403,
        Role.JOIN: 403,
    }


def test_a_reader_looks_as_a_viewer_does_and_changes_nothing(scene: Scene) -> None:
    assert scene.ask("/api/v1/stats").status == 200
    assert scene.ask(f"/api/v1/captures?url={quote(URL)}").status == 200
    paused = scene.coordinator.post("/api/v1/crawl/pause", token=scene.tokens[Role.READER])
    assert (paused.status, paused.code) == (403, "wrong_role")


def test_a_record_is_given_as_it_is_stored_and_never_as_a_page(scene: Scene) -> None:
    answer = scene.ask(CALLS["record"])
    [warc] = (scene.store / "warc").glob("*-old.warc.gz")
    assert answer.body in warc.read_bytes()
    record = gzip.decompress(answer.body)
    assert record.startswith(b"WARC/1.1\r\n")
    assert URL.encode() in record
    assert answer.headers["content-type"] == "application/warc"
    assert answer.headers["content-disposition"] == 'attachment; filename="capture.warc.gz"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert scene.ask(f"/api/v1/captures/record?url={quote('http://old.test/none')}").code == "no_copy"
    assert scene.ask("/api/v1/captures/record?url=nonsense").code == "no_copy"


def test_tables_are_listed_and_given_as_files(scene: Scene) -> None:
    listed = scene.ask(CALLS["list"]).json
    names = [NAME, f"{segment_of('young')}.parquet"]
    assert ([one["name"] for one in listed["files"]], listed["more"]) == (names, False)
    first = scene.ask(f"{CALLS['list']}&limit=1").json
    assert ([one["name"] for one in first["files"]], first["more"]) == (names[:1], True)
    assert [one["name"] for one in scene.ask(f"{CALLS['list']}&after={NAME}").json["files"]] == names[1:]
    answer = scene.ask(CALLS["table"])
    assert answer.body == (scene.store / "tables" / "pages" / NAME).read_bytes()
    assert len(answer.body) == listed["files"][0]["bytes"]
    assert pq.read_table(io.BytesIO(answer.body)).num_rows == PAGES


@pytest.mark.parametrize(
    "name",
    [
        "../../warc/index.cdxj",
        "..%2f..%2f..%2fetc%2fpasswd",
        f".{NAME}.tmp",
        f"../links/{NAME}",
        "none-1f-00001.parquet",
        f"{NAME}%00",
    ],
)
def test_no_other_file_can_be_meant(scene: Scene, name: str) -> None:
    answer = scene.ask(f"/api/v1/tables/file?table=pages&name={name}")
    assert (answer.status, answer.code) == (404, "no_file")
    assert scene.ask(f"/api/v1/tables/file?table=..&name={NAME}").status == 422


def exported(scene: Scene, **query: object) -> list[dict[str, Any]]:
    answer = scene.ask(f"/api/v1/export?{urlencode(query)}")
    assert answer.status == 200, answer.body
    return [json.loads(line) for line in answer.body.splitlines()]


def test_rows_are_exported_as_json_or_csv(scene: Scene) -> None:
    rows = exported(scene, table="pages", columns="url,text")
    assert len(rows) == 2 * PAGES
    assert rows[0] == {"url": "http://old.test/0", "text": "the words of http://old.test/0"}
    assert [row["url"] for row in exported(scene, table="pages", columns="url", domain="young.test")] == [
        f"http://sub.young.test:8080/{number}" for number in range(PAGES)
    ]
    assert len(exported(scene, table="links", host="old.test")) == 2 * PAGES
    assert len(exported(scene, table="fetches", since=OLD + DAY_S)) == PAGES
    assert exported(scene, table="fetches", before=1) == []
    everything = exported(scene, table="pages", host="old.test")
    assert "sketch" not in everything[0]
    assert everything[0]["fetch_time"].startswith("2025-10-09T")
    answer = scene.ask("/api/v1/export?table=pages&columns=url,title&form=csv&host=old.test")
    assert answer.headers["content-type"] == "text/csv"
    lines = list(csv.reader(io.StringIO(answer.body.decode())))
    assert lines[:2] == [["url", "title"], ["http://old.test/0", "Hello"]]


@pytest.mark.parametrize("query", ["table=x", "table=pages&odd=1", ""])
def test_an_export_of_what_does_not_exist_is_refused(scene: Scene, query: str) -> None:
    assert scene.ask(f"/api/v1/export?{query}").status == 422
    assert scene.ask("/api/v1/export?table=pages&columns=url,secret").code == "no_column"


def test_each_time_is_in_the_audit_log_with_who_what_and_how_much(scene: Scene) -> None:
    size = len(scene.ask(CALLS["record"]).body)
    table = len(scene.ask(CALLS["table"]).body)
    rows = len(scene.ask(CALLS["export"]).body)
    scene.ask(CALLS["export"], Role.VIEWER)
    entries = scene.audit(4)
    assert {(one["name"], one["role"], one["address"]) for one in entries} == {("a reader", "reader", "127.0.0.1")}
    ended, begun, of_table, of_record = entries
    assert (ended["action"], ended["outcome"]) == ("data.export", "done")
    assert f"{2 * PAGES} rows, {rows} bytes" in ended["target"]
    assert begun["action"] == "data.export"
    assert "url,text" in begun["target"]
    assert (of_table["action"], f"{NAME}: {table} bytes" in of_table["target"]) == ("data.table", True)
    assert (of_record["action"], f"{URL} at byte" in of_record["target"]) == ("data.capture", True)
    assert of_record["target"].endswith(f"{size} bytes")


def test_what_retention_did_is_told_by_stories_copies_and_the_audit_log(tmp_path: Path) -> None:
    store = tmp_path / "store"
    add_segment(store, "old")
    files = DirectoryFiles(store)
    with RunningCoordinator(controlled=True, store=store) as coordinator:
        scene = Scene(coordinator, store)
        assert scene.ask(CALLS["record"]).status == 200
        who = Signature("alice", "root", time.time())
        set_rule(open_book(files), who, Kind.WARC, Rule(30 * DAY_S))
        apply(files, None, who)
        day = time.strftime("%Y-%m-%d", time.gmtime(who.at))
        for path in (CALLS["record"], f"/api/v1/captures?url={quote(URL)}", f"/api/v1/captures/body?url={quote(URL)}"):
            gone = scene.ask(path)
            assert (gone.status, gone.code) == (410, "copy_deleted")
            assert f"deleted by retention on {day}" in gone.json["error"]["message"]
        scene.coordinator.enqueue(URL)
        story = scene.ask(f"/api/v1/urls?url={quote(URL)}").json["story"]
        assert any(f"its record was deleted by retention at {day}" in step for step in story)
        done, begun, ordered = [one for one in scene.audit() if one["action"].startswith("retention.")]
        assert [one["action"] for one in (ordered, begun, done)] == ["retention.set"] + ["retention.apply"] * 2
        assert (done["name"], done["outcome"], begun["outcome"]) == ("alice", "done", "begun")
        assert "delete warc: 1 units, 2 files, 3 rows" in done["target"]
