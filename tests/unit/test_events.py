"""Events for Kafka without a broker: what is told of rows, where a sender goes on, and what stops it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from drumlin.config import ProcessConfig
from drumlin.config.kafka import parse_kafka
from drumlin.errors import ConfigError
from drumlin.events import broker, rows
from drumlin.events.broker import check_installed, read_properties, without_values
from drumlin.events.figures import broker_away
from drumlin.events.options import SeedsOptions
from drumlin.events.owed import LOG_SUFFIX, Cursor, cursor_path, keep_cursor, owe, owed_names, read_cursor, take_over
from drumlin.events.reference import page
from drumlin.events.rows import batches
from drumlin.events.schema import EVENT_BYTES_MAX, EVENTS, RESULTS, Fetch, Links, Message, Page, row_id
from drumlin.events.seeds import (
    BAD_PRIORITY,
    EMPTY,
    MESSAGE_BYTES_MAX,
    NO_ADDRESS,
    TOO_LARGE,
    UNREADABLE,
    Seed,
    read_message,
)
from drumlin.events.sender import AGAIN_AFTER_S, AWAY_AFTER_S, LOOK_EVERY_S, Sender
from drumlin.events.told import ToldLog
from drumlin.model import Capture, LinkSet
from drumlin.protocol import EventsBeat
from drumlin.store import FetchRecord, SegmentWriter
from drumlin.store.spools import JOURNAL_SUFFIX
from tests.harness.memory_broker import MemoryBroker, decode
from tests.unit.store_captures import make_capture

ROOT = Path(__file__).parents[2]
CRAWL = "c1"
NAME = "n1-1a-00001"


def capture_of(url: str, links: Sequence[str]) -> Capture:
    count = len(links)
    return make_capture(url, links=LinkSet(list(links), ["a"] * count, [""] * count, ["text"] * count))


class Place:
    """A store with a node's spool in it."""

    def __init__(self, folder: Path) -> None:
        self.tables, self.spool = folder / "tables", folder / "nodes" / "n1"
        self.spool.mkdir(parents=True)
        self.broker = MemoryBroker()
        self.now = 100.0

    def sender(self, **more: Any) -> Sender:
        return Sender(self.spool, self.tables, self.broker.producer, crawl=CRAWL, **{"bytes_max": 10**9, **more})

    def segment(self, pages: int, *, name: str = NAME, finished: bool = True) -> SegmentWriter:
        owe(self.spool, name)
        writer = SegmentWriter(self.tables, name, node="n1")
        self.add(writer, range(pages))
        journal = self.spool / (name + JOURNAL_SUFFIX)
        if finished:
            writer.finish()
        else:
            journal.write_bytes(b"")
            writer.show()
        return writer

    def add(self, writer: SegmentWriter, numbers: Sequence[int]) -> None:
        for number in numbers:
            url = f"http://a.example/{number}"
            capture = capture_of(url, links=[f"http://b.example/{number}/{link}" for link in range(number % 4)])
            capture.fetched, capture.record_id = 1_700_000_000.0 + number, f"urn:uuid:{number}"
            fetch = FetchRecord(url, "a.example", capture.fetched, "fetched", 200, record_id=capture.record_id)
            writer.add([capture], [fetch, FetchRecord(url + "?", "a.example", 5.0 + number, "failed", kind="timeout")])

    def run(self, sender: Sender, seconds: float = 5.0) -> None:
        end = self.now + seconds
        while self.now < end:
            sender.step(self.now)
            self.now += 0.05

    def told(self, kind: type[Any]) -> list[Any]:
        decoded = [decode(message) for message in self.broker.taken]
        return [one for one in decoded if isinstance(one, kind)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_every_row_of_a_segment_is_told_once_with_its_id(place: Place) -> None:
    place.segment(20)
    place.run(place.sender())
    pages = pq.read_table(place.tables / "pages" / f"{NAME}.parquet").to_pylist()
    assert [one.id for one in place.told(Page)] == [row["record_id"] for row in pages]
    assert [one.url for one in place.told(Page)] == [row["url"] for row in pages]
    fetches = place.told(Fetch)
    assert len(fetches) == 40
    assert sorted(one.id for one in fetches if one.outcome == "fetched") == sorted(row["record_id"] for row in pages)
    links = pq.read_table(place.tables / "links" / f"{NAME}.parquet").to_pylist()
    assert [target for one in place.told(Links) for target in one.targets] == [row["target"] for row in links]
    assert {one.id for one in place.told(Links)} <= {row["record_id"] for row in pages}
    assert {message.key for message in place.broker.taken} == {"a.example"}
    assert owed_names(place.spool) == []


def test_a_row_without_a_record_has_an_id_that_sql_can_make(place: Place) -> None:
    duckdb = pytest.importorskip("duckdb")
    place.segment(3)
    place.run(place.sender())
    made_id = "left(sha256(url || ' ' || epoch_us(fetch_time) || ' ' || outcome), 32)"
    assert made_id in page()
    unstored = duckdb.connect().read_parquet(f"{place.tables}/fetches/*.parquet").filter("record_id IS NULL")
    made = {row[0] for row in unstored.project(made_id).fetchall()}
    assert made == {one.id for one in place.told(Fetch) if one.outcome == "failed"}
    assert row_id(None, "u", 1, "failed") != row_id(None, "u", 1, "denied")


def test_a_segment_that_grows_is_told_further_and_kept_until_it_is_complete(place: Place) -> None:
    writer, sender = place.segment(5, finished=False), place.sender()
    place.run(sender)
    assert len(place.told(Page)) == 5
    assert owed_names(place.spool) == [NAME]
    place.add(writer, range(5, 8))
    writer.finish()
    (place.spool / (NAME + JOURNAL_SUFFIX)).unlink()
    place.run(sender)
    assert [one.url for one in place.told(Page)] == [f"http://a.example/{number}" for number in range(8)]
    assert owed_names(place.spool) == []


def test_another_process_goes_on_at_the_cursor(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ROWS_AT_ONCE", 7)
    place.segment(50)
    killed = place.sender()
    while len(place.broker.taken) < 20:
        killed.step(place.now)
        place.now += 0.05
    before = len(place.broker.taken)
    assert 0 < read_cursor(place.spool, NAME).pages < 50
    place.run(place.sender())
    ids = [one.id for one in place.told(Page)]
    assert set(ids) == {f"urn:uuid:{number}" for number in range(50)}
    # What was on its way when the process was killed is told twice; that is one window at most.
    assert len(ids) - 50 <= 7 <= before


def test_while_the_broker_is_away_everything_waits_and_is_told_later(place: Place) -> None:
    place.segment(10)
    place.broker.up = False
    sender = place.sender()
    place.run(sender, AWAY_AFTER_S + 3)
    standing = sender.standing(place.now)
    assert standing.away_s >= AWAY_AFTER_S
    assert standing.error == "connection refused"
    assert standing.waiting_bytes > 0
    assert standing.lag_s > 0
    assert place.broker.taken == []
    place.broker.up = True
    place.run(sender)
    assert len(place.told(Page)) == 10
    assert sender.standing(place.now).away_s == 0
    assert sender.drained


def test_a_spill_beyond_its_bound_is_full_until_the_broker_takes_it(place: Place) -> None:
    place.broker.up = False
    sender = place.sender(bytes_max=20_000)
    place.segment(1)
    place.run(sender)
    assert not sender.standing(place.now).full
    for number in range(2, 8):
        place.segment(20, name=f"n1-1a-0000{number}")
    place.run(sender)
    assert sender.standing(place.now).full
    place.broker.up = True
    place.run(sender, 20)
    assert not sender.standing(place.now).full
    assert len(place.told(Page)) == 121


def test_what_the_broker_refuses_is_produced_again(place: Place) -> None:
    place.segment(4)
    place.broker.refusing = True
    sender = place.sender()
    place.run(sender, AGAIN_AFTER_S + 1)
    assert sender.refused > 0
    assert sender.standing(place.now).error == "not authorized"
    assert read_cursor(place.spool, NAME) == Cursor()
    place.broker.refusing = False
    place.run(sender, AGAIN_AFTER_S + 3)
    assert len(place.told(Page)) == 4
    assert sender.drained


def test_a_segment_that_is_made_anew_meanwhile_is_told_from_its_beginning(place: Place) -> None:
    place.segment(6)
    sender = place.sender()
    sender.step(place.now)
    owe(place.spool, NAME)
    keep_cursor(place.spool, NAME, Cursor(links=1))
    place.run(sender)
    assert [one.url for one in place.told(Page)].count("http://a.example/0") == 2


def test_a_cursor_of_a_segment_that_never_came_to_be_is_forgotten(place: Place) -> None:
    owe(place.spool, NAME)
    place.sender()
    assert owed_names(place.spool) == []


def test_a_cursor_before_its_bundle_waits_for_it(place: Place) -> None:
    sender = place.sender()
    owe(place.spool, NAME)
    place.run(sender)
    assert owed_names(place.spool) == [NAME]
    place.segment(2)
    place.run(sender)
    assert len(place.told(Page)) == 2
    assert owed_names(place.spool) == []


def test_what_a_coordinator_tells_survives_it(place: Place) -> None:
    names = iter(("told-1", "told-2"))
    log = ToldLog(place.spool, lambda: next(names))
    log.append([Message(RESULTS, "h", b"{}")] * 3)
    sender = place.sender(growing=lambda: log.name)
    place.run(sender)
    assert len(place.broker.taken) == 3
    log.append([Message(RESULTS, "h", b"{}")])
    # It is killed here, in the middle of a message.
    with (place.spool / ("told-1" + LOG_SUFFIX)).open("ab") as file:
        file.write(b"\x09\x00\x00\x00torn")
    other = place.spool.parent / "n2"
    other.mkdir()
    take_over(place.spool, other)
    place.spool = other
    place.run(place.sender())
    assert len(place.broker.taken) == 4
    assert list(other.iterdir()) == []


def test_a_damaged_cursor_means_that_all_is_owed(place: Place) -> None:
    place.segment(2)
    cursor_path(place.spool, NAME).write_bytes(b"{pages")
    place.run(place.sender())
    assert len(place.told(Page)) == 2


def test_links_of_a_page_are_split_into_events_that_a_broker_takes(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, NAME)
    many = [f"http://b.example/{number:04d}/" + "x" * 1_900 for number in range(1_500)]
    captures = [capture_of("http://a.example/many", links=many), capture_of("http://a.example/one", links=many[:1])]
    captures[0].fetched, captures[1].fetched = 1.0, 2.0
    captures[1].links = LinkSet([many[0]], ["a"], [""], ["t" * 2_000_000])
    writer.add(captures)
    writer.finish()
    messages = [message for batch in batches(tmp_path, NAME, Cursor(), CRAWL) for message in batch.messages]
    assert max(len(message.value) for message in messages) <= EVENT_BYTES_MAX
    events = [one for one in map(decode, messages) if isinstance(one, Links)]
    assert [target for one in events[:-1] for target in one.targets] == many
    place = 0
    for one in events[:-1]:
        assert one.first == place
        place += len(one.targets)


def test_a_sender_with_nothing_to_do_sleeps(place: Place) -> None:
    sender = place.sender()
    sender.step(place.now)
    assert sender.due() == place.now + LOOK_EVERY_S


@pytest.mark.parametrize(
    ("value", "seeds", "bad"),
    [
        (b"http://a.example/", ["http://a.example/"], 0),
        (b"http://a.example\n# a remark\n\nHTTP://B.example/x\n", ["http://a.example/", "http://b.example/x"], 0),
        (b'{"url": "http://a.example/", "more": 1}', ["http://a.example/"], 0),
        (b'{"url": "mailto:x@a.example"}', [], 1),
        (b'{"url": "http://a.example/", "priority": 10}', [], 1),
        (b'{"url"', [], 1),
        (b"\xff\xfe", [], 1),
        (b"http://a.example/\nno address\n", ["http://a.example/"], 1),
        (b"", [], 1),
        (None, [], 1),
    ],
)
def test_a_message_names_seeds_or_is_counted_as_bad(value: bytes | None, seeds: list[str], bad: int) -> None:
    found, wrong = read_message(value)
    assert ([seed.url for seed in found], wrong.total()) == (seeds, bad)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"url": "http://a.example/", "priority": 10}', BAD_PRIORITY),
        (b'{"url": "http://a.example/", "priority": "high"}', BAD_PRIORITY),
        (b'{"priority": 1}', UNREADABLE),
        (b"\xff\xfe", UNREADABLE),
        (b'{"url": "mailto:x@a.example"}', NO_ADDRESS),
        (b"", EMPTY),
        (b"x" * (MESSAGE_BYTES_MAX + 1), TOO_LARGE),
        (b'{"url": "http://a.example/", "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", UNREADABLE),
    ],
)
def test_what_is_wrong_with_a_message_is_told(value: bytes, reason: str) -> None:
    assert read_message(value)[1] == {reason: 1}


