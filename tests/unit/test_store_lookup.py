"""What the tables say of a URL, by any spelling of it, whether a segment has an index or is read through."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drumlin.store.files import DirectoryFiles, StoredFile
from drumlin.store.tables import lookup, spellings, url_index
from drumlin.store.tables.lookup import LINKS_FOUND_MAX, SETTLED_S, StoredFetch, StoreReader, newest_first
from drumlin.store.tables.reading import BATCH_ROWS
from drumlin.store.tables.rows import TIME_MAX
from drumlin.store.tables.schema import SCHEMAS
from drumlin.store.tables.url_index import COLUMNS, HEAD_BYTES, INDEX_SUFFIX, INDEXES, UrlIndex, key_of, make_index
from drumlin.urls import identity

STORED = [
    "http://a.test/~u/p?b=2&a=1&utm_source=x",
    "http://a.test/~u/p?a=1",
    "http://b.test/~u/p?a=1&b=2",
    "http://a.test/x",
]
TARGET, AIM = "http://c.test/t?utm_source=y", "http://d.test/"
WRITTEN = 1_000_000.0
LATER = WRITTEN + 2 * SETTLED_S


def always() -> bool:
    return True


def written(
    store: Path, name: str = "n0-1", stored: list[str] | None = None, *, at: int | None = 1, ended: float = WRITTEN
) -> None:
    """A segment whose every page links to `TARGET`, and whose first fetch leads to `AIM`. Row groups have two rows. The
    fetches are a microsecond apart and begin with the one `at` this (None: all have no time); the files were written
    when it `ended`."""
    urls = STORED if stored is None else stored
    count = len(urls)
    rows: dict[str, list[dict[str, Any]]] = {
        "fetches": [{"url": url, "host": url.split("/")[2], "outcome": "fetched", "fetch_status": 200} for url in urls],
        "pages": [
            {"url": url, "warc_filename": f"{place}.warc.gz", "warc_record_offset": place, "depth": place}
            for place, url in enumerate(urls)
        ],
        "links": [{"url": url, "target": TARGET, "kind": "a", "rel": ""} for url in urls],
    }
    rows["fetches"][0]["redirect_to"] = AIM
    for table, made in rows.items():
        for place, row in enumerate(made):
            row["fetch_time"] = None if at is None else at + place
        folder = store / "tables" / table
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.parquet"
        pq.write_table(pa.Table.from_pylist(made, SCHEMAS[table]), path, row_group_size=max(1, min(2, count)))
        os.utime(path, (ended, ended))


@pytest.fixture(params=["indexed", "read through"])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> StoreReader:
    written(tmp_path)
    made = StoreReader(DirectoryFiles(tmp_path))
    if request.param == "indexed":
        assert made.index_some(LATER, always) == 0
        assert (tmp_path / INDEXES / f"n0-1{INDEX_SUFFIX}").stat().st_size > 0
    return made


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (STORED[0], 0),
        ("http://a.test/~u/p?a=1&b=2", 0),
        ("http://a.test/%7Eu/p?a=1&b=2", 0),
        ("http://a.test/~u/p?a=1&gclid=1", 1),
        ("http://a.test/%78", 3),
        ("http://a.test/~u/p", None),
    ],
)
def test_any_spelling_of_a_url_finds_its_attempts(url: str, place: int | None, reader: StoreReader) -> None:
    found, complete = reader.fetches(url, always)
    assert complete
    assert [one.warc_filename for one in found] == ([] if place is None else [f"{place}.warc.gz"])
    assert [(one.fetched, one.depth) for one in found] == ([] if place is None else [((place + 1) / 1e6, place)])


def test_pages_that_link_to_a_url_and_redirects_to_it_are_found(reader: StoreReader) -> None:
    links, complete = reader.links("http://c.test/t", always)
    assert complete
    assert sorted((link.page, link.depth) for link in links) == sorted(zip(STORED, range(len(STORED)), strict=True))
    redirects, _ = reader.links(AIM, always)
    assert [(link.page, link.kind) for link in redirects] == [(STORED[0], "redirect")]
    assert reader.links("http://nobody.test/", always) == ([], True)


def test_the_last_attempts_on_a_host_are_found(reader: StoreReader) -> None:
    found, complete = reader.host_fetches("a.test", 2, always)
    assert complete
    assert [one.url for one in found] == [STORED[3], STORED[1]]
    assert reader.host_fetches("z.test", 2, always) == ([], True)


def test_the_last_attempts_on_a_host_are_those_of_all_nodes(tmp_path: Path) -> None:
    """Segments of several nodes overlap in time: one that was complete last need not have the newest rows."""
    began = round(WRITTEN * 1e6)
    written(tmp_path, "n0-1", ["http://a.test/0", "http://a.test/2"], at=began, ended=WRITTEN + 20)
    written(tmp_path, "n1-1", ["http://a.test/9", "http://a.test/8"], at=began + 1_000_000, ended=WRITTEN + 10)
    written(tmp_path, "n2-1", ["http://a.test/old"], at=began - 600_000_000, ended=WRITTEN - 600)
    opened: list[str] = []

    class Watched(DirectoryFiles):
        def open(self, path: str) -> BinaryIO:
            opened.append(path)
            return super().open(path)

    found, complete = StoreReader(Watched(tmp_path)).host_fetches("a.test", 2, always)
    assert complete
    assert [one.url for one in found] == ["http://a.test/8", "http://a.test/9"]
    assert not any("n2-1" in path for path in opened), "all of it is older than what was found"


def test_what_a_lying_node_has_written_is_cut(tmp_path: Path) -> None:
    written(tmp_path, "n0-1", ["http://a.test/0"])
    [path] = (tmp_path / "tables" / "fetches").glob("*.parquet")
    table = pq.read_table(path)
    for column, said in (("error", "e" * 100_000), ("kind", "k" * 8_000)):
        place = table.schema.get_field_index(column)
        table = table.set_column(place, table.schema.field(column), pa.array([said], table.schema.field(column).type))
    pq.write_table(table, path)
    [one], _ = StoreReader(DirectoryFiles(tmp_path)).host_fetches("a.test", 2, always)
    assert (len(one.error), len(one.kind)) == (1_000, 100)


def test_rows_of_a_file_that_is_older_than_they_are_keep_their_order(tmp_path: Path) -> None:
    """As after a copy that gave its files other times."""
    later = round(WRITTEN * 1e6) + 7 * 86_400_000_000
    written(tmp_path, "n0-1", ["http://a.test/0", "http://a.test/0", "http://a.test/0"], at=later)
    found, _ = StoreReader(DirectoryFiles(tmp_path)).fetches("http://a.test/0", always)
    assert [round(one.fetched * 1e6) - later for one in newest_first(found)] == [2, 1, 0]


def test_a_search_that_runs_out_of_time_says_so(reader: StoreReader) -> None:
    assert reader.fetches(STORED[0], lambda: False) == ([], False)
    assert reader.links(STORED[0], lambda: False) == ([], False)
    assert reader.host_fetches("a.test", 2, lambda: False) == ([], False)


def test_a_search_whose_time_is_over_lists_no_folder(tmp_path: Path) -> None:
    class Unlisted(DirectoryFiles):
        def files(self, folder: str, suffix: str) -> list[StoredFile]:
            raise AssertionError

    reader = StoreReader(Unlisted(tmp_path))
    assert reader.fetches(STORED[0], lambda: False) == ([], False)
    assert reader.links(STORED[0], lambda: False) == ([], False)
    assert reader.host_fetches("a.test", 2, lambda: False) == ([], False)
    assert reader.page(STORED[0], "n0-1", 1.0, lambda: False) == {}


def test_an_index_of_a_segment_that_has_grown_since_is_not_used(tmp_path: Path) -> None:
    written(tmp_path, stored=STORED[:2])
    reader = StoreReader(DirectoryFiles(tmp_path))
    reader.index_some(LATER, always)
    written(tmp_path)
    assert [one.url for one in reader.fetches(STORED[3], always)[0]] == [STORED[3]]


@pytest.mark.parametrize("left", [0, 1, 2, 5])
def test_an_index_that_a_power_cut_left_short_is_not_used(tmp_path: Path, left: int) -> None:
    written(tmp_path)
    reader = StoreReader(DirectoryFiles(tmp_path))
    reader.index_some(LATER, always)
    os.truncate(tmp_path / INDEXES / f"n0-1{INDEX_SUFFIX}", HEAD_BYTES + left)
    for url in STORED:
        assert [one.url for one in reader.fetches(url, always)[0]] == [url]


def test_a_segment_that_may_still_grow_gets_no_index_and_a_full_store_is_only_read(tmp_path: Path) -> None:
    written(tmp_path)
    reader = StoreReader(DirectoryFiles(tmp_path))
    assert reader.index_some(WRITTEN + 1.0, always) == 0
    assert not (tmp_path / INDEXES).exists()
    assert reader.index_some(LATER, lambda: False) == 1
    (tmp_path / INDEXES).write_text("no folder can be made here")
    assert reader.index_some(LATER, always) == 0
    assert reader.fetches(STORED[3], always)[0]


def test_a_damaged_segment_hides_no_other(tmp_path: Path) -> None:
    written(tmp_path, "n0-1")
    written(tmp_path, "n1-1", ["http://e.test/"])
    (tmp_path / "tables" / "fetches" / "n1-1.parquet").write_bytes(b"PAR1 torn")
    reader = StoreReader(DirectoryFiles(tmp_path))
    for _ in range(2):
        assert reader.fetches("http://a.test/x", always)[0]
        assert reader.fetches("http://e.test/", always) == ([], True)
        assert reader.index_some(LATER, always) == 0


def test_no_more_links_are_read_than_are_told(tmp_path: Path) -> None:
    written(tmp_path, stored=[f"http://a.test/{number}" for number in range(3 * LINKS_FOUND_MAX)])
    assert len(StoreReader(DirectoryFiles(tmp_path)).links(TARGET, always)[0]) == LINKS_FOUND_MAX


def test_an_index_finds_every_key_in_its_row_groups(tmp_path: Path) -> None:
    urls = [f"http://h{number % 7}.test/{number}" for number in range(3_000)]
    table = pa.table({"url": urls, "target": urls, "redirect_to": urls})
    files: dict[str, BinaryIO] = {}
    for name in ("fetches", "pages", "links"):
        pq.write_table(table, tmp_path / name, row_group_size=1_000)
        files[name] = (tmp_path / name).open("rb")
    index_file = tmp_path / "index"
    index_file.write_bytes(make_index(files, {"a": "1"}))
    with index_file.open("rb") as file:
        index = UrlIndex(file)
        assert index.is_of({"a": "1"})
        assert not index.is_of({"a": "2"})
        for part in COLUMNS:
            assert all(index.groups(part, key_of(url)) == [place // 1_000] for place, url in enumerate(urls))
            assert index.groups(part, key_of("http://nobody.test/")) == []
    for opened in files.values():
        opened.close()


# Files of strangers


def linked(store: Path, targets: Any, name: str = "n0-1") -> None:
    """A segment whose first page has these links, in one row group, as compact as can be."""
    written(store, name)
    one = pa.array([0] * len(targets), pa.int32())
    alike = {
        column: pa.DictionaryArray.from_arrays(one, [value])
        for column, value in (("url", STORED[0]), ("kind", "a"), ("rel", ""))
    }
    path = store / "tables" / "links" / f"{name}.parquet"
    pq.write_table(
        pa.table({**alike, "target": targets}),
        path,
        row_group_size=len(targets),
        store_schema=False,
        use_dictionary=[*alike, "target"] if pa.types.is_dictionary(targets.type) else [*alike],
        column_encoding=None if pa.types.is_dictionary(targets.type) else {"target": "DELTA_BYTE_ARRAY"},
    )
    os.utime(path, (WRITTEN, WRITTEN))


@contextmanager
def arrow_memory() -> Iterator[pa.MemoryPool]:
    """Arrow's memory, counted from here on."""
    before = pa.default_memory_pool()
    pa.set_memory_pool(counted := pa.proxy_memory_pool(before))
    yield counted
    pa.set_memory_pool(before)


