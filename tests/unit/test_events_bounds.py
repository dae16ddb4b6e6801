"""No website, node or writer to the seed topic can stop events or a coordinator by the size of something."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drumlin.config.kafka import parse_kafka
from drumlin.events import seeds
from drumlin.events.broker import BrokerConsumer, BrokerProducer, polled
from drumlin.events.dead import DEAD_NAME
from drumlin.events.options import SeedsOptions
from drumlin.events.owed import Cursor, owe, owed_names
from drumlin.events.rows import batches
from drumlin.events.schema import EVENT_BYTES_MAX, RESULTS, Crawl, Links, Message, Page, message_of, row_id, smaller
from drumlin.events.seeds import SEEDS_PER_MESSAGE_MAX, TOO_MANY, read_message
from drumlin.model import LinkSet, NewURLs
from drumlin.serving.seeding import Seeding
from drumlin.store import SegmentWriter
from tests.harness.memory_broker import decode
from tests.unit.store_captures import make_capture
from tests.unit.test_events import CRAWL, NAME, Place, capture_of

HUGE = 8 * 2**20


def page_event(**more: Any) -> Page:
    return Page(**{"id": "i", "crawl": "c", "v": 1, "url": "http://a/", "host": "a", "fetch_time_us": 1, **more})


@pytest.mark.parametrize(
    "long",
    [
        {"fetch_redirect": "x" * HUGE},
        {"redirects": ["http://a.example/"] * 200_000},
        {"redirects": ["x" * HUGE]},
        {"host": "h" * 600_000},
        {"canonical": "\x01" * 400_000, "found_on": "\U0001f600" * 400_000, "redirects": ["é" * 500_000] * 2},
    ],
)
def test_an_event_of_any_row_is_small_enough_and_says_that_it_was_cut(long: dict[str, Any]) -> None:
    message = message_of(RESULTS, page_event(**long))
    assert len(message.value) + len(message.key.encode()) <= EVENT_BYTES_MAX
    told = decode(message)
    assert told.cut
    assert (told.id, told.url) == ("i", "http://a/")


def test_an_event_that_fits_is_not_cut() -> None:
    event = page_event(title="t" * 100_000)
    assert decode(message_of(RESULTS, event)) == event
    assert not event.cut


def test_the_id_of_a_row_is_bounded() -> None:
    assert len(row_id("x" * HUGE, "u", 1, "fetched")) <= 200


def test_a_link_with_a_huge_relation_is_told(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, NAME)
    hrefs: list[str | None] = [f"http://b.example/{number}" for number in range(3)]
    found = LinkSet(hrefs, ["a"] * 3, ["", "r" * 1_400_000, ""], [""] * 3)
    writer.add([make_capture("http://a.example/", links=found)])
    writer.finish()
    messages = [message for batch in batches(tmp_path, NAME, Cursor(), CRAWL) for message in batch.messages]
    assert max(len(message.value) for message in messages) <= EVENT_BYTES_MAX
    links = [one for one in map(decode, messages) if isinstance(one, Links)]
    assert [target for one in links for target in one.targets] == hrefs
    assert [one.targets for one in links if one.cut] == [hrefs[1:2]]


# A client that may send less


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_the_client_may_not_send_is_sent_in_smaller_messages(place: Place) -> None:
    owe(place.spool, NAME)
    writer = SegmentWriter(place.tables, NAME, node="n1")
    hrefs = [f"http://b.example/{number}" for number in range(500)]
    writer.add([capture_of("http://a.example/many", links=hrefs)])
    writer.finish()
    place.broker.bytes_max = 2_000
    sender = place.sender()
    place.run(sender)
    links = sorted(place.told(Links), key=lambda one: one.first)
    assert [target for one in links for target in one.targets] == hrefs
    assert [one.first for one in links] == [sum(len(other.targets) for other in links[:n]) for n in range(len(links))]
    assert sender.drained
    assert sender.standing(place.now).too_large == 0


def test_only_what_cannot_be_made_smaller_is_put_aside_and_counted(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.segment(4)
    place.broker.bytes_max = 330
    sender = place.sender()
    place.run(sender)
    standing = sender.standing(place.now)
    assert standing.too_large > 0
    assert standing.produced == len(place.broker.taken) > 0
    assert owed_names(place.spool) == []
    assert "put aside" in caplog.text
    aside = [json.loads(line) for line in (place.spool / DEAD_NAME).read_text().splitlines()]
    assert len(aside) == standing.too_large
    assert all("message.max.bytes" in one["why"] and one["event"] for one in aside)


def test_a_message_that_is_no_event_cannot_be_made_smaller() -> None:
    assert smaller(Message(RESULTS, "h", b"{}")) == []


def test_what_the_broker_finds_too_large_holds_up_nothing_that_was_sent_with_it(place: Place) -> None:
    """A broker refuses a whole batch; a client that only waited would wait for ever."""
    place.segment(40)
    sizes = [len(message.value) for message in _all_messages(place)]
    place.broker.takes_max = max(sizes)
    sender = place.sender()
    place.run(sender, 30.0)
    assert sender.drained
    assert sender.standing(place.now).too_large == 0
    assert len({one.id for one in place.told(Page)}) == 40
    # Nothing that the broker takes was cut.
    assert sorted(len(message.value) for message in place.broker.taken) == sorted(sizes)


def test_an_event_that_no_broker_takes_is_put_aside_and_the_rest_goes_on(place: Place) -> None:
    place.segment(40)
    place.broker.takes_max = 330
    sender = place.sender()
    place.run(sender, 30.0)
    assert sender.drained
    aside = [json.loads(line) for line in (place.spool / DEAD_NAME).read_text().splitlines()]
    assert len(aside) == sender.standing(place.now).too_large > 0
    assert len(place.broker.taken) > 0
    ids = {json.loads(one["event"])["id"] for one in aside} | {one.id for one in place.told(Page)}
    assert ids >= {f"urn:uuid:{number}" for number in range(40)}


def _all_messages(place: Place) -> list[Message]:
    return [message for batch in batches(place.tables, NAME, Cursor(), CRAWL) for message in batch.messages]


def test_the_real_client_names_what_is_too_large_and_takes_the_rest() -> None:
    pytest.importorskip("confluent_kafka")
    producer = BrokerProducer(parse_kafka("kafka://127.0.0.1:1/x"), {"message.max.bytes": "2000"})
    large = Message(RESULTS, "h", b"x" * 3_000)
    producer.send([Message(RESULTS, "h", b"a"), large, Message(RESULTS, "h", b"b")])
    assert producer.too_large == [large]
    assert producer.failed == 0
    assert producer.unconfirmed >= 2  # with what the client has to say itself


def test_what_happens_to_a_crawl_is_bounded_too() -> None:
    told = Crawl(id="i", crawl="c", v=1, event="e", time_us=1, coordinator="k", detail="d" * HUGE)
    assert len(message_of("work", told, "crawl").value) <= EVENT_BYTES_MAX


# Seeds


class Value:
    """A message of a topic."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def value(self) -> bytes:
        return self._value


