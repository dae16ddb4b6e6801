"""Removal, where nodes have written what no node of drumlin's would: it is done all the same, within bounds."""

from __future__ import annotations

import asyncio
import gzip
import random
from pathlib import Path

import msgspec
import pytest

from drumlin.api.intake.checking import take_out_removed
from drumlin.config.record import WARCINFO_FIELD
from drumlin.errors import SiteError, StorageError
from drumlin.events.dead import put_aside
from drumlin.events.schema import Message
from drumlin.fetch.decode import EXPANSION_BYTES_FREE
from drumlin.http.refusal import Refused
from drumlin.lifecycle.removal import bundles, warcs
from drumlin.lifecycle.removal.directory import Directory
from drumlin.lifecycle.removal.names import free_stem
from drumlin.lifecycle.removal.plan import PLAN_NAME, Plan, finish
from drumlin.lifecycle.removal.targets import Target, Targets, What
from drumlin.lifecycle.removal.tombstones import Tombstones
from drumlin.model import FailureKind
from drumlin.protocol.refusals import RefusalCode
from drumlin.store.names import node_of_warc
from drumlin.store.warc.cdxj import index_line
from drumlin.store.warc.reader import CHUNK_BYTES, Member, Record, members, parse_record

TARGETS = Targets([Target(What.HOST, "a.test")])
MOST_PACKED = 1_032
"""How many bytes one byte of gzip can unpack to."""


def record(block: bytes, kind: str = "warcinfo", length: str = "Content-Length") -> bytes:
    head = f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:1>\r\n{length}: {len(block)}\r\n\r\n"
    return gzip.compress(head.encode() + block + b"\r\n\r\n", 1)


def written(tmp_path: Path, *records: bytes) -> Path:
    path = tmp_path / "drumlin-20260101000000000-00001-n1.warc.gz"
    path.write_bytes(b"".join(records))
    return path


def without(path: Path) -> Path:
    """The file without the removed."""
    found = warcs.look(path, TARGETS.covers, TARGETS.names)
    target = path.with_name("new.warc.gz")
    warcs.write(path, target, found.parts)
    return target


def test_a_record_that_unpacks_to_very_much_is_not_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, record(bytes(100 * 1024**2), "request"))
    held: list[int] = []

    def parsed(member: Member) -> Record | None:
        held.append(len(member.head))
        return parse_record(member)

    monkeypatch.setattr(warcs, "parse_record", parsed)
    assert bundles.take_out({f"warc/{path.name}": path}, TARGETS.covers).removed == 0
    assert max(held) <= bundles.RECORD_BYTES_MAX + CHUNK_BYTES * MOST_PACKED


def test_a_bundle_out_of_which_nothing_can_be_taken_is_refused_and_harms_nobody(tmp_path: Path) -> None:
    path = written(tmp_path, b"no record")
    with pytest.raises(Refused) as refused:
        asyncio.run(take_out_removed(tmp_path, {f"warc/{path.name}": path}, Tombstones()))
    assert refused.value.code == RefusalCode.NOT_A_BUNDLE


@pytest.mark.parametrize("digits", ["99999999999999999", "99991231235959999", "20260230000000000", "00010101000000000"])
def test_a_warc_file_whose_name_has_no_time_gets_another_name_of_its_node(digits: str) -> None:
    old = f"drumlin-{digits}-00001-n1"
    taken = {old}
    for _ in range(3):
        new = free_stem(old, taken.__contains__)
        assert new not in taken
        assert node_of_warc(new) == "n1"
        taken.add(new)


@pytest.mark.parametrize("length", ["content-length", "Content-Length ", "CONTENT-LENGTH"])
def test_a_warcinfo_record_keeps_a_true_length_however_it_is_spelled(tmp_path: Path, length: str) -> None:
    info = f'{WARCINFO_FIELD}: {{"seeds":["http://a.test/"]}}\r\n'.encode()
    path = without(written(tmp_path, record(info, length=length), record(b"x", "request")))
    found = warcs.look(path, TARGETS.covers, TARGETS.names)
    assert (found.changes, found.counts.kept_warc_records) == (False, 0)


@pytest.mark.parametrize("value", ["[" * 700 + '"http://a.test/"' + "]" * 700, "[" * 100_000, "{http://a.test/"])
def test_a_warcinfo_record_that_nobody_can_read_does_not_keep_a_name(tmp_path: Path, value: str) -> None:
    path = without(written(tmp_path, record(f"{WARCINFO_FIELD}: {value}\r\n".encode())))
    assert b"a.test" not in gzip.decompress(path.read_bytes())