LONG = "http://a.test/" + "a" * 2_000


@pytest.mark.parametrize(
    "targets",
    [
        pa.DictionaryArray.from_arrays(pa.array([0] * 40_000, pa.int32()), [LONG]),
        pa.array([f"{LONG}?{number}" for number in range(40_000)]),
    ],
    ids=["one link again and again", "many links with a long base"],
)
def test_a_row_group_of_long_links_is_never_in_memory_as_a_whole(tmp_path: Path, targets: Any) -> None:
    linked(tmp_path, targets)
    asked, reader = targets[-1].as_py(), StoreReader(DirectoryFiles(tmp_path))
    del targets
    with arrow_memory() as memory:
        assert reader.links(TARGET, always) == ([], True)
        assert len(reader.links(asked, always)[0]) > 0
        assert reader.index_some(LATER, always) == 0
        assert memory.max_memory() < 30_000_000
    assert (tmp_path / INDEXES / f"n0-1{INDEX_SUFFIX}").stat().st_size > 0


def test_the_time_limit_holds_within_a_segment(tmp_path: Path) -> None:
    linked(tmp_path, pa.array([f"http://a.test/{number}?x" for number in range(10 * BATCH_ROWS)]))
    reader = StoreReader(DirectoryFiles(tmp_path))
    for looks in (2, 5):
        left = iter([True] * looks)
        assert reader.links("http://a.test/none?x", partial(next, left, False)) == ([], False)
        assert next(left, None) is None
    assert reader.links("http://a.test/9999?x", always)[1]


