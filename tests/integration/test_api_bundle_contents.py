"""What a bundle may hold: every row and record is checked, by a process that may die of it, before any is stored."""

from __future__ import annotations

import gzip
import io
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drumlin.api.intake import checking
from drumlin.model import Duplicate
from drumlin.node.keeping.archive import Arrival
from drumlin.store import bundles as store_bundles
from drumlin.store.bundles import TEXT_BYTES_MAX
from drumlin.store.tables.rows import BODY_BYTES_MAX, TIME_MAX
from drumlin.store.tables.schema import TEXT_DELETED
from drumlin.store.warc.reader import members as members_of
from drumlin.store.warc.records import surplus_record
from drumlin.store.warc.repair import scan
from tests.harness.bundles import BundlingNode, Members, replaced, stored, table, written
from tests.harness.coordinators import RemoteNode, RunningCoordinator

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


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("pages", "node", "n2"),
        ("fetches", "node", "n2"),
        ("pages", "url", "http://victim.test/"),
        ("fetches", "url", "http://victim.test/"),
        ("pages", "content_digest", "sha256:" + "00" * 32),
        ("pages", "warc_record_offset", 0),
        ("fetches", "outcome", "failed"),
        ("links", "url", "http://victim.test/"),
        ("pages", "url_host_name", "victim.test"),
        ("pages", "url_host_name", None),
        ("pages", "url_port", 8080),
        ("fetches", "host", "victim.test"),
        ("fetches", "host", None),
    ],
)
def test_rows_that_say_something_else_than_was_settled_are_refused(
    node: BundlingNode, store: Path, name: str, column: str, value: object
) -> None:
    segment, members = node.bundle(*URLS)
    path, rows = table(members, name)
    answer = node.put(segment, members | {path: written(replaced(rows, column, value))})
    assert answer.code in ("not_a_bundle", "not_settled")
    assert stored(store) == {}


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("links", "target", ";"),
        ("links", "target", "http://a.test/" + "a" * 200_000),
        ("links", "target", "javascript:alert(1)"),
        ("fetches", "redirect_to", ";"),
        ("fetches", "redirect_to", "http://a.test"),
        ("fetches", "host", "a" * 10_000),
        ("pages", "content_mime_detected", "a" * 10_000),
        ("pages", "text", "a" * (TEXT_BYTES_MAX + 1)),
        ("pages", "redirects", ["a" * 10_000]),
        *((name, "fetch_time", time) for name in ("pages", "links", "fetches") for time in (None, -1, TIME_MAX + 1)),
        ("pages", "body_bytes", BODY_BYTES_MAX + 1),
        ("pages", "body_bytes", -1),
        ("fetches", "wire_bytes", 2**63 - 1),
    ],
    ids=lambda value: str(value)[:20],
)
def test_values_that_no_node_writes_are_refused(
    node: BundlingNode, store: Path, name: str, column: str, value: object
) -> None:
    segment, members = node.bundle(*URLS)
    path, rows = table(members, name)
    rows = rows if len(rows) else pa.Table.from_pylist([link_of(URLS[0])], rows.schema)
    answer = node.put(segment, members | {path: written(replaced(rows, column, value))})
    assert answer.code == "not_a_bundle"
    assert stored(store) == {}


