"""The WARC writer, its reader and its repair."""

from __future__ import annotations

import gzip
import json
import resource
import signal
from pathlib import Path

import pytest

from drumlin.disk import OPEN_SUFFIX
from drumlin.errors import ConfigError, StorageError
from drumlin.model import Capture, Duplicate
from drumlin.store import WarcWriter, is_revisit, merge, read_capture, record_id_of, repair
from drumlin.store.warc import writer as warc_module
from drumlin.store.warc.block import HEAD_BYTES_MAX, stored_block
from drumlin.store.warc.reader import members, parse_record
from drumlin.store.warc.records import warc_date
from tests.harness.warcs import read_captures
from tests.unit.store_captures import FETCHED, HTML, header_block, make_capture


def new_writer(directory: Path, node: str = "node-1", **options: object) -> WarcWriter:
    return WarcWriter(directory, node, software="drumlin/1", info={}, now=FETCHED, **options)  # type: ignore[arg-type]


def records_of(path: Path) -> list[tuple[str, str]]:
    parsed = [parse_record(member) for member in members(path)]
    return [(record.kind, record.fields.get("warc-target-uri", "")) for record in parsed if record is not None]


def index_of(directory: Path) -> list[bytes]:
    return [line for path in sorted(directory.glob("*.cdxj")) for line in path.read_bytes().splitlines()]


def test_a_capture_learns_where_it_is_and_can_be_read_back(tmp_path: Path) -> None:
    captures = [make_capture(f"https://example.com/{n}", HTML + b"%d" % n) for n in range(5)]
    writer = new_writer(tmp_path)
    writer.settle(writer.store(captures[:2]))
    writer.settle(writer.store(captures[2:]))
    writer.close()
    for capture in captures:
        back = read_capture(tmp_path / capture.warc_filename, capture.warc_offset)
        assert (back.url, back.host, back.fetched, back.status) == (capture.url, capture.host, capture.fetched, 200)
        assert (back.body_raw, back.response_headers) == (capture.body_raw, capture.response_headers)
        assert (back.record_id, back.ip, back.protocol) == (capture.record_id, capture.ip, capture.protocol)
        assert (back.warc_offset, back.warc_length) == (capture.warc_offset, capture.warc_length)
        assert back.headers["content-type"] == "text/html; charset=utf-8"
    assert [c.url for c in read_captures(tmp_path / writer.filename)] == [c.url for c in captures]


def test_reading_where_no_capture_starts_is_a_storage_error(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    writer.settle(writer.store([make_capture()]))
    writer.close()
    for offset in (0, 1, 10_000_000):
        with pytest.raises(StorageError, match="no readable capture"):
            read_capture(tmp_path / writer.filename, offset)


def test_a_file_has_its_final_name_only_when_closed(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    assert list(tmp_path.iterdir()) == []
    writer.settle(writer.store([make_capture()]))
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [OPEN_SUFFIX, OPEN_SUFFIX]
    writer.close()
    writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "drumlin-20251009085320123-00001-node-1.cdxj",
        "drumlin-20251009085320123-00001-node-1.warc.gz",
    ]


def test_every_file_opens_with_warcinfo_and_rotation_loses_nothing(tmp_path: Path) -> None:
    writer = new_writer(tmp_path, rotate_bytes=4_000)
    captures = [make_capture(f"https://example.com/{n}") for n in range(30)]
    for start in range(0, 30, 7):
        writer.settle(writer.store(captures[start : start + 7]))
    writer.close()
    files = sorted(tmp_path.glob("*.warc.gz"))
    assert len(files) > 3
    records = [records_of(path) for path in files]
    assert all(record[0][0] == "warcinfo" for record in records)
    assert [url for record in records for kind, url in record if kind == "response"] == [c.url for c in captures]
    assert all(path.stat().st_size < 8_000 for path in files)
    assert len(index_of(tmp_path)) == 30


def test_a_file_of_many_small_captures_is_rotated_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc_module, "CAPTURES_PER_FILE_MAX", 3)
    writer = new_writer(tmp_path)
    for n in range(7):
        writer.settle(writer.store([make_capture(f"https://example.com/{n}")]))
    writer.close()
    assert len(list(tmp_path.glob("*.warc.gz"))) == 3