def test_links_of_a_site_that_cannot_be_spellings_are_not_taken_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    escaped = [f"http://a.test/%C3%A9/{number}" for number in range(500)]
    linked(tmp_path, pa.array([*escaped, "http://a.test/%70/q", "http://a.test/p/%71", "http://a.test/p/q?gclid=1"]))
    taken: list[str] = []

    def noted(url: str) -> str:
        taken.append(url)
        return identity(url)

    monkeypatch.setattr(spellings, "identity", noted)
    found, _ = StoreReader(DirectoryFiles(tmp_path)).links("http://a.test/p/q", always)
    assert len(found) == 3
    assert len(taken) < 10


def test_rows_that_no_node_writes_end_neither_indexing_nor_a_look(tmp_path: Path) -> None:
    linked(tmp_path, pa.array([";", "http:;", "", None, "\x00%", TARGET]), "n9-1")
    written(tmp_path, "n0-1")
    reader = StoreReader(DirectoryFiles(tmp_path))
    for _ in range(2):
        assert len(reader.links(TARGET, always)[0]) == 1 + len(STORED)
        assert reader.index_some(LATER, always) == 0
        assert len(list((tmp_path / INDEXES).iterdir())) == 2


@pytest.mark.parametrize("time", [2**62, -(2**62), None])
def test_times_that_cannot_be_end_no_look(tmp_path: Path, time: int | None) -> None:
    written(tmp_path, "n0-1", STORED[:3])
    written(tmp_path, "n9-1", [STORED[3]], at=time)
    reader = StoreReader(DirectoryFiles(tmp_path))
    (found,), _ = reader.fetches(STORED[3], always)
    assert 0.0 <= found.fetched <= TIME_MAX / 1e6
    assert (found.page, found.warc_filename) == (True, "0.warc.gz")
    assert reader.page(STORED[3], "n9-1", found.fetched, always)["url"] == STORED[3]
    of_host, complete = reader.host_fetches("a.test", 5, always)
    assert complete
    assert {one.url for one in of_host} == {STORED[0], STORED[1], STORED[3]}