@pytest.mark.parametrize(
    ("named", "code"),
    [
        (URLS[0], None),
        ("http://a.test/?" + "b&" * 400_000, "not_a_bundle"),
        ("http://a.test/" + "a" * 10_000, "not_a_bundle"),
        ("javascript:alert(1)", "not_a_bundle"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_a_page_repeats_is_a_url(
    node: BundlingNode, store: Path, monkeypatch: pytest.MonkeyPatch, named: str, code: str | None
) -> None:
    made = BundlingNode._arrival

    def repeating(self: BundlingNode, url: str, assignment_id: str) -> Arrival:
        arrival = made(self, url, assignment_id)
        if url == URLS[1] and arrival.capture is not None:
            # Its id says which content it has: so the record is a revisit.
            arrival.capture.duplicate = Duplicate(named, 1.0, arrival.capture.record_id)
        return arrival

    monkeypatch.setattr("drumlin.store.tables.rows._duplicate", lambda _: (None, None, None))
    monkeypatch.setattr(BundlingNode, "_arrival", repeating)
    segment, members = node.bundle(*URLS)
    answer = node.put(segment, members)
    assert answer.status == (409 if code else 200)
    assert code is None or answer.code == code
    assert bool(stored(store)) is (code is None)


def link_of(url: str, target: str = "http://c.test/") -> dict[str, object]:
    return {"url": url, "target": target, "kind": "a", "rel": "", "text": "", "fetch_time": 1}


def test_a_few_kilobytes_of_links_that_unpack_to_half_a_gigabyte_are_refused(node: BundlingNode, store: Path) -> None:
    segment, members = node.bundle(*URLS)
    path, rows = table(members, "links")
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 70_000, pa.int32()), ["http://a.test/" + "a" * 7_900])
    alike = pa.Table.from_pylist([link_of(URLS[0])] * len(long), rows.schema)
    bomb = alike.set_column(rows.schema.get_field_index("target"), "target", long)
    file = io.BytesIO()
    pq.write_table(bomb, file, store_schema=False, compression="zstd", dictionary_pagesize_limit=1 << 20)
    assert len(file.getvalue()) < 100_000
    assert node.put(segment, members | {path: file.getvalue()}).code == "not_a_bundle"
    assert stored(store) == {}
    # In row groups as nodes write them, the same links are a segment like any other.
    file = io.BytesIO()
    pq.write_table(bomb, file, store_schema=False, compression="zstd", row_group_size=10_000)
    assert node.put(segment, members | {path: file.getvalue()}).status == 200


def test_rows_twice_or_too_few_are_refused(node: BundlingNode, store: Path) -> None:
    segment, members = node.bundle(*URLS)
    for name in ("pages", "fetches"):
        path, rows = table(members, name)
        for wrong in (pa.concat_tables([rows, rows]), rows.slice(1), rows.slice(0, 0)):
            assert node.forgiven().put(segment, members | {path: written(wrong)}).code == "not_a_bundle"
    assert stored(store) == {}


def test_a_table_with_other_columns_or_none_at_all_is_refused(node: BundlingNode, store: Path) -> None:
    segment, members = node.bundle(*URLS)
    path, rows = table(members, "links")
    for wrong in (written(rows.drop_columns(["rel"])), b"", b"PAR1" + os.urandom(500) + b"PAR1", members[path][:-40]):
        assert node.forgiven().put(segment, members | {path: wrong}).code == "not_a_bundle"
    assert stored(store) == {}


def test_a_table_that_says_that_retention_has_been_there_is_refused(node: BundlingNode, store: Path) -> None:
    segment, members = node.bundle(*URLS)
    path, rows = table(members, "pages")
    forged = io.BytesIO()
    with pq.ParquetWriter(forged, rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({TEXT_DELETED.decode(): "2026-01-01T00:00:00Z"})
    assert node.put(segment, members | {path: forged.getvalue()}).code == "not_a_bundle"
    assert stored(store) == {}


def test_an_archive_that_does_not_open_or_an_index_of_something_else_is_refused(
    node: BundlingNode, store: Path
) -> None:
    segment, members = node.bundle(*URLS)
    [warc] = [name for name in members if name.endswith(".warc.gz")]
    index = warc.removesuffix(".warc.gz") + ".cdxj"
    forged = members[index].replace(b"http://b.test/", b"http://victim.test/")
    resource = b"WARC/1.1\r\nWARC-Type: resource\r\nContent-Length: 0\r\n\r\n\r\n\r\n"
    wrong: list[Members] = [
        {warc: members[warc][:-10]},
        {warc: b"no archive"},
        {warc: members[warc] + b"\0" * 100},
        {warc: members[warc] + gzip.compress(b"x" * 50_000_000)},
        {warc: gzip.compress(resource) + members[warc]},
        {index: forged},
        {index: members[index] * 2},
        {index: b""},
    ]
    for change in wrong:
        assert node.forgiven().put(segment, members | change).code == "not_a_bundle"
    assert node.put(segment, {name: content for name, content in members.items() if name != index}).status == 409
    assert stored(store) == {}
    assert node.put(segment, members).status == 200


@pytest.mark.parametrize("url", ["http://[a/", "http://A.test/", "http://a.test/" + "a" * 9_000])
def test_a_record_that_is_no_capture_is_of_a_web_address_too(node: BundlingNode, store: Path, url: str) -> None:
    segment, members = node.bundle(*URLS)
    [warc] = [name for name in members if name.endswith(".warc.gz")]
    mark = surplus_record("urn:uuid:" + 32 * "0", url, "2026-01-01T00:00:00Z", "urn:uuid:" + 32 * "1")
    answer = node.put(segment, members | {warc: members[warc] + gzip.compress(mark)})
    assert answer.code == "not_a_bundle"
    assert stored(store) == {}


DATES = ("zzzz-01-01T00:00:00.000000Z", "20{6-01-01T00:00:00.000000Z", "20\n6-01-01T00:00:00.000000Z", "")


@pytest.mark.parametrize("date", DATES)
def test_a_capture_has_a_date(node: BundlingNode, store: Path, date: str) -> None:
    segment, members = node.bundle(*URLS)
    [warc] = [name for name in members if name.endswith(".warc.gz")]
    path = store.parent / "one.warc.gz"
    path.write_bytes(members[warc])
    records = [gzip.decompress(path.read_bytes()[one.offset : one.offset + one.length]) for one in members_of(path)]
    forged = [re.sub(rb"WARC-Date: [^\r]*", b"WARC-Date: " + date.encode(), record, count=1) for record in records]
    path.write_bytes(b"".join(map(gzip.compress, forged)))
    found = scan(path, warc.removeprefix("warc/"), 0)
    pages, rows = table(members, "pages")
    places = {one.url: {"warc_record_offset": one.offset, "warc_record_length": one.length} for one in found.captures}
    for name in ("warc_record_offset", "warc_record_length"):
        field = rows.schema.field(name)
        values = pa.array([places[url][name] for url in rows["url"].to_pylist()], field.type)
        rows = rows.set_column(rows.schema.get_field_index(name), field, values)
    index = warc.removesuffix(".warc.gz") + ".cdxj"
    forged_members = {warc: path.read_bytes(), index: b"".join(sorted(found.unmarked())), pages: written(rows)}
    assert node.put(segment, members | forged_members).code == "not_a_bundle"
    assert stored(store) == {}


# The process that checks


def dies(folder: Path, segment: str) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(folder: Path, segment: str) -> None:
    time.sleep(600)


def test_a_check_that_crashes_is_a_refusal_and_one_that_hangs_is_ended(
    node: BundlingNode, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment, members = node.bundle(*URLS)
    with monkeypatch.context() as patched:
        patched.setattr(checking, "check_alone", dies)
        assert node.put(segment, members).code == "not_a_bundle"
        patched.setattr(checking, "check_alone", hangs)
        patched.setattr(checking, "CHECK_S_MAX", 0.2)
        answer = node.put(segment, members)
        assert (answer.status, answer.code) == (503, "unchecked")
    assert stored(store) == {}
    assert node.put(segment, members).status == 200


def test_a_page_bomb_ends_its_check_and_nothing_else(node: BundlingNode, store: Path) -> None:
    """Most of a gigabyte of one letter takes a few kilobytes in Parquet, and twice that in memory."""
    segment, members = node.bundle(*URLS)
    path, rows = table(members, "pages")
    text = pa.array(["a" * 700_000_000, "", ""])
    bomb = rows.set_column(rows.schema.get_field_index("text"), rows.schema.field("text"), text)
    file = io.BytesIO()
    pq.write_table(bomb, file, store_schema=False, compression="zstd", use_dictionary=False, write_statistics=False)
    del bomb, text
    answer = node.put(segment, members | {path: file.getvalue()})
    # On a machine that is short of memory the kernel may end the check before its own limit does.
    assert answer.code in ("not_a_bundle", "unchecked")
    assert stored(store) == {}
    assert node.put(segment, members).status == 200


def test_limits_are_set_before_anything_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[int] = []
    monkeypatch.setattr("drumlin.store.bundles.resource.setrlimit", lambda limit, value: told.append(limit))
    monkeypatch.setattr(store_bundles, "check", lambda folder, segment: told.append(-1))
    store_bundles.check_alone(tmp_path, "n1-1-00001")
    assert (told[-1], len(told)) == (-1, 5)


# Bounds
