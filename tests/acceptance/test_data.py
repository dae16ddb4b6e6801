"""What is stored, by the API: sums over all pages, answers to SQL that can do nothing but read, and copies of pages."""

from __future__ import annotations

import asyncio
import codecs
import http.client
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import msgspec
import pytest

from drumlin.access.tokens import Role
from drumlin.api.calls import data
from drumlin.sql.answerer import Found, Wrong
from drumlin.sql.asking import ask
from drumlin.sql.ready import QUESTIONS
from drumlin.sql.views import TABLES, VIEWS
from tests.acceptance.commands import wait_until
from tests.acceptance.test_query import FORBIDDEN
from tests.harness.coordinators import Answer, RunningCoordinator
from tests.harness.stored_site import HOSTILE_PATH, JAPANESE, MARKED_PATH, PATHS, PIXEL, SCRIPT, crawled

ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3"


@pytest.fixture(scope="module")
def home_and_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("data")
    return crawled(folder), folder / "crawl"


@pytest.fixture(scope="module")
def store(home_and_store: tuple[str, Path]) -> Path:
    return home_and_store[1]


@pytest.fixture(scope="module")
def home(home_and_store: tuple[str, Path]) -> str:
    return home_and_store[0]


@pytest.fixture(scope="module")
def coordinator(store: Path) -> Iterator[RunningCoordinator]:
    with RunningCoordinator(store=store) as running:
        yield running


def asked(coordinator: RunningCoordinator, sql: str, *, token: str = "", **more: Any) -> Answer:
    return coordinator.post("/api/v1/sql", {"sql": sql, **more}, token=token)


def rows(store: Path, sql: str) -> list[Any]:
    """What DuckDB itself says of the files."""
    with duckdb.connect() as connection:
        for table in TABLES:
            connection.execute(f"CREATE VIEW {table} AS FROM read_parquet('{store}/tables/{table}/*.parquet')")
        return connection.sql(sql).fetchall()


# Sums


def test_the_sums_are_those_of_the_table(coordinator: RunningCoordinator, store: Path) -> None:
    found = coordinator.get("/api/v1/content").json
    assert (found["pages"], found["bytes"]) == rows(store, "SELECT count(*), sum(body_bytes) FROM pages")[0]
    assert found["pages"] == len(PATHS) + 1
    types = rows(store, "SELECT content_mime_detected, count(*), sum(body_bytes) FROM pages GROUP BY ALL")
    assert {(one["type"], one["pages"], one["bytes"]) for one in found["types"]} == set(types)
    languages = rows(store, "SELECT content_languages, count(*) FROM pages GROUP BY ALL")
    assert {(one["language"], one["pages"]) for one in found["languages"]} == set(languages)
    assert {"deu", "jpn"} <= {one["language"] for one in found["languages"]}
    for one in found["sizes"]:
        high = one["to_bytes"] or 1 << 62
        of_size = f"FROM pages WHERE body_bytes >= {one['from_bytes']} AND body_bytes < {high}"
        expected = rows(store, f"SELECT count(*), coalesce(sum(body_bytes), 0) {of_size}")[0]
        assert (one["pages"], one["bytes"]) == expected
    of_twins = "FROM pages WHERE duplicate_of IS NOT NULL GROUP BY ALL"
    twins = rows(store, f"SELECT duplicate_kind, count(*), sum(body_bytes) {of_twins}")
    assert {(one["kind"], one["pages"], one["bytes"]) for one in found["duplicates"]} == set(twins)
    assert {one["kind"] for one in found["duplicates"] if one["pages"]} == {"exact", "near"}
    assert found["segments"] == found["segments_read"] > 0
    assert found["store"] == "whole"


# SQL


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_ready_question_is_answered_as_by_the_command_line(
    coordinator: RunningCoordinator, store: Path, name: str
) -> None:
    answer = asked(coordinator, QUESTIONS[name].sql)
    assert answer.status == 200, answer.body
    assert answer.json["complete"]
    assert len(answer.json["columns"]) == len(answer.json["types"])
    if name in {"statuses", "types"}:
        assert sorted(map(tuple, answer.json["rows"])) == sorted(rows(store, QUESTIONS[name].sql))


def test_a_store_of_any_name_can_be_asked(store: Path, tmp_path: Path) -> None:
    odd = tmp_path / "it's [a] *?"
    shutil.copytree(store / "tables", odd / "tables")
    for path in odd.rglob("*.parquet"):
        os.utime(path, (1, 1))
    found = asyncio.run(ask(odd / "tables", "SELECT count(*) FROM pages", 10, lambda: True))
    assert isinstance(found, Found), found
    assert msgspec.json.decode(found.rows) == [[len(PATHS) + 1]]