def test_an_idle_time_without_a_topic_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"and there is none. Give --seeds-from too"):
        SeedsOptions.of(ProcessConfig(seeds_idle_s=60.0))


def test_a_document_may_give_its_url_a_priority() -> None:
    assert read_message(b'{"url": "http://a.example/", "priority": 9}')[0] == [Seed("http://a.example/", 9)]


@pytest.mark.parametrize(
    "text", ["kafka://h/p", "h:1/p", "kafka://h:1", "kafka://h:1/", "kafka://h:1/a/b", "kafka://u:pw@h:1/p", "kafka://"]
)
def test_an_address_that_is_none_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_kafka(text)
    assert "pw" not in str(refused.value)


def test_an_address_may_name_several_brokers() -> None:
    assert parse_kafka("kafka://a:1,[::1]:2/crawl").topic("links") == "crawl.links"
    assert parse_kafka("kafka://a:1,[::1]:2/crawl").brokers == "a:1,[::1]:2"


def test_properties_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "kafka"
    file.write_text("# ours\n\nsasl.password = a=b \nsecurity.protocol=SASL_SSL\n")
    assert read_properties(file) == {"sasl.password": "a=b", "security.protocol": "SASL_SSL"}
    assert read_properties(None) == {}


@pytest.mark.parametrize("line", ["sasl.password hunter2", "acks=0", "enable.auto.commit=true", "bootstrap.servers=x"])
def test_a_wrong_file_is_refused_without_its_values(tmp_path: Path, line: str) -> None:
    file = tmp_path / "kafka"
    file.write_text(line)
    with pytest.raises(ConfigError) as refused:
        read_properties(file)
    assert "hunter2" not in str(refused.value)
    with pytest.raises(ConfigError, match="Cannot read"):
        read_properties(tmp_path / "missing")