def test_of_a_warcinfo_record_that_is_too_long_to_look_at_nothing_is_kept(tmp_path: Path) -> None:
    path = written(tmp_path, record(bytes(40 * 1024**2) + b"http://a.test/"), record(b"x", "request"))
    bundles.take_out({f"warc/{path.name}": path}, TARGETS.covers)
    assert b"a.test" not in gzip.decompress(path.read_bytes())
    assert not warcs.look(path, TARGETS.covers, TARGETS.names).changes


@pytest.mark.parametrize("forged", ["/{folder}/mine", "../mine", "warc/../../mine"])
def test_a_plan_that_leads_out_of_the_store_is_not_followed(tmp_path: Path, forged: str) -> None:
    (tmp_path / "mine").write_text("mine")
    root = tmp_path / "store"
    root.mkdir()
    (root / "theirs").write_text("theirs")
    path = forged.format(folder=str(tmp_path).lstrip("/"))
    for plan in (Plan(deletes=[path]), Plan(renames=[("theirs", path)])):
        (root / PLAN_NAME).write_bytes(msgspec.json.encode(plan))
        with pytest.raises(StorageError, match="is not in"):
            finish(root)
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("folder", ["nodes/n1", "events/coordinator-c-1"])
def test_events_that_were_put_aside_are_taken_out_too(tmp_path: Path, folder: str) -> None:
    spool = tmp_path / folder
    spool.mkdir(parents=True)
    path = put_aside(spool, [Message("results", host, f"http://{host}/".encode()) for host in ("a.test", "b.test")], "")
    for dry_run in (True, False):
        assert Directory(tmp_path, TARGETS, {}, "none").remove(dry_run=dry_run).log_lines == 1
    assert [msgspec.json.decode(line)["key"] for line in path.read_bytes().splitlines()] == ["b.test"]


@pytest.mark.parametrize("date", ["20\n6-01-01T00:00:00Z", "20{6-01-01T00:00:00Z", "20\r6-01-01T00:00:00Z"])
def test_lines_of_an_index_that_nobody_can_read_stop_no_removal(date: str) -> None:
    lines = [
        index_line(f"http://{name}.test/", when, "text/html", 200, "sha256:0", 10, 20, "w.warc.gz")
        for name, when in (("a", date), ("b", date), ("c", "2026-01-01T00:00:00Z"))
    ]
    kept, _ = warcs.index_without(iter(b"".join(lines).splitlines(keepends=True)), TARGETS.covers, {})
    assert b"test,a" not in b"".join(kept)
    assert lines[2] in kept


def test_a_record_is_whole_for_everybody_however_long_its_header_is(tmp_path: Path) -> None:
    """A bundle is checked by the first megabyte of each record, and a removal looks at more of it: what only the first
    of them takes for a record would be damage for the other."""
    begin = b"WARC/1.1\r\nWARC-Type: metadata\r\nContent-Length: %09d\r\n"
    rest = b"X: " + b"\r\n".join(random.Random(1).randbytes(1_000).hex().encode() for _ in range(2_000))
    content = begin % 0 + rest + b"\r\n\r\nblock\r\n\r\n"
    path = written(tmp_path, gzip.compress(content, 0))
    [kept] = [len(member.head) for member in members(path)]
    assert kept < len(content)
    path = written(tmp_path, gzip.compress(begin % (len(content) - kept - 8) + content[len(begin % 0) :], 0))
    [some] = members(path)
    [more] = members(path, 0, len(content))
    assert (parse_record(some), parse_record(more)) == (None, None)


def test_bodies_that_decode_to_very_much_are_looked_at_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred bytes of brotli can decode to a gigabyte, and a bundle has room for millions of such records."""
    block = b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\n" + bytes(100)
    path = written(tmp_path, *[record(block, "response")] * 1_000)
    asked: list[int] = []

    def decode(body: bytes, encoding: str, bytes_max: int) -> bytes:
        asked.append(bytes_max)
        raise SiteError(FailureKind.TOO_LARGE, "made up")

    monkeypatch.setattr(warcs, "decode", decode)
    warcs.look(path, TARGETS.covers, TARGETS.names)
    assert max(asked) == EXPANSION_BYTES_FREE
    assert sum(asked) <= warcs.DECODED_BYTES_MAX + warcs.DECODED_TIMES_MAX * path.stat().st_size
    asked.clear()
    bundles.take_out({f"warc/{path.name}": path}, TARGETS.covers)
    assert asked == []