def test_what_can_be_asked_is_told(coordinator: RunningCoordinator) -> None:
    told = coordinator.get("/api/v1/sql").json
    assert [one["name"] for one in told["questions"]] == list(QUESTIONS)
    assert [one["name"] for one in told["names"]] == [*TABLES, *VIEWS]
    assert told["names"][0]["columns"]["title"]


OUTSIDE = [
    *FORBIDDEN,
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/proc/self/environ')",
    "SELECT * FROM read_blob('/proc/self/maps')",
    "SELECT * FROM read_text('{store}/crawl.json')",
    "SELECT * FROM read_text('{store}/tables/../crawl.json')",
    "SELECT * FROM read_parquet('{store}/tables/pages/outside.parquet')",
    "SELECT * FROM read_text('{store}/tables/pages/passwd.parquet')",
    "SELECT * FROM glob('{store}/*')",
    "SELECT * FROM glob('/proc/self/fd/*')",
    "SELECT getenv('HOME')",
    "ATTACH '{store}/tables/pages/x.db'",
    "COPY (SELECT 1) TO '{store}/tables/pages/evil.parquet'",
    "COPY (SELECT 1) TO '/proc/self/fd/1'",
    "SELECT * FROM read_csv('https://127.0.0.1:9/x')",
    "SET temp_directory = '/tmp'",
    "PRAGMA database_list",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "FROM postgres_scan('host=127.0.0.1', 'public', 'x')",
    "FROM sqlite_scan('/etc/passwd', 'x')",
    "CREATE SECRET s (TYPE s3)",
]


@pytest.mark.parametrize("sql", OUTSIDE)
def test_sql_that_reads_or_writes_outside_is_refused(coordinator: RunningCoordinator, store: Path, sql: str) -> None:
    links = {"passwd.parquet": Path("/etc/passwd"), "outside.parquet": store / "crawl.json"}
    for name, target in links.items():
        if not (link := store / "tables" / "pages" / name).is_symlink() and name in sql:
            link.symlink_to(target)
    before = sorted((path, path.lstat().st_mtime_ns) for path in store.rglob("*"))
    try:
        answer = asked(coordinator, sql.replace("{store}", str(store)))
        # A list of files that the system does not show is empty.
        assert answer.status == 422 or answer.json["rows"] == [], answer.body
        assert "root:" not in answer.body.decode()
        assert sorted((path, path.lstat().st_mtime_ns) for path in store.rglob("*")) == before
    finally:
        for name in links:
            (store / "tables" / "pages" / name).unlink(missing_ok=True)


def test_an_answer_has_limits(coordinator: RunningCoordinator) -> None:
    part = asked(coordinator, "SELECT range AS n FROM range(5000)", rows_max=10).json
    assert (len(part["rows"]), part["complete"]) == (10, False)
    whole = asked(coordinator, "SELECT range AS n FROM range(10)", rows_max=10).json
    assert (len(whole["rows"]), whole["complete"]) == (10, True)
    long = asked(coordinator, "SELECT repeat('x', 1000000) AS x FROM range(100)").json
    assert 0 < len(long["rows"]) < 17
    assert not long["complete"]
    much = asked(coordinator, "SELECT list(range) FROM range(300000000)")
    assert (much.status, much.code) == (422, "too_much")
    assert asked(coordinator, "").status == 422
    assert asked(coordinator, "SELEC 1").code == "bad_sql"


ALL_KINDS = """
    SELECT 1, 2.5, 9007199254740993, NULL, true, 'text', 'bytes'::BLOB, TIMESTAMP '2026-01-02 03:04:05',
           DATE '2026-01-02', [1, 2], {'a': [TIMESTAMP '2026-01-02 03:04:05']}, INTERVAL 3 DAY, 'infinity'::DOUBLE
"""