def test_what_the_client_says_is_told_without_secrets() -> None:
    said = without_values('Invalid value "hunter2" for "sasl.password"', {"sasl.password": "hunter2", "x": "on"})
    assert said == 'Invalid value "***" for "sasl.password"'


def test_a_client_that_is_not_installed_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "LIBRARY", "no_such_library")
    check_installed(None)
    with pytest.raises(ConfigError) as refused:
        check_installed("kafka://a:1/p")
    assert "'.[kafka]'" in refused.value.hint


def test_the_schema_has_a_name_of_its_own_for_each_event() -> None:
    tags = [kind.__struct_config__.tag for kinds in EVENTS.values() for kind in kinds]
    assert len(tags) == len(set(tags))


def test_the_reference_page_is_current() -> None:
    assert (ROOT / "docs/reference/events.md").read_text() == page(), "run `make docs`"


def test_what_does_not_apply_is_left_out() -> None:
    stored = Page(id="i", crawl="c", v=1, url="u", host="h", fetch_time_us=1, depth=0)
    told = {"type": "page", "id": "i", "crawl": "c", "v": 1, "url": "u", "host": "h", "fetch_time_us": 1, "depth": 0}
    assert msgspec.json.decode(msgspec.json.encode(stored)) == told


def test_how_much_waits_for_the_broker_is_said_in_round_numbers() -> None:
    said = broker_away("this coordinator", EventsBeat(12_866, 12.0, False, "it does not answer"))
    assert "they wait on disk, 13 kB of tables" in said
