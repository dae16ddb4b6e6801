"""Removal on request, piece by piece: what a target covers, what tombstones refuse, and files without the removed."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from drumlin.api.intake import kept
from drumlin.config import CrawlConfig
from drumlin.coordinator.taking.findings import Findings
from drumlin.disk import SCRATCH_PREFIX, AppendFile
from drumlin.engines.blocking import open_blocking
from drumlin.errors import BusyError, ConfigError, StorageError
from drumlin.events.schema import Removal
from drumlin.fleet.layout import FleetPaths
from drumlin.lifecycle.book import HOLD, DirectoryBook, Order
from drumlin.lifecycle.holds import make_hold
from drumlin.lifecycle.removal import rows, warcs
from drumlin.lifecycle.removal.counts import Counts
from drumlin.lifecycle.removal.directory import Directory
from drumlin.lifecycle.removal.names import free_stem
from drumlin.lifecycle.removal.plan import Plan, carry_out, check_none_pending, finish
from drumlin.lifecycle.removal.targets import Target, Targets, What, parse_target
from drumlin.lifecycle.removal.texts import lines_without, scrubbed
from drumlin.lifecycle.removal.tombstones import TABLE, Tombstones, put
from drumlin.local.removing import JOURNALS, Place, check_may_go, tell
from drumlin.model import Duplicate, NewURLs
from drumlin.node.keeping import journal
from drumlin.node.keeping.archive import BLACK_BOX
from drumlin.node.keeping.bundles import REFUSED_FOLDER
from drumlin.node.keeping.journal import Answer, FoundJournal, Journal, JournalBatch
from drumlin.protocol import KnownPage
from drumlin.store import WarcWriter, read_capture, surt
from drumlin.store.files import DirectoryFiles
from drumlin.store.ledger import Ledger, LedgerLine
from drumlin.store.ledger import Moved as Elsewhere
from drumlin.store.moves import Moved
from drumlin.store.names import node_of_warc
from drumlin.store.spools import SPOOLS
from drumlin.store.warc.cdxj import parse_line
from tests.harness.memory_broker import MemoryBroker, MemoryOptions, decode
from tests.harness.warcs import read_captures
from tests.unit.store_captures import FETCHED, HTML, make_capture
from tests.unit.test_node_journal import contact, entry

HOST = Target(What.HOST, "a.test")
DOMAIN = Target(What.DOMAIN, "example.org")
URL = Target(What.URL, "http://b.test/?b=2&a=1")


def targets(*named: Target) -> Targets:
    return Targets(named or (HOST, DOMAIN, URL))


# What is removed


@pytest.mark.parametrize(
    ("url", "covered"),
    [
        ("http://a.test/", True),
        ("https://a.test/x", True),
        ("http://a.test:8080/", False),
        ("http://www.a.test/", False),
        ("http://example.org/", True),
        ("http://www.example.org:81/x", True),
        ("http://notexample.org/", False),
        ("http://b.test/?a=1&b=2", True),
        ("http://b.test/", False),
        ("", False),
        (None, False),
        ("mailto:somebody@a.test", False),
        ("<http://a.test/x>", True),
        ("HTTP://A.test/x", True),
        ("https://a.test", True),
        ("http:", False),
        ("http://A.test/", True),
        ("http://a.test./x", True),
        ("http://a.test:80/x", True),
        ("http://u:p@a.test/", True),
        (" https://a.test/x y", True),
        ("http://A.test/" + 9_000 * "x", True),
        ("http://a.test:81/x", False),
        ("http://B.test/?a=1&b=2", True),
        ("http://b.test/?a=1&b=2#f", True),
        ("http://b.test/y/../?a=1&b=2", True),
        ("http://b.test/y/%2e%2e/?a=1&b=2", True),
        ("http://b.test/y/?a=1&b=2", False),
        ("http://u:p@b.test/", False),
        ("\x01ht\ttp://A.test/", True),
        ("http://[a/", False),
        ("http://[/", False),
        ("http://]a[/", False),
    ],
)
def test_a_target_covers_its_own_urls_in_every_spelling(url: str | None, covered: bool) -> None:
    assert targets().covers(url) is covered


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"see a.test.", True),
        (b'"a.test"', True),
        (b"http://a.test/x", True),
        (b"a.test:8080", False),
        (b"www.a.test", False),
        (b"a.testing", False),
        (b"a.test.example", False),
        (b"www.example.org", True),
        (b"example.org:81", True),
        (b"example.org.uk", False),
        (b"an-example.org", False),
        (b"<http://b.test/?b=2&a=1>", True),
        (b"http://b.test/?a=1&b=2", True),
        (b"http://b.test/?b=2&a=12", False),
    ],
)
def test_a_text_names_a_target_only_by_its_whole_name(text: bytes, named: bool) -> None:
    assert targets().names(text) is named


@pytest.mark.parametrize(
    ("what", "text", "name"),
    [
        (What.URL, "HTTP://B.test/%7Ex#y", "http://b.test/%7Ex"),
        (What.HOST, "A.Test.", "a.test"),
        (What.HOST, "a.test:8080", "a.test:8080"),
        (What.DOMAIN, "Example.ORG", "example.org"),
        (What.DOMAIN, "127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_target_has_one_name(what: What, text: str, name: str) -> None:
    assert parse_target(what, text) == Target(what, name)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (What.URL, "a.test"),
        (What.HOST, "http://a.test/"),
        (What.HOST, ""),
        (What.DOMAIN, "www.example.org"),
        (What.DOMAIN, "co.uk"),
    ],
)
def test_what_cannot_be_removed_is_refused(what: What, text: str) -> None:
    with pytest.raises(ConfigError):
        parse_target(what, text)


# Tombstones


def test_tombstones_refuse_what_was_removed_and_name_nobody() -> None:
    engine = open_blocking("memory")
    assert not engine.run(Tombstones.read(engine.engine))
    stones = engine.run(put(engine.engine, targets().each, b"k" * 32, 1_000.0))
    again = engine.run(put(engine.engine, [HOST], b"another key", 2_000.0))
    offered = [
        NewURLs("a.test", ["http://a.test/"]),
        NewURLs("sub.example.org", ["http://sub.example.org/"]),
        NewURLs("b.test", ["http://b.test/?a=1&b=2", "http://b.test/kept"], found_on="http://a.test/"),
        NewURLs("c.test", ["http://c.test/"], found_on="http://b.test/"),
    ]
    for one in (stones, again):
        assert bool(one)
        assert one.refuse(offered) == [NewURLs("b.test", ["http://b.test/kept"]), offered[3]]
        for spelled in (
            "<http://a.test/x>",
            "HTTP://A.test/x",
            "https://a.test",
            "http://u:p@B.test:80/y/../?b=2&a=1#f",
        ):
            assert one.covers(spelled), spelled
        assert not one.covers("http://B.test/")
        assert one.without(["http://a.test/1", "http://b.test/"]) == ["http://b.test/"]
        stone = one.of("http://a.test/any")
        assert stone is not None
        assert stone.at == 1_000.0
    kept_entries = engine.get_entries(TABLE)
    assert len(kept_entries) == 3
    assert not any(name in repr(kept_entries) for name in ("a.test", "example", "b.test"))


def test_links_to_the_removed_do_not_make_a_batch_foreign() -> None:
    """Without its seed the host is out of scope, but when a node has fetched its results, it was in scope."""
    engine = open_blocking("memory")
    engine.run(put(engine.engine, [HOST], b"k" * 32, 1.0))
    seeds = ["http://a.test/", "http://c.test/"]
    findings = Findings(engine.engine, CrawlConfig(scope="host"), seeds, random.Random(1))
    engine.run(findings.open())
    assert findings.seeds == ["http://c.test/"]
    assert [findings.allows(f"http://{name}.test/1") for name in "acd"] == [False, True, False]
    assert [findings._is_own(f"http://{name}.test/1") for name in "acd"] == [True, True, False]
    assert findings.allowed([NewURLs("a.test", ["http://a.test/1"])]) == []


# WARC files


def warc_of(folder: Path, *urls: str, **changes: Any) -> Path:
    writer = WarcWriter(folder, "n1", software="drumlin/test", info=changes.pop("info", {}), now=FETCHED)
    captures = [make_capture(url, HTML + url.encode(), **changes) for url in urls]
    writer.settle(writer.store(captures), set())
    writer.close()
    [path] = folder.glob("*.warc.gz")
    return path


def test_a_warc_file_without_a_host_has_the_others_at_new_places(tmp_path: Path) -> None:
    urls = ["http://c.test/1", "http://a.test/1", "http://c.test/2", "http://a.test/2", "http://c.test/3"]
    path = warc_of(tmp_path, *urls)
    before = {one.url: one.warc_offset for one in read_captures(path)}
    found = warcs.look(path, targets(HOST).covers, targets(HOST).names)
    assert (found.counts.captures, found.counts.warc_records, found.counts.kept_warc_records) == (2, 4, 0)
    warcs.write(path, tmp_path / "new.warc.gz", found.parts)
    moved = found.moved("new.warc.gz")
    after = {one.url: one.warc_offset for one in read_captures(tmp_path / "new.warc.gz")}
    assert after == {url: moved.offset(before[url]) for url in urls if "a.test" not in url}
    assert read_capture(tmp_path / "new.warc.gz", moved.offset(before["http://c.test/3"])).url == "http://c.test/3"


def test_seeds_in_a_warcinfo_record_go_and_other_records_that_name_a_host_are_counted(tmp_path: Path) -> None:
    record = msgspec.json.encode({"seeds": ["http://a.test/", "http://c.test/"]}).decode()
    path = warc_of(tmp_path, "http://c.test/?a.test", info={"drumlin-crawl": record})
    found = warcs.look(path, targets(HOST).covers, targets(HOST).names)
    assert found.changes
    assert found.counts == Counts(kept_warc_records=2)
    warcs.write(path, tmp_path / "new.warc.gz", found.parts)
    again = warcs.look(tmp_path / "new.warc.gz", targets(HOST).covers, targets(HOST).names)
    assert not again.changes
    assert len(list(read_captures(tmp_path / "new.warc.gz"))) == 1


def test_a_damaged_warc_file_is_not_written_anew(tmp_path: Path) -> None:
    path = warc_of(tmp_path, "http://a.test/")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(StorageError, match="is damaged"):
        warcs.look(path, targets().covers, targets().names)
    assert warcs.look(path, targets().covers, targets().names, growing=True).counts.captures == 0


@pytest.mark.parametrize(
    "url", ["http://c.test/?q={a}", "http://c.test/%7Bid%7D", "http://c.test/?{%22url%22:%22x%22}"]
)
def test_an_index_is_read_whatever_braces_the_urls_in_it_have(tmp_path: Path, url: str) -> None:
    path = warc_of(tmp_path, url, "http://a.test/?q={a}", "http://c.test/last")
    found = warcs.look(path, targets(HOST).covers, targets(HOST).names)
    moves = {path.name: found.moved("new.warc.gz")}
    index = path.with_name(path.name.replace(".warc.gz", ".cdxj"))
    kept, removed = warcs.index_without(iter(index.read_bytes().splitlines(keepends=True)), targets(HOST).covers, moves)
    assert removed == 1
    assert {(one.url, one.filename) for one in map(parse_line, kept)} == {
        (url, "new.warc.gz"),
        ("http://c.test/last", "new.warc.gz"),
    }
    assert [line.split(b" ")[0] for line in kept] == sorted(surt(one).encode() for one in (url, "http://c.test/last"))


def test_a_new_warc_file_is_still_known_as_its_nodes() -> None:
    taken = {"drumlin-20260101000000000-00001-n-1"}
    first = free_stem("drumlin-20251231235959998-00001-n-1", taken.__contains__)
    assert first == "drumlin-20251231235959999-00001-n-1"
    assert free_stem(first, taken.__contains__) == "drumlin-20260101000000001-00001-n-1"
    assert node_of_warc(first) == "n-1"


# Rows and texts


def test_rows_of_a_host_go_and_rows_that_name_it_are_counted() -> None:
    table = pa.table(
        {
            "url": ["http://a.test/", "http://c.test/", "http://c.test/2", "http://c.test/3"],
            "text": ["x", "see a.test", "see www.a.test", None],
            "redirects": pa.array([[], [], [], ["http://a.test/old"]], pa.list_(pa.string())),
            "warc_filename": ["w", "w", "v", None],
        }
    )
    found = rows.look([table], targets(HOST).covers, {"v": Moved("v2", [0], [0])}, targets(HOST))
    assert found == rows.RowsLook(removed=1, mentions=2, moved=1)


def test_lines_and_values_that_name_a_host_go() -> None:
    names = targets(HOST).names
    assert list(lines_without([b"one a.test\n", b"two\n", b"three b.test\n"], names)) == [b"two\n", b"three b.test\n"]
    value = {"seeds": ["http://a.test/", "c"], "top": [{"host": "a.test", "n": 1}], "a.test": 1, "s": "by a.test"}
    cleaned, removed = scrubbed({**value, "runs": [{"changed": ["a.test", "x"], "n": 2}]}, names)
    assert cleaned == {"seeds": ["c"], "top": [], "s": "(removed on request)", "runs": [{"changed": ["x"], "n": 2}]}
    assert removed == 5


# Journals


def test_a_journal_keeps_its_answers_at_the_right_results(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "x.journal")
    writing = Journal(file)
    writing.append(JournalBatch([entry(1), entry(2), entry(3)], [contact(1), contact(2)]))
    known = [
        KnownPage(0, Duplicate("http://c.test/", 1.0, "urn")),
        KnownPage(2, Duplicate("http://c.test/", 1.0, "urn")),
    ]
    writing.answered(Answer(0, [1, 2], known, ["receipt"]))
    writing.append(JournalBatch([entry(2)]))
    writing.close()
    gone = targets(Target(What.URL, "http://a.test/2"), Target(What.HOST, "2.test"))
    found = journal.without(file.path.read_bytes(), gone, {"file.warc.gz": Moved("new.warc.gz", [0, 250], [0, -50])})
    assert (found.removed, found.mentions, found.changes) == (3, 0, True)
    file.path.write_bytes(found.content)
    left = FoundJournal(file.path)
    assert [[one.result.url[-1] for one in batch.entries] for batch in left.batches] == [["1", "3"], []]
    assert [one.warc_offset for one in left.batches[0].entries] == [100, 250]
    assert {one.warc_filename for one in left.batches[0].entries} == {"new.warc.gz"}
    assert [one.fetch.host for one in left.batches[0].contacts] == ["1.test"]
    assert (left.answers[0].rejected, [one.index for one in left.answers[0].duplicates]) == ([1], [0, 1])
    assert not journal.without(found.content, gone, {}).changes


def test_a_coordinators_journal_keeps_its_verdicts_at_the_right_results(tmp_path: Path) -> None:
    entries = [kept.Entry(one.result, one.fetch, make_capture(one.result.url)) for one in map(entry, (1, 2, 3))]
    writing = kept.KeptJournal(tmp_path / "x.kept", sync=False)
    writing.append(entries)
    writing.judged(kept.Verdict(0, [2], []))
    writing.close()
    gone = targets(Target(What.URL, "http://a.test/2"))
    found = kept.without((tmp_path / "x.kept").read_bytes(), gone, {})
    assert (found.removed, found.changes) == (1, True)
    (tmp_path / "x.kept").write_bytes(found.content)
    left = kept.FoundJournal(tmp_path / "x.kept")
    assert [one.result.url[-1] for one in left.batches[0]] == ["1", "3"]
    assert left.verdicts[0].left_out == [1]


# What happens to a directory


def test_a_plan_that_was_begun_is_ended_and_keeps_crawls_away_until_then(tmp_path: Path) -> None:
    for name in ("new.removing", "old"):
        (tmp_path / name).write_text(name)
    plan = Plan([("new.removing", "new"), ("gone.removing", "gone")], ["old"])
    (tmp_path / "removal.plan").write_bytes(msgspec.json.encode(plan))
    with pytest.raises(BusyError, match="was broken off"):
        check_none_pending(tmp_path)
    assert finish(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    check_none_pending(tmp_path)
    (tmp_path / "next.removing").write_text("next")
    carry_out(tmp_path, Plan([("next.removing", "new")]))
    assert (tmp_path / "new").read_text() == "next"


def test_a_removal_waits_until_kafka_has_been_told_and_bundles_are_stored(tmp_path: Path) -> None:
    spool = tmp_path / "nodes" / "n1"
    spool.mkdir(parents=True)
    place, files = Place("rocksdb:x", str(tmp_path)), DirectoryFiles(tmp_path)
    check_may_go(place, files, targets())
    (spool / REFUSED_FOLDER).mkdir()
    refused = (f"{REFUSED_FOLDER}/x.tar", "no coordinator would store")
    for name, said in (("x.events", "Kafka has not been told"), ("x.tar", "bundles"), refused):
        (spool / name).write_bytes(b"")
        with pytest.raises(BusyError, match=said):
            check_may_go(place, files, targets())
        (spool / name).unlink()


@pytest.mark.parametrize(
    ("hold", "refused"),
    [
        ({}, True),
        ({"host": "a.test"}, True),
        ({"host": "b.test"}, True),
        ({"host": "www.example.org"}, True),
        ({"domain": "example.org"}, True),
        ({"host": "c.test"}, False),
        ({"domain": "example.net"}, False),
    ],
)
def test_what_is_under_legal_hold_is_not_removed(tmp_path: Path, hold: dict[str, str], refused: bool) -> None:
    place, files = Place("rocksdb:x", str(tmp_path)), DirectoryFiles(tmp_path)
    made = make_hold("case", "a reason", "me", 1.0, **hold)
    DirectoryBook(tmp_path).add(lambda _: Order(1.0, "me", "me", HOLD, hold=made))
    if refused:
        with pytest.raises(ConfigError, match="legal hold"):
            check_may_go(place, files, targets())
    else:
        check_may_go(place, files, targets())


def test_a_store_whose_files_are_elsewhere_is_refused(tmp_path: Path) -> None:
    moved = Elsewhere("warc/x.warc.gz", "/cold", 1, "", 1.0)
    Ledger(tmp_path).append(LedgerLine(1.0, "warc", "x", moved=[moved]))
    with pytest.raises(ConfigError, match="were moved to /cold"):
        check_may_go(Place("rocksdb:x", str(tmp_path)), DirectoryFiles(tmp_path), targets())


def test_pages_that_killed_processes_were_at_work_on_go_whosever_they_are(tmp_path: Path) -> None:
    folders = [tmp_path / (SCRATCH_PREFIX + "1"), tmp_path / SPOOLS / "n0" / (SCRATCH_PREFIX + "2")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "pages.parquet").write_bytes(b"b.test")
    directory = Directory(tmp_path, targets(Target(What.HOST, "a.test")), JOURNALS, BLACK_BOX)
    directory.remove(dry_run=True)
    assert all(folder.exists() for folder in folders)
    directory.remove(dry_run=False)
    assert not any(folder.exists() for folder in folders)


def test_a_full_disk_is_told_by_its_folder_and_what_was_begun_takes_no_room_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = warc_of(tmp_path / "warc", "http://a.test/1", "http://c.test/1")

    def full(source: Path, target: Path, parts: object) -> None:
        target.write_bytes(b"as much as there was room for")
        # As a write to an open file says it: without a name.
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(warcs, "write", full)
    with pytest.raises(StorageError, match=f"Cannot write {tmp_path}.*: the disk is full"):
        Directory(tmp_path, targets(), JOURNALS, BLACK_BOX).remove(dry_run=False)
    assert sorted(path.parent.iterdir()) == sorted([path, path.with_name(path.name.replace(".warc.gz", ".cdxj"))])


def test_an_empty_directory_has_nothing_to_remove(tmp_path: Path) -> None:
    assert Directory(tmp_path, targets(), JOURNALS, BLACK_BOX).remove(dry_run=False) == Counts()


def test_seeds_of_a_fleet_go_in_every_spelling_and_a_file_of_somebodys_own_stays(tmp_path: Path) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("http://B.test/?b=2&a=1&utm_source=x\nHTTP://A.test\nhttp://kept.test/\nhttp://b.test/\n")
    before = seeds.read_text()
    assert Directory(tmp_path, targets(), JOURNALS, BLACK_BOX).remove(dry_run=False) == Counts()
    assert seeds.read_text() == before
    FleetPaths(tmp_path).record.touch()
    assert Directory(tmp_path, targets(), JOURNALS, BLACK_BOX).remove(dry_run=False).log_lines == 2
    assert seeds.read_text() == "http://kept.test/\nhttp://b.test/\n"


def test_kafka_is_told_what_was_removed() -> None:
    broker = MemoryBroker()
    tell(MemoryOptions.at(broker), targets(HOST, URL), "crawl", 5.0)
    told = [decode(message) for message in broker.taken]
    assert all(isinstance(one, Removal) for one in told)
    assert [(one.what, one.name, one.time_us) for one in told] == [
        ("host", "a.test", 5_000_000),
        ("url", URL.name, 5_000_000),
    ]
    assert [message.key for message in broker.taken] == ["a.test", "b.test"]
    broker.refusing = True
    with pytest.raises(StorageError, match="not authorized"):
        tell(MemoryOptions.at(broker), targets(HOST), "crawl", 5.0)