def test_an_answer_says_the_same_as_json_and_as_messagepack(coordinator: RunningCoordinator) -> None:
    plain = asked(coordinator, ALL_KINDS)
    sent = json.dumps({"sql": ALL_KINDS}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/msgpack"}
    packed = coordinator.ask("POST", "/api/v1/sql", body=sent, headers=headers)
    assert (plain.status, packed.status) == (200, 200), plain.body
    assert packed.headers["content-type"] == "application/msgpack"
    found = msgspec.msgpack.decode(packed.body)
    assert found.pop("seconds") >= 0
    assert found == {name: value for name, value in plain.json.items() if name != "seconds"}
    wrong = coordinator.ask("POST", "/api/v1/sql", body=b'{"sql": "SELEC 1"}', headers=headers)
    assert msgspec.msgpack.decode(wrong.body)["error"]["code"] == "bad_sql"


def test_the_rows_of_an_answer_are_not_taken_apart(store: Path) -> None:
    many = "SELECT list([]::INT[]) FROM range(300000)"
    for packed in (False, True):
        found = asyncio.run(ask(store / "tables", many, 10, lambda: True, packed=packed))
        assert isinstance(found, Found), found
        assert isinstance(found.rows, msgspec.Raw), "they would be hundreds of megabytes as objects"


def test_a_question_cannot_make_long_sentences(coordinator: RunningCoordinator) -> None:
    answer = asked(coordinator, "SELECT error(repeat('x', 5000000))")
    assert (answer.status, answer.code) == (422, "bad_sql")
    assert 2_000 < len(answer.body) < 2_300
    long_type = "SELECT {'" + "n" * 10_000 + "': 1} AS a"
    wide = asked(coordinator, "SELECT " + "a, " * 3_000 + f"1 FROM ({long_type})")
    assert (wide.status, wide.code) == (422, "too_much")


def test_a_question_that_takes_too_long_is_ended(store: Path) -> None:
    found = asyncio.run(ask(store / "tables", ENDLESS, 10, lambda: True, seconds_max=3.0))
    assert isinstance(found, Wrong)
    assert found.code == "too_slow"
    assert _answerers() == []


def endless(coordinator: RunningCoordinator, token: str = "") -> http.client.HTTPConnection:
    """The connection of somebody who waits for an answer that never comes."""
    connection = http.client.HTTPConnection("127.0.0.1", coordinator.port, timeout=60)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    connection.request("POST", "/api/v1/sql", json.dumps({"sql": ENDLESS}), headers)
    return connection


def hang_up(connection: http.client.HTTPConnection) -> None:
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()


def test_one_question_of_a_token_is_answered_at_a_time_and_two_in_all(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "LAST_ENDS_S", 0.1)
    with RunningCoordinator(controlled=True, store=store) as coordinator:
        viewer, operator = coordinator.tokens[Role.VIEWER], coordinator.tokens[Role.OPERATOR]
        third = coordinator.do(coordinator.access.issue(coordinator.dispatcher.engine, Role.VIEWER, "third", 0.0))
        first = endless(coordinator, viewer)
        wait_until(lambda: len(_answerers()) == 1, "a question")
        greedy = asked(coordinator, "SELECT 1", token=viewer)
        assert (greedy.status, greedy.code) == (503, "busy")
        assert int(greedy.headers["retry-after"]) >= 1
        assert asked(coordinator, "SELECT 1", token=operator).status == 200, "the other place is for others"
        second = endless(coordinator, operator)
        wait_until(lambda: len(_answerers()) == 2, "two questions")
        assert asked(coordinator, "SELECT 1", token=third).code == "busy"
        for connection in (first, second):
            hang_up(connection)
        wait_until(lambda: _answerers() == [], "both to be given up")
        # The place of a question is free a moment after its process has ended.
        wait_until(lambda: asked(coordinator, "SELECT 1", token=third).status == 200, "a place for another question")


def test_who_gives_a_question_up_may_ask_another_at_once(
    coordinator: RunningCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "LAST_ENDS_S", 60.0)
    first = endless(coordinator)
    wait_until(lambda: len(_answerers()) == 1, "a question")
    hang_up(first)
    assert asked(coordinator, "SELECT 1").status == 200


def _answerers() -> list[str]:
    """The processes of this test that answer questions now."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"drumlin.sql.answerer" in (process / "cmdline").read_bytes() and _parent(process) == os.getpid():
                found.append(process.name)
        except OSError:
            continue
    return found


def _parent(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def test_the_process_of_a_question_has_nothing_of_ours(
    coordinator: RunningCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMLIN_SECRET", "hidden")
    connection = http.client.HTTPConnection("127.0.0.1", coordinator.port, timeout=60)
    connection.request("POST", "/api/v1/sql", json.dumps({"sql": ENDLESS}), {"Content-Type": "application/json"})
    wait_until(lambda: [one for one in _answerers() if _confined(one)], "the question to be confined")
    (process,) = _answerers()
    assert b"hidden" not in Path(f"/proc/{process}/environ").read_bytes()
    assert b"DRUMLIN" not in Path(f"/proc/{process}/environ").read_bytes()
    opened = [os.readlink(path) for path in Path(f"/proc/{process}/fd").iterdir()]
    assert not any("socket:" in target for target in opened), opened
    limits = Path(f"/proc/{process}/limits").read_text()
    assert "Max file size             0                    0" in limits
    connection.close()
    wait_until(lambda: _answerers() == [], "it to be given up")


def _confined(process: str) -> bool:
    return "Seccomp:\t2" in Path(f"/proc/{process}/status").read_text()


def test_a_store_without_tables_says_so(tmp_path: Path) -> None:
    with RunningCoordinator(store=tmp_path) as fresh:
        assert asked(fresh, "SELECT 1").code == "no_tables"
        assert fresh.get("/api/v1/content").json["pages"] == 0
        assert fresh.get("/api/v1/captures?url=http://a.example/").code == "no_copy"


def test_a_coordinator_without_a_store_says_so() -> None:
    with RunningCoordinator() as bare:
        assert bare.get("/api/v1/content").json["store"] == "none"
        assert asked(bare, "SELECT 1").code == "no_store"
        assert bare.get("/api/v1/captures?url=http://a.example/").code == "no_store"


# Copies


def copy(coordinator: RunningCoordinator, url: str) -> dict[str, Any]:
    answer = coordinator.get(f"/api/v1/captures?url={quote(url, safe='')}")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


def body(coordinator: RunningCoordinator, url: str, form: str = "shown") -> Answer:
    return coordinator.get(f"/api/v1/captures/body?url={quote(url, safe='')}&form={form}")


def test_a_copy_has_headers_source_and_text(coordinator: RunningCoordinator, home: str) -> None:
    found = copy(coordinator, f"{home}b")
    assert found["headers"].startswith("HTTP/1.1 200")
    assert found["source"].startswith(f"<title>{SCRIPT}</title>")
    assert "others others" in found["text"]
    assert (found["type"], found["status_code"], found["shown_as"]) == ("text/html", 200, "text/html")
    assert found["body_bytes"] == len(found["source"].encode())


def test_a_copy_is_decoded(coordinator: RunningCoordinator, home: str) -> None:
    packed = copy(coordinator, f"{home}packed")
    assert "content-encoding: gzip" in packed["headers"].lower()
    assert packed["source"].count("squeezed") == 2_000
    japanese = copy(coordinator, f"{home}japanese")
    assert japanese["charset"].lower() == "shift_jis"
    assert JAPANESE in japanese["source"]
    shown = body(coordinator, f"{home}japanese")
    assert shown.headers["content-type"].lower() == "text/html; charset=utf-8"
    assert JAPANESE in shown.body.decode()
    assert JAPANESE.encode("shift_jis") in body(coordinator, f"{home}japanese", "file").body


def test_a_page_that_repeats_another_has_that_ones_body(coordinator: RunningCoordinator, home: str) -> None:
    pages = [copy(coordinator, home + name) for name in ("a", "twin")]
    assert pages[0]["source"] == pages[1]["source"]
    assert [one["same_as"] for one in pages] == ["", f"{home}a"]


def test_a_shown_copy_can_do_nothing(coordinator: RunningCoordinator, home: str) -> None:
    answer = body(coordinator, home.rstrip("/") + HOSTILE_PATH)
    assert answer.status == 200
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'; ")
    assert "allow" not in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in answer.headers, "headers of the site stay in the copy"
    for element in (b"<link", b"<iframe"):
        assert element not in answer.body.lower(), "no policy keeps browsers from connecting to where one leads"


def test_no_mark_within_a_page_decides_how_it_is_read(coordinator: RunningCoordinator, home: str) -> None:
    answer = body(coordinator, home.rstrip("/") + MARKED_PATH)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.body.startswith(codecs.BOM_UTF8)
    assert "<link" not in answer.body.decode("utf-8-sig", "replace")


def test_what_is_no_page_is_a_picture_a_text_or_a_file(coordinator: RunningCoordinator, home: str) -> None:
    picture = body(coordinator, f"{home}picture.png")
    assert (picture.headers["content-type"], picture.body) == ("image/png", PIXEL)
    assert copy(coordinator, f"{home}picture.png")["source"] is None
    data = copy(coordinator, f"{home}data.json")
    assert (data["source"], data["shown_as"]) == ('{"a": 1}', None)
    assert body(coordinator, f"{home}data.json").code == "not_shown"
    file = body(coordinator, f"{home}data.json", "file")
    assert (file.body, file.headers["content-type"]) == (b'{"a": 1}', "application/octet-stream")
    assert file.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in file.headers["content-security-policy"]


def test_what_is_not_stored_is_said(coordinator: RunningCoordinator, home: str) -> None:
    assert coordinator.get("/api/v1/captures?url=http://nowhere.example/").code == "no_copy"
    assert coordinator.get("/api/v1/captures?url=nonsense").code == "no_copy"
    assert coordinator.get(f"/api/v1/captures?url={quote(home, safe='')}&record=urn:uuid:0").code == "no_copy"