def test_a_batch_of_large_bodies_is_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc_module, "BATCH_BYTES_MAX", 2_000)
    writer = new_writer(tmp_path)
    captures = [make_capture(f"https://example.com/{n}") for n in range(10)]
    writer.settle(writer.store(captures))
    writer.close()
    assert [c.url for c in read_captures(tmp_path / writer.filename)] == [c.url for c in captures]


def test_two_writers_of_one_node_never_share_a_file(tmp_path: Path) -> None:
    first, second = new_writer(tmp_path), new_writer(tmp_path)
    first.settle(first.store([make_capture()]))
    second.settle(second.store([make_capture()]))
    first.close()
    second.close()
    third = new_writer(tmp_path)
    third.settle(third.store([make_capture()]))
    third.close()
    assert len(list(tmp_path.glob("*.warc.gz"))) == 3


def test_record_ids_depend_on_the_capture_alone() -> None:
    assert record_id_of(make_capture()) == record_id_of(make_capture())
    assert record_id_of(make_capture()).startswith("urn:uuid:")
    different = [make_capture(fetched=1.0), make_capture("https://example.com/2"), make_capture(body=b"else")]
    assert len({record_id_of(capture) for capture in [make_capture(), *different]}) == 4


def test_an_exact_duplicate_becomes_a_revisit_that_names_the_original(tmp_path: Path) -> None:
    original = make_capture()
    original.record_id = record_id_of(original)
    again = make_capture("https://example.com/copy", fetched=FETCHED + 9)
    again.duplicate = Duplicate(original.url, original.fetched, original.record_id)
    writer = new_writer(tmp_path)
    writer.settle(writer.store([original, again]))
    writer.close()
    assert [kind for kind, _ in records_of(tmp_path / writer.filename)][-1] == "revisit"
    member = next(members(tmp_path / writer.filename, again.warc_offset))
    record = parse_record(member)
    assert record is not None
    assert record.fields["warc-refers-to-target-uri"] == original.url
    assert record.fields["warc-refers-to-date"] == warc_date(original.fetched)
    assert record.fields["warc-profile"].endswith("/revisit/identical-payload-digest")
    assert record.block == again.response_headers
    lines = [json.loads(line.split(b" ", 2)[2]) for line in index_of(tmp_path)]
    assert [line["mime"] for line in lines] == ["text/html", "warc/revisit"]
    assert lines[0]["digest"] == lines[1]["digest"]
    back = read_capture(tmp_path / writer.filename, again.warc_offset)
    assert (back.duplicate, back.body_raw) == (again.duplicate, b"")


def test_a_duplicate_that_differs_on_the_wire_is_stored_whole() -> None:
    """Its own headers would be replayed over a payload with another content-encoding."""
    packed = make_capture(body_raw=gzip.compress(HTML))
    mark = Duplicate(packed.url, packed.fetched, record_id_of(packed))
    assert is_revisit(make_capture(body_raw=packed.body_raw, duplicate=mark))
    assert not is_revisit(make_capture(duplicate=mark))


def test_near_duplicates_and_empty_bodies_are_never_revisits() -> None:
    near = Duplicate("https://example.com/", FETCHED, record_id_of(make_capture()), overlap=0.93)
    assert not is_revisit(make_capture(duplicate=near))
    empty = make_capture(body=b"")
    assert not is_revisit(make_capture(body=b"", duplicate=Duplicate(empty.url, FETCHED, record_id_of(empty))))


def test_an_ordinary_header_block_is_stored_as_received() -> None:
    block = header_block(HTML, b"Set-Cookie: a=b", b"X-Empty:")
    assert stored_block(block, 200, len(HTML)) is block