def test_attempts_of_times_to_come_do_not_hide_those_that_others_told_since(tmp_path: Path) -> None:
    lies = [f"http://a.test/{number}" for number in range(5)]
    written(tmp_path, "n9-1", lies, at=TIME_MAX - 5, ended=WRITTEN)
    true = ["http://a.test/true", "http://a.test/too"]
    written(tmp_path, "n0-1", true, at=round((WRITTEN + 600) * 1e6), ended=WRITTEN + 700)
    found, _ = StoreReader(DirectoryFiles(tmp_path)).host_fetches("a.test", 3, always)
    assert {one.url for one in found[:2]} == set(true)
    assert found[2].url in lies


def test_a_segment_that_fails_in_a_way_nobody_foresaw_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path, "n0-1")
    written(tmp_path, "n9-1", ["http://a.test/y"])

    def failing(segment: Any, *rest: Any) -> list[StoredFetch]:
        if segment.name != "n0-1":
            raise KeyError
        return of_segment(segment, *rest)

    of_segment = lookup._attempts
    monkeypatch.setattr(lookup, "_attempts", failing)
    reader = StoreReader(DirectoryFiles(tmp_path))
    for _ in range(2):
        assert len(reader.fetches(STORED[3], always)[0]) == 1
    assert caplog.text.count("cannot read n9-1") == 1


def test_an_index_that_fails_in_a_way_nobody_foresaw_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path)
    monkeypatch.setattr(url_index, "identities", lambda urls: 1 // 0)
    reader = StoreReader(DirectoryFiles(tmp_path))
    assert reader.index_some(LATER, always) == 0
    assert (tmp_path / INDEXES / f"n0-1{INDEX_SUFFIX}").stat().st_size == 0
    assert "cannot make an index of n0-1" in caplog.text
    assert reader.fetches(STORED[3], always)[0]


@pytest.mark.parametrize(("bound", "value"), [("GROUPS_MAX", 1), ("URLS_MAX", 3), ("URL_BYTES_MAX", 50)])
def test_a_segment_with_far_too_much_gets_no_index_and_is_read_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    written(tmp_path)
    monkeypatch.setattr(url_index, bound, value)
    reader = StoreReader(DirectoryFiles(tmp_path))
    assert reader.index_some(LATER, always) == 0
    assert (tmp_path / INDEXES / f"n0-1{INDEX_SUFFIX}").stat().st_size == 0
    assert reader.fetches(STORED[3], always)[0]
