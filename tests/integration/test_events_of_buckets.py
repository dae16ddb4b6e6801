"""Events of what is in a bucket: the manifest says what is owed, so no lost disk and no absent broker loses any."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.events import coordinating
from drumlin.events.coordinating import CoordinatorEvents, events_left
from drumlin.events.schema import Fetch, Links, Page
from drumlin.store.objects.compaction import due
from drumlin.store.objects.files import ObjectFiles
from drumlin.store.objects.manifest import entry_of
from drumlin.store.objects.mark import begin_mark, keep_mark, read_mark, untold_segments
from tests.harness.memory_broker import MemoryBroker, MemoryOptions, decode
from tests.harness.s3 import S3Server, s3_server
from tests.integration.test_object_upkeep import PAGES, publish

WAIT_S_MAX = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3") / "data") as running:
        yield running


@pytest.fixture
def store(server: S3Server, request: pytest.FixtureRequest) -> ObjectFiles:
    made = server.store(request.node.name.replace("_", "-")[:60])
    begin_mark(made)
    return made


def events_of(store: ObjectFiles, folder: Path, broker: MemoryBroker, bytes_max: int = 10**9) -> CoordinatorEvents:
    options = MemoryOptions.at(broker, bytes_max)
    return CoordinatorEvents(options, folder, crawl="c", coordinator="k", files=store)


def run(events: CoordinatorEvents) -> None:
    """Let a coordinator tell until everything is told, which it does before it ends."""

    async def telling() -> None:
        async with asyncio.timeout(WAIT_S_MAX), events.running():
            await asyncio.sleep(0)

    asyncio.run(telling())


def pages_told(broker: MemoryBroker) -> list[str]:
    return [one.url for one in map(decode, broker.taken) if isinstance(one, Page)]


def test_what_anybody_has_stored_is_told_once_and_leaves_nothing_on_the_disk(
    store: ObjectFiles, tmp_path: Path
) -> None:
    urls = [url for node in ("a", "b") for url in publish(store, tmp_path, node)]
    broker, folder = MemoryBroker(), tmp_path / "k"
    assert events_left(folder, store)
    run(events_of(store, folder, broker))
    assert pages_told(broker) == urls
    assert len([one for one in map(decode, broker.taken) if isinstance(one, Fetch)]) == 2 * PAGES
    assert [one for one in map(decode, broker.taken) if isinstance(one, Links)]
    assert read_mark(store) == store.manifest.contents().number
    assert not events_left(folder, store)
    assert not [path for path in folder.rglob("*") if path.suffix in (".parquet", ".events", ".partial")]
    run(events_of(store, folder, broker))
    assert pages_told(broker) == urls


def test_a_coordinator_that_is_lost_with_its_disk_is_followed_by_another(store: ObjectFiles, tmp_path: Path) -> None:
    """It has brought two segments to its disk, and the broker has taken nothing yet."""
    urls = [url for node in ("a", "b") for url in publish(store, tmp_path, node)]
    broker = MemoryBroker()
    broker.up = False
    lost = events_of(store, tmp_path / "lost", broker)
    lost._feed_on(1.0, mine=True)
    assert list((tmp_path / "lost").rglob("*.parquet"))
    assert lost.standing().waiting_bytes >= 0
    shutil.rmtree(tmp_path / "lost")
    lost._lock.free()
    broker.up = True
    run(events_of(store, tmp_path / "next", broker))
    assert sorted(set(pages_told(broker))) == sorted(urls)


def test_a_killed_coordinator_goes_on_with_what_it_had_brought(store: ObjectFiles, tmp_path: Path) -> None:
    urls = publish(store, tmp_path, "a")
    broker = MemoryBroker()
    killed = events_of(store, tmp_path / "k", broker)
    killed._feed_on(1.0, mine=True)
    killed._lock.free()
    run(events_of(store, tmp_path / "k", broker))
    assert pages_told(broker) == urls


def test_of_two_coordinators_only_the_one_whose_turn_it_is_tells(
    store: ObjectFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publish(store, tmp_path, "a")
    broker = MemoryBroker()

    async def never() -> bool:
        return False

    monkeypatch.setattr(coordinating, "CLOSE_WAIT_S", 1.0)
    options = MemoryOptions.at(broker)
    idle = CoordinatorEvents(options, tmp_path / "k", crawl="c", coordinator="k", files=store, turn=never)
    run(idle)
    assert broker.taken == []
    assert "events of 1 segments and logs wait" in caplog.text
    monkeypatch.undo()
    run(events_of(store, tmp_path / "k", broker))
    assert len(pages_told(broker)) == PAGES


def test_a_coordinator_that_ends_waits_for_the_turn_of_one_that_is_dead(store: ObjectFiles, tmp_path: Path) -> None:
    urls = publish(store, tmp_path, "a")
    broker, asked = MemoryBroker(), iter((False, False, False, True))

    async def later() -> bool:
        return next(asked, True)

    options = MemoryOptions.at(broker)
    run(CoordinatorEvents(options, tmp_path / "k", crawl="c", coordinator="k", files=store, turn=later))
    assert pages_told(broker) == urls


def test_while_too_much_waits_no_work_is_given_out_also_by_those_who_do_not_tell(
    store: ObjectFiles, tmp_path: Path
) -> None:
    broker = MemoryBroker()
    broker.up = False
    both = [events_of(store, tmp_path / "k", broker, bytes_max=1) for _ in range(2)]
    assert not any(one.full for one in both)
    publish(store, tmp_path, "a")
    for number, one in enumerate(both):
        one._feed_on(1.0, mine=number == 0)
        one._sender.step(1.0)
    assert all(one.full for one in both)
    for one in both:
        one._lock.free()


def test_segments_whose_events_are_untold_are_not_joined(store: ObjectFiles, tmp_path: Path) -> None:
    for node in ("a", "b"):
        publish(store, tmp_path, node)
    untold = untold_segments(store)
    assert untold == {"a-1f-00001", "b-1f-00001"}
    assert due(store.manifest.contents(), everything=True, kept=untold) == []
    run(events_of(store, tmp_path / "k", MemoryBroker()))
    assert untold_segments(store) == set()
    assert len(due(store.manifest.contents(), everything=True, kept=untold_segments(store))) == 2


def test_what_was_removed_before_it_was_told_is_not_told(store: ObjectFiles, tmp_path: Path) -> None:
    publish(store, tmp_path, "a")
    urls = publish(store, tmp_path, "b")
    gone = [item.path for item in store.manifest.contents().items() if item.segment == "a-1f-00001"]
    assert store.manifest.change(lambda _: entry_of("removal", 1.0, remove=gone))
    broker = MemoryBroker()
    run(events_of(store, tmp_path / "k", broker))
    assert pages_told(broker) == urls
    assert read_mark(store) == 3


def test_a_store_whose_events_nobody_wants_has_no_mark_and_is_told_from_when_somebody_does(
    server: S3Server, tmp_path: Path
) -> None:
    store = server.store("wanted-later")
    publish(store, tmp_path, "a")
    assert read_mark(store) is None
    assert untold_segments(store) == set()
    broker = MemoryBroker()
    events = events_of(store, tmp_path / "k", broker)
    urls = publish(store, tmp_path, "b")
    run(events)
    assert pages_told(broker) == urls


def test_a_mark_that_was_moved_back_only_has_events_told_again(store: ObjectFiles, tmp_path: Path) -> None:
    """A coordinator that had lost its turn, and did not know it, may do so."""
    urls = [url for node in ("a", "b") for url in publish(store, tmp_path, node)]
    broker = MemoryBroker()
    events = events_of(store, tmp_path / "k", broker)
    run(events)
    keep_mark(store, 1)
    other = events_of(store, tmp_path / "other", broker)
    urls += publish(store, tmp_path, "c")
    run(other)
    assert set(pages_told(broker)) == set(urls)
    assert read_mark(store) == 3
    keep_mark(store, 0)
    other._feed_on(1.0, mine=False)
    assert other.standing().waiting_bytes > 0