def test_framing_that_no_longer_holds_is_renamed_and_made_right() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nServer: x\r\n\r\n"
    expected = b"HTTP/1.1 200 OK\r\nX-Crawler-Transfer-Encoding: chunked\r\nServer: x\r\nContent-Length: 7\r\n\r\n"
    assert stored_block(chunked, 200, 7) == expected
    wrong = stored_block(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 200, 7)
    assert wrong == b"HTTP/1.1 200 OK\r\nX-Crawler-Content-Length: 9\r\nContent-Length: 7\r\n\r\n"
    assert stored_block(b"HTTP/2 404 \r\nserver: x\r\n\r\n", 404, 7) == b"HTTP/1.1 404 Not Found\r\nserver: x\r\n\r\n"


def test_of_several_blocks_the_last_is_the_response_and_a_status_line_among_headers_is_just_a_line() -> None:
    final = b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n"
    assert stored_block(b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + final, 200, 0) == final
    odd = stored_block(b"HTTP/1.1 200 OK\nServer: x\nHTTP/1.1 500 Oops\n\n", 200, 0)
    assert odd == b"HTTP/1.1 200 OK\r\nServer: x\r\nHTTP/1.1 500 Oops\r\n\r\n"


def test_the_length_in_a_304_speaks_of_another_body_and_stays() -> None:
    block = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 900\r\n\r\n"
    assert stored_block(block, 304, 0) is block


