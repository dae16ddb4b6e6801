"""Who owes events of what, through recoveries and pages of workers of others, without a broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

from drumlin.api.explaining.why import BROKER_AWAY, EVENTS_FULL, SEEDS_LOST, brokers_away, seeds_lost
from drumlin.api.intake.keeping import Keeper
from drumlin.events.coordinating import FOLDER, CoordinatorEvents
from drumlin.events.kafka import Kafka
from drumlin.events.owed import Cursor, keep_cursor, owed_names, read_cursor
from drumlin.events.schema import Page
from drumlin.events.sender import Sender
from drumlin.logs import Event
from drumlin.node.keeping.archive import CrawlPaths
from drumlin.node.keeping.recovery import dead_spools, recover
from drumlin.protocol import EventsBeat, NodeRecord, NodeStatus
from drumlin.store.spools import EVENTS_SUFFIX, SpoolLock
from tests.harness.agents import Around, agent_in
from tests.harness.memory_broker import MemoryBroker, MemoryOptions, decode
from tests.unit.test_keeping import NOW, Settlements, die, told
from tests.unit.test_node_recovery import NODE, arrival, opened, pipeline, taking


def test_a_recovered_segment_is_owed_from_its_beginning(tmp_path: Path) -> None:
    paths = CrawlPaths(tmp_path, events=True)
    archive = opened(paths)
    archive.store([arrival(0), arrival(1)], 0.0)
    spool = paths.spool(NODE)
    [name] = owed_names(spool)
    keep_cursor(spool, name, Cursor(pages=1, fetches=1))
    assert recover(paths, NODE, pipeline(), taking([]))
    assert read_cursor(spool, name) == Cursor()
    broker = MemoryBroker()
    sender = Sender(spool, paths.tables, broker.producer, crawl="c", bytes_max=10**9)
    for second in range(10):
        sender.step(float(second))
    assert {one.url for one in map(decode, broker.taken) if isinstance(one, Page)} == {
        "https://example.com/0",
        "https://example.com/1",
    }
    assert sender.drained


def test_a_dead_node_that_owes_events_is_found_only_by_those_who_produce(tmp_path: Path) -> None:
    spool = CrawlPaths(tmp_path).spool("dead")
    spool.mkdir(parents=True)
    (spool / ("s" + EVENTS_SUFFIX)).write_bytes(b"{}")
    assert list(dead_spools(CrawlPaths(tmp_path, events=True), but="me")) == ["dead"]
    assert list(dead_spools(CrawlPaths(tmp_path), but="me")) == []


def test_without_events_nothing_is_owed(tmp_path: Path) -> None:
    paths = CrawlPaths(tmp_path)
    opened(paths).store([arrival(0)], 0.0)
    assert owed_names(paths.spool(NODE)) == []


def test_what_a_coordinator_keeps_for_workers_is_owed_before_it_can_be_seen(tmp_path: Path) -> None:
    owed: list[tuple[str, bool]] = []

    def owe(name: str) -> None:
        owed.append((name, (tmp_path / "tables" / "pages" / f"{name}.parquet").exists()))

    async def story() -> None:
        settlements, first, second = Settlements(), Keeper(tmp_path, software="t", info={}), None
        first.owe = owe
        tellings = told(1)
        await first.keep(tellings, settlements.settling(tellings), NOW)
        await first.step(settlements.take, NOW, ending=True)
        tellings = told(2)
        await first.keep(tellings, settlements.settling(tellings), NOW)
        die(first)
        second = Keeper(tmp_path, software="t", info={})
        second.owe = owe
        await second.finish_found(settlements.take)

    asyncio.run(story())
    stored = {path.stem for path in (tmp_path / "tables" / "pages").glob("*.parquet")}
    assert {name for name, _ in owed} == stored
    assert len(stored) == 2
    assert not any(seen for _, seen in owed)


def test_what_a_dead_coordinator_owed_is_told_by_another(tmp_path: Path) -> None:
    broker = MemoryBroker()
    dead = CoordinatorEvents(MemoryOptions.at(broker), tmp_path, crawl="c", coordinator="k1")
    other = CoordinatorEvents(MemoryOptions.at(broker), tmp_path, crawl="c", coordinator="k2")
    assert len(list((tmp_path / FOLDER).iterdir())) == 2
    dead.happened(Event.JOINED, "n1")
    dead._lock.free()

    async def until_told() -> None:
        async with asyncio.timeout(30), other.running():
            while not broker.taken:
                await asyncio.sleep(0.01)

    asyncio.run(until_told())
    assert [decode(message).node for message in broker.taken] == ["n1"]


def test_an_agent_whose_events_may_wait_no_more_asks_for_nothing_and_says_so(tmp_path: Path) -> None:
    around = Around()
    agent = agent_in(around, tmp_path)
    spool = tmp_path / "owes"
    assert SpoolLock.take(spool) is not None
    (spool / "told-1.events").write_bytes(b"{}")
    (spool / "told-1.told").write_bytes(b"\x01\x00\x00\x00torn")
    sender = Sender(
        spool, tmp_path / "tables", MemoryBroker().producer, crawl="c", bytes_max=1, growing=lambda: "told-1"
    )
    now = around.clock()
    sender.step(now)
    assert sender.full
    agent.produce(sender)
    beat = agent.heartbeat(now).events
    assert beat is not None
    assert beat.full
    agent.turn(now)
    assert around.begun == []


def test_why_names_a_broker_that_is_away_and_a_topic_that_cannot_be_read() -> None:
    def node(name: str, events: EventsBeat | None, status: NodeStatus = NodeStatus.ACTIVE) -> NodeRecord:
        return NodeRecord(name, "", 0.0, status, 0.0, 0.0, 0, 0.0, {}, events=events)

    class Seeding:
        taken = bad = 0
        lost = "unknown topic"

    away, full = EventsBeat(2**20, 65.0, False, "refused"), EventsBeat(2**32, 600.0, True)
    nodes = [node("n1", away), node("n2", full), node("n3", None), node("n4", away, NodeStatus.INACTIVE)]
    kafka = Kafka(None, Seeding())
    reasons = brokers_away(nodes, kafka) + seeds_lost(kafka)
    assert [reason.code for reason in reasons] == [BROKER_AWAY, EVENTS_FULL, SEEDS_LOST]
    assert "Kafka has taken no events of node n1 for 1 min 5 s (refused)" in reasons[0].message
    assert "--events-max" in reasons[1].message
    assert brokers_away(nodes[2:], None) + seeds_lost(None) == []
