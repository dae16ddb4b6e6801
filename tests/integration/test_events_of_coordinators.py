"""A coordinator tells Kafka of bundles, nodes and leases, and gives out nothing while too much waits for the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from drumlin.events.coordinating import FOLDER, CoordinatorEvents
from drumlin.events.kafka import Kafka
from drumlin.events.schema import Crawl, Fetch, Lease, Node, Page
from drumlin.logs import Event
from drumlin.protocol import CrawlState
from tests.harness.bundles import BundlingNode
from tests.harness.coordinators import RemoteNode, RunningCoordinator
from tests.harness.memory_broker import MemoryBroker, MemoryOptions, decode


def drained(events: CoordinatorEvents) -> None:
    async def run() -> None:
        async with events.running():
            pass

    asyncio.run(run())


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[RunningCoordinator]:
    with RunningCoordinator(store=tmp_path / "store", controlled=True) as running:
        yield running


def test_a_coordinator_tells_of_bundles_nodes_and_leases(coordinator: RunningCoordinator, tmp_path: Path) -> None:
    store, broker = tmp_path / "store", MemoryBroker()
    events = CoordinatorEvents(MemoryOptions.at(broker), store, crawl="c", coordinator="k")
    coordinator.app.use_kafka(Kafka(events, None))
    coordinator.dispatcher.happened.listener = events.happened
    node = BundlingNode(RemoteNode(coordinator, "n1"), tmp_path / "n1")
    segment, members = node.bundle("http://a.test/1", "http://a.test/2", "http://b.test/")
    node.put(segment, members)
    node.put(segment, members)
    events.happened(Event.CRAWL_STATE, CrawlState.PAUSED)
    drained(events)
    told = [decode(message) for message in broker.taken]
    rows = pq.read_table(store / "tables" / "pages").to_pylist()
    assert sorted(one.id for one in told if isinstance(one, Page)) == sorted(row["record_id"] for row in rows)
    assert len([one for one in told if isinstance(one, Fetch)]) == 3
    assert {(one.host, one.node, one.urls) for one in told if isinstance(one, Lease)} >= {
        ("a.test", "n1", 2),
        ("b.test", "n1", 1),
    }
    assert ("n1", "joined") in [(one.node, one.event) for one in told if isinstance(one, Node)]
    assert [one.detail for one in told if isinstance(one, Crawl)] == ["paused"]
    assert len({one.id for one in told if isinstance(one, Lease | Node | Crawl)}) == 4


def test_nothing_is_owed_of_a_bundle_that_is_refused(coordinator: RunningCoordinator, tmp_path: Path) -> None:
    store = tmp_path / "store"
    events = CoordinatorEvents(MemoryOptions.at(MemoryBroker()), store, crawl="c", coordinator="k")
    coordinator.app.use_kafka(Kafka(events, None))
    node = BundlingNode(RemoteNode(coordinator, "n1"), tmp_path / "n1")
    segment, members = node.bundle("http://a.test/1")
    [warc] = [name for name in members if name.endswith(".warc.gz")]
    (store / "warc").mkdir(parents=True, exist_ok=True)
    (store / warc).write_bytes(b"somebody else's")
    assert node.put(segment, members).code == "exists"
    assert not list((store / FOLDER).glob(f"*/{segment}*"))
    (store / warc).unlink()
    assert node.put(segment, members).status == 200
    assert list((store / FOLDER).glob(f"*/{segment}*"))


def test_a_coordinator_whose_events_may_wait_no_more_gives_out_nothing(
    coordinator: RunningCoordinator, tmp_path: Path
) -> None:
    broker = MemoryBroker()
    broker.up = False
    events = CoordinatorEvents(MemoryOptions.at(broker, bytes_max=1), tmp_path / "store", crawl="c", coordinator="k")
    coordinator.app.use_kafka(Kafka(events, None))
    node = RemoteNode(coordinator, "n1")
    coordinator.enqueue("http://a.test/1")
    events.happened(Event.JOINED, "n1")
    events._sender.step(1.0)
    assert events.full
    assert node.take() == []
    broker.up = True
    for second in range(2, 10):
        events._sender.step(float(second))
    assert not events.standing().full
    assert [one["url"] for one in node.take()] == ["http://a.test/1"]