def test_a_message_names_so_many_seeds_and_the_others_are_bad() -> None:
    found, bad = read_message(b"http://a/\n" * 99_000)
    assert (len(found), bad) == (SEEDS_PER_MESSAGE_MAX, {TOO_MANY: 99_000 - SEEDS_PER_MESSAGE_MAX})


def test_so_many_bytes_are_taken_at_once() -> None:
    waiting, waits = iter([Value(b"x" * 1_000_000)] * 500), []

    def poll(wait_s: float) -> Value | None:
        waits.append(wait_s)
        return next(waiting, None)

    assert len(list(polled(poll, 500, 4_000_000, 0.5))) == 4
    assert waits == [0.5, 0.0, 0.0, 0.0]
    assert len(list(polled(poll, 3, 10**9, 0.5))) == 3
    assert list(polled(lambda _: None, 3, 10**9, 0.5)) == []


class Topic(SeedsOptions, frozen=True):
    """A topic in memory, which is its own consumer."""

    messages: list[Value] = []
    story: list[tuple[str, int]] = []
    error: str = ""
    assigned: bool = True

    def consumer(self, crawl: str) -> Any:
        return self

    def take(self, count: int, bytes_max: int, wait_s: float) -> list[Value]:
        taken, self.messages[:] = self.messages[:count], self.messages[count:]
        return taken

    def commit(self, taken: Sequence[Any]) -> None:
        self.story.append(("committed", len(taken)))

    def answers(self) -> bool:
        return not self.story

    def close(self) -> None:
        pass


class Frontier:
    """Notes what it is offered, as a dispatcher that leads."""

    crawl_id = "c"

    def __init__(self, story: list[tuple[str, int]]) -> None:
        self._story = story

    async def enqueue(self, offered: Sequence[NewURLs], now: float) -> None:
        self._story.append(("enqueued", sum(len(new.urls) for new in offered)))


def test_seeds_enter_the_frontier_and_are_committed_in_parts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(seeds, "SEEDS_AT_ONCE", 20)
    story: list[tuple[str, int]] = []
    lines = [b"".join(b"http://a.example/%d/%d\n" % (one, line) for line in range(10)) for one in range(5)]
    topic = Topic("", None, None, [Value(b"no address"), *map(Value, lines)], story)

    async def now() -> float:
        return 1.0

    frontier: Any = Frontier(story)
    seeding = Seeding(topic, frontier, now, lambda: None)
    asyncio.run(seeding._take())
    asyncio.run(seeding._close())
    parts = [("enqueued", 20), ("committed", 3), ("enqueued", 20), ("committed", 2), ("enqueued", 10), ("committed", 1)]
    assert story == parts
    assert (seeding.taken, seeding.bad) == (50, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "passed over in the seed topic, by what is wrong: 1 no web address"
    ]


@pytest.mark.parametrize("answers", [True, False])
def test_a_quiet_topic_is_idle_only_if_its_broker_answers(answers: bool) -> None:
    async def now() -> float:
        return 1.0

    story = [] if answers else [("nothing", 0)]
    frontier: Any = Frontier(story)
    seeding = Seeding(Topic("", None, 0.0, [], story), frontier, now, lambda: None)
    asyncio.run(seeding._take())
    assert seeding.waits is not answers


def test_what_a_broker_repeats_of_a_password_is_told_to_nobody() -> None:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install '.[kafka]'")

    class Told:
        def str(self) -> str:
            return "no such user with S3CR3T-PASS, says PLAIN (after 3ms in state AUTH_REQ)"

    secrets = {"sasl.password": "S3CR3T-PASS", "sasl.mechanism": "PLAIN"}
    producer = BrokerProducer(parse_kafka("kafka://127.0.0.1:1/x"), secrets)
    producer._on_error(Told())
    assert producer.error == "no such user with ***, says PLAIN"
    consumer = BrokerConsumer(parse_kafka("kafka://127.0.0.1:1/x"), secrets, "group")
    consumer._on_error(Told())
    assert consumer.error == producer.error
    consumer.close()