def test_truncation_is_recorded(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    capture = make_capture()
    capture.truncated = "length"
    writer.settle(writer.store([capture]))
    writer.close()
    record = parse_record(next(members(tmp_path / writer.filename, capture.warc_offset)))
    assert record is not None
    assert record.fields["warc-truncated"] == "length"


def test_a_line_end_in_a_url_cannot_forge_a_field(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    capture = make_capture()
    capture.url = "https://example.com/\r\nWARC-Type: metadata"
    writer.settle(writer.store([capture]))
    record = parse_record(next(members(tmp_path / (writer.filename + OPEN_SUFFIX), capture.warc_offset)))
    assert record is not None
    assert record.kind == "response"


def torn_copies(tmp_path: Path, captures: list[Capture]) -> tuple[Path, bytes, bytes, list[int]]:
    """A WARC left open, its bytes, its open index, and where each capture ends."""
    source = tmp_path / "source"
    writer = new_writer(source)
    for capture in captures:
        writer.settle(writer.store([capture]))
    warc = source / (writer.filename + OPEN_SUFFIX)
    index = next(source.glob("*.cdxj.open"))
    return warc, warc.read_bytes(), index.read_bytes(), [c.warc_offset + c.warc_length for c in captures]


@pytest.mark.parametrize("with_index", [True, False])
def test_a_tail_torn_at_any_byte_is_cut_after_the_last_whole_capture(tmp_path: Path, with_index: bool) -> None:
    captures = [make_capture(f"https://example.com/{n}") for n in range(3)]
    warc, content, index, ends = torn_copies(tmp_path, captures)
    lines = index.splitlines(keepends=True)
    directory = tmp_path / "torn"
    directory.mkdir()
    for size in range(ends[1], len(content) + 1):
        kept = sum(end <= size for end in ends)
        (directory / warc.name).write_bytes(content[:size])
        if with_index:
            stem = warc.name.removesuffix(".warc.gz" + OPEN_SUFFIX)
            (directory / f"{stem}.cdxj{OPEN_SUFFIX}").write_bytes(b"".join(lines[: kept - 1]) + lines[kept - 1][:9])
        (repaired,) = repair(directory, journalled={captures[0].warc_filename: {captures[kept - 1].warc_offset: True}})
        assert (repaired.captures, repaired.bytes_kept) == (kept, ends[kept - 1])
        assert repaired.path.read_bytes() == content[: ends[kept - 1]]
        assert index_of(directory) == sorted(line.rstrip() for line in lines[:kept])
        assert len(list(directory.iterdir())) == 2
        for path in directory.iterdir():
            path.unlink()


def settled_batch(directory: Path, surplus: set[int]) -> tuple[WarcWriter, list[Capture]]:
    """Three captures; those at the places in `surplus` did not count."""
    writer = new_writer(directory)
    captures = [make_capture(f"https://example.com/{n}") for n in range(3)]
    writer.settle(writer.store(captures), surplus)
    return writer, captures


def indexed_urls(directory: Path) -> list[str]:
    return [json.loads(line.split(b" ", 2)[2])["url"] for line in index_of(directory)]


def test_what_did_not_count_is_marked_in_the_warc_and_not_in_the_index(tmp_path: Path) -> None:
    writer, captures = settled_batch(tmp_path, {1})
    writer.close()
    assert indexed_urls(tmp_path) == [captures[0].url, captures[2].url]
    *_, mark = [parse_record(member) for member in members(tmp_path / writer.filename)]
    assert mark is not None
    assert (mark.kind, mark.fields["warc-refers-to"]) == ("metadata", f"<{captures[1].record_id}>")
    assert mark.block.startswith(b"drumlin-status: surplus\r\ndrumlin-reason: ")


def test_a_file_is_finished_only_when_all_in_it_is_settled_in_whatever_order(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    first = writer.store([make_capture("https://example.com/1")])
    second = writer.store([make_capture("https://example.com/2")])
    writer.end_file()
    third = writer.store([make_capture("https://example.com/3")])
    writer.settle(second)
    assert list(tmp_path.glob("*.warc.gz")) == []
    writer.settle(first, {0})
    assert [path.name for path in tmp_path.glob("*.warc.gz")] == [first[0].file.name]
    assert indexed_urls(tmp_path) == ["https://example.com/2"]
    writer.settle(third)
    writer.close()
    assert len(list(tmp_path.glob("*.warc.gz"))) == 2


def test_a_batch_over_two_files_is_settled_in_both(tmp_path: Path) -> None:
    writer = new_writer(tmp_path, rotate_bytes=1_500)
    captures = [make_capture(f"https://example.com/{n}") for n in range(6)]
    stored = writer.store(captures)
    assert len({one.file.name for one in stored}) > 1
    writer.settle(stored, {0, 5})
    writer.close()
    assert sorted(indexed_urls(tmp_path)) == [capture.url for capture in captures[1:5]]
    marks = [record for path in tmp_path.glob("*.warc.gz") for record in records_of(path) if record[0] == "metadata"]
    assert sorted(url for _, url in marks) == [captures[0].url, captures[5].url]


def test_an_index_that_is_lost_is_made_again_without_what_is_surplus(tmp_path: Path) -> None:
    writer, _ = settled_batch(tmp_path, {1})
    writer.close()
    before = index_of(tmp_path)
    next(tmp_path.glob("*.cdxj")).unlink()
    repair(tmp_path)
    assert index_of(tmp_path) == before


@pytest.mark.parametrize("marks_written", [0, 1])
def test_repair_settles_by_the_journals_whatever_was_written_of_it(tmp_path: Path, marks_written: int) -> None:
    """The answer enters the journal first; a kill may come before, between and after mark and line."""
    writer, older = settled_batch(tmp_path, {0})
    late = [make_capture(f"https://example.com/late/{n}") for n in range(4)]
    stored = writer.store(late)
    if marks_written:
        stored[0].file.settle([], [stored[0]])
        # The first answer said that it counts, the second one that it does not.
        stored[0].file.settle([stored[3]], [])
    never_journalled = make_capture("https://example.com/late/5")
    writer.store([never_journalled])
    told = {writer.filename: {one.warc_offset: place in (1, 2) for place, one in enumerate(late)}}
    (repaired,) = repair(tmp_path, "node-1", told)
    assert indexed_urls(tmp_path) == sorted(one.url for one in [*older[1:], *late[1:3]])
    marked = [url for kind, url in records_of(repaired.path) if kind == "metadata"]
    assert sorted(marked) == sorted(one.url for one in [older[0], late[0], late[3], never_journalled])
    assert repaired.surplus == 3 - marks_written
    content = repaired.path.read_bytes()
    assert repair(tmp_path, "node-1", told) == []
    assert repaired.path.read_bytes() == content


def test_a_kill_while_a_file_is_finished_is_repaired_from_the_sorted_index(tmp_path: Path) -> None:
    writer, captures = settled_batch(tmp_path, {2})
    writer.close()
    warc = tmp_path / writer.filename
    content = warc.read_bytes()
    warc.rename(warc.with_name(warc.name + OPEN_SUFFIX))
    (repaired,) = repair(tmp_path, "node-1", {writer.filename: {captures[0].warc_offset: True}})
    assert (repaired.captures, repaired.surplus, warc.read_bytes()) == (2, 0, content)
    assert len(list(tmp_path.iterdir())) == 2


def test_garbage_after_the_last_record_is_cut_off(tmp_path: Path) -> None:
    warc, content, _, _ = torn_copies(tmp_path, [make_capture()])
    for tail in (b"\0" * 5_000, b"\x1f\x8b\x08" + b"\xff" * 100, gzip.compress(b"not a record"), content[:50]):
        directory = tmp_path / f"tail-{len(tail)}"
        directory.mkdir()
        (directory / warc.name).write_bytes(content + tail)
        (repaired,) = repair(directory)
        assert repaired.path.read_bytes() == content
        assert repaired.bytes_dropped == len(tail)


def test_an_open_index_that_does_not_fit_its_warc_is_not_believed(tmp_path: Path) -> None:
    captures = [make_capture(f"https://example.com/{n}") for n in range(3)]
    warc, content, index, ends = torn_copies(tmp_path, captures)
    directory = tmp_path / "short"
    directory.mkdir()
    (directory / warc.name).write_bytes(content[: ends[1] + 30])
    (directory / (warc.name.removesuffix(".warc.gz.open") + ".cdxj.open")).write_bytes(index)
    (repaired,) = repair(directory)
    assert repaired.captures == 2
    assert len(index_of(directory)) == 2


def test_a_file_without_a_whole_capture_disappears(tmp_path: Path) -> None:
    warc, content, _, _ = torn_copies(tmp_path, [make_capture()])
    for size in (0, 1, 100, len(content) - 1):
        directory = tmp_path / f"size-{size}"
        directory.mkdir()
        (directory / warc.name).write_bytes(content[:size])
        (repaired,) = repair(directory)
        assert repaired.captures == 0
        assert list(directory.iterdir()) == []


def test_repair_touches_only_the_files_of_the_node_it_is_asked_about(tmp_path: Path) -> None:
    for node in ("a", "b-a"):
        one = new_writer(tmp_path, node)
        one.settle(one.store([make_capture()]))
    sorting = tmp_path / "drumlin-20251009085320123-00009-b-a.cdxj.partial"
    sorting.write_bytes(b"")
    assert [r.path.name[-11:] for r in repair(tmp_path, "a")] == ["1-a.warc.gz"]
    assert len(list(tmp_path.glob("*-b-a.warc.gz.open"))) == 1
    assert sorting.exists()
    assert [r.path.name[-11:] for r in repair(tmp_path)] == ["b-a.warc.gz"]
    assert not sorting.exists()


@pytest.mark.parametrize("node", ["", "a/b", "..\n", "a b"])
def test_a_node_whose_name_cannot_stand_in_a_file_name_is_refused(tmp_path: Path, node: str) -> None:
    with pytest.raises(ConfigError):
        new_writer(tmp_path, node)


def test_repair_gives_a_finished_warc_the_index_it_lacks_and_changes_nothing_else(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    odd = make_capture("https://example.com/odd", response_headers=b"HTTP/2 200\r\ncontent-type: Text/HTML;x\r\n\r\n")
    odd.headers = {"content-type": "Text/HTML;x"}
    writer.settle(writer.store([make_capture(), odd]))
    writer.close()
    before, content = index_of(tmp_path), (tmp_path / writer.filename).read_bytes()
    next(tmp_path.glob("*.cdxj")).unlink()
    repair(tmp_path)
    assert index_of(tmp_path) == before
    assert (tmp_path / writer.filename).read_bytes() == content
    assert repair(tmp_path) == []


def test_a_full_disk_is_one_sentence_and_leaves_a_valid_file(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    writer.settle(writer.store([make_capture()]))
    path = tmp_path / (writer.filename + OPEN_SUFFIX)
    size = path.stat().st_size
    late = make_capture("https://example.com/late", bytes(range(256)) * 4_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1_000, limits[1]))
        with pytest.raises(StorageError, match=r"^Cannot write .*: the file may not grow further\."):
            writer.settle(writer.store([late]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.stat().st_size == size
    assert late.warc_filename == ""
    writer.settle(writer.store([late]))
    writer.close()
    assert [kind for kind, _ in records_of(tmp_path / writer.filename)].count("response") == 2


def test_an_unwritable_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="Cannot write"):
        new_writer(tmp_path / "file" / "warc")


def test_merging_gives_one_sorted_index_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drumlin.store.warc.cdxj.MERGE_FILES_MAX", 2)
    writer = new_writer(tmp_path, rotate_bytes=2_000)
    for n in (5, 3, 9, 1, 7, 2, 8):
        writer.settle(writer.store([make_capture(f"https://example.com/{n}")]))
    writer.close()
    first = merge(tmp_path).read_bytes()
    assert merge(tmp_path).read_bytes() == first
    lines = first.splitlines()
    assert lines == sorted(lines)
    assert [json.loads(line.split(b" ", 2)[2])["url"][-1] for line in lines] == list("1235789")
    assert not list(tmp_path.glob(".merge*"))


def test_dates_have_microseconds_and_round_rather_than_cut() -> None:
    assert warc_date(0.0) == "1970-01-01T00:00:00.000000Z"
    assert warc_date(1_760_000_000.999_999_9) == "2025-10-09T08:53:21.000000Z"


@pytest.mark.parametrize(
    "fields",
    [
        [b"X-Long: " + b"a" * 100_000],
        [b"X-%d: %b" % (number, b"b" * 90) for number in range(1_000)],
        [b"Set-Cookie: a=b"] * 20_000,
        [b"X: " + b"a" * 31_000, b"Y: " + b"b" * 31_000],
    ],
    ids=["one long line", "many lines", "very many", "two that do not fit together"],
)
def test_a_head_that_is_too_long_for_readers_is_cut_and_says_so(fields: list[bytes]) -> None:
    needed = [b"Content-Type: text/html", b"Location: /" + b"l" * 7_000, b"Content-Encoding: gzip"]
    received = b"\r\n".join([b"HTTP/1.1 200 OK", *fields, *needed]) + b"\r\n\r\n"
    block = stored_block(received, 200, 10)
    assert len(block) <= HEAD_BYTES_MAX
    lines = block.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert [line for line in lines if line in needed] == needed, "what says what the body is stays, in its order"
    kept = [line for line in lines[1:] if line in fields]
    left_out = len(fields) - len(kept)
    missing = sum(map(len, fields)) - sum(map(len, kept))
    assert lines[-1] == b"X-Crawler-Headers-Cut: %d fields, %d bytes" % (left_out, missing)
    assert len(lines) == 1 + len(kept) + len(needed) + 1


def test_a_head_that_just_fits_is_stored_as_received() -> None:
    start = b"HTTP/1.1 200 OK\r\nX: "
    received = start + b"a" * (HEAD_BYTES_MAX - len(start) - 4) + b"\r\n\r\n"
    assert stored_block(received, 200, 10) == received
