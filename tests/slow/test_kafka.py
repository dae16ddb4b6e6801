"""Kafka with a real broker: what was consumed is what the tables have, whatever is killed; seeds from a topic are in
the frontier exactly once."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from drumlin.events.owed import owed_names
from drumlin.events.schema import LINKS, NODES, RESULTS, WORK, Fetch, Lease, Page, Removal, row_id
from drumlin.fleet.layout import ProcessRole
from tests.harness.crawls import DRUMLIN, Crawl, Web, benchmark_web, kill_process, wait_until
from tests.harness.fleet import drumlin, fleet, kill, needs_redis
from tests.harness.kafka import KafkaBroker, kafka_broker

BROKER_AWAY_S = 60.0
CRAWL_S_MAX = 420.0
STALL_S_MAX = 180.0
PREFIX = "told"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


def compare(broker: KafkaBroker, prefix: str, store: Path) -> Counter[str]:
    """Check that events and rows are the same by their ids; returns how many events came twice, by kind."""
    pages, fetches, links = (pq.read_table(store / "tables" / name) for name in ("pages", "fetches", "links"))
    results = [event for _, event in broker.events(prefix, RESULTS)]
    twice: Counter[str] = Counter()
    for kind, table in ((Page, pages), (Fetch, fetches)):
        told = [event for event in results if isinstance(event, kind)]
        by_id = {event.id: event for event in told}
        assert all(by_id[event.id] == event for event in told), "an event that came again says something else"
        assert by_id.keys() == set(_ids(table, "fetched" if kind is Page else ""))
        assert len(by_id) == table.num_rows
        twice[kind.__name__] = len(told) - len(by_id)
    told_links = [event for _, event in broker.events(prefix, LINKS)]
    each = {(one.id, one.first + place): target for one in told_links for place, target in enumerate(one.targets)}
    assert Counter(each.values()) == Counter(links["target"].to_pylist())
    twice["Links"] = sum(len(one.targets) for one in told_links) - len(each)
    return twice


def _ids(table: Any, outcome: str) -> list[str]:
    """The ids of rows, as docs/reference/events.md says."""
    urls, records = table["url"].to_pylist(), table["record_id"].to_pylist()
    times = table["fetch_time"].cast("int64").to_pylist()
    outcomes = [outcome] * len(urls) if outcome else table["outcome"].to_pylist()
    return [row_id(*row) for row in zip(records, urls, times, outcomes, strict=True)]


def _asked_for(web: Web, crawl: Crawl, pages: int) -> None:
    def reached() -> bool:
        assert crawl.running, f"the crawl ended by itself: {crawl.errors}"
        return bool(web.accounts()["pages_distinct"] >= pages)

    wait_until(reached, STALL_S_MAX, f"{pages} pages asked for")


def _why(out: Path) -> str:
    told = subprocess.run([DRUMLIN, "why", "--out", str(out)], capture_output=True, text=True, timeout=60, check=False)
    return told.stdout


def _metric(out: Path, name: str) -> float:
    """A figure that the crawl's coordinator tells of itself."""
    socket = (out / "run" / "address").read_text()
    asked = ["curl", "-s", "--unix-socket", socket, "http://drumlin/metrics"]
    page = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(name + " "))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_events_equal_tables_through_kills_and_a_broker_that_is_away(broker: KafkaBroker, tmp_path: Path) -> None:
    with benchmark_web(tmp_path, 20, 60, "--latency-ms", "20") as web:
        flags = ("-i", str(web.seeds), "--nodes", "2", "--delay", "1s", "--events", broker.address(PREFIX))
        crawl = Crawl(tmp_path / "crawl", *flags)
        try:
            crawl.start()
            _asked_for(web, crawl, 200)
            kill_process(crawl.nodes()[0])
            _asked_for(web, crawl, 500)
            broker.kill()
            away = time.monotonic()
            kill_process(crawl.nodes()[-1])
            _asked_for(web, crawl, 700)
            crawl.process.kill()
            for node in crawl.nodes():
                kill_process(node)
            crawl.process.wait()
            crawl.start()
            wait_until(lambda: "Kafka has taken no events" in _why(crawl.out), STALL_S_MAX, "why names it", 1.0)
            for name in ("drumlin_events_broker_away_seconds", "drumlin_events_waiting_bytes"):
                wait_until(lambda name=name: _metric(crawl.out, name) > 0, STALL_S_MAX, name, 1.0)  # type: ignore[misc]
            wait_until(lambda: time.monotonic() >= away + BROKER_AWAY_S, BROKER_AWAY_S + 1, "a minute", 0.5)
            broker.start()
            assert crawl.wait(CRAWL_S_MAX) == 0, crawl.errors
        finally:
            crawl.end()
    assert crawl.report()["pages"] == 1_200
    assert not [folder for folder in (crawl.out / "nodes").iterdir() if owed_names(folder)]
    twice = compare(broker, PREFIX, crawl.out)
    nodes = Counter(event.event for _, event in broker.events(PREFIX, NODES))
    assert nodes["joined"] >= 2
    work = [event for _, event in broker.events(PREFIX, WORK)]
    leases = [event for event in work if isinstance(event, Lease)]
    assert {event.host for event in leases} == {event.host for event in _fetches(broker) if event.outcome == "fetched"}
    print("twice:", dict(twice), "nodes:", dict(nodes), "leases:", len(leases))


def _fetches(broker: KafkaBroker) -> list[Fetch]:
    return [event for _, event in broker.events(PREFIX, RESULTS) if isinstance(event, Fetch)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_crawl_that_ends_without_its_broker_sends_its_events_at_the_next_start(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    with benchmark_web(tmp_path, 5, 20) as web:
        flags = ("-i", str(web.seeds), "--nodes", "1", "--events", broker.address("later"))
        crawl = Crawl(tmp_path / "crawl", *flags)
        broker.kill()
        crawl.run(CRAWL_S_MAX)
        assert [folder for folder in (crawl.out / "nodes").iterdir() if owed_names(folder)]
        broker.start()
        Crawl(tmp_path / "crawl", *flags).run(CRAWL_S_MAX)
    assert compare(broker, "later", crawl.out).total() == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_full_spill_stops_fetching_until_the_broker_is_back(broker: KafkaBroker, tmp_path: Path) -> None:
    with benchmark_web(tmp_path, 20, 60, "--latency-ms", "20") as web:
        flags = ("-i", str(web.seeds), "--nodes", "1", "--delay", "500ms", "--events", broker.address("full"))
        crawl = Crawl(tmp_path / "crawl", *flags, "--events-max", "1KB")
        broker.kill()
        try:
            crawl.start()
            wait_until(lambda: "--events-max" in _why(crawl.out), STALL_S_MAX, "why names it", 1.0)
            stopped = web.accounts()["pages_distinct"]
            assert stopped < web.pages
            broker.start()
            assert crawl.wait(CRAWL_S_MAX) == 0, crawl.errors
        finally:
            crawl.end()
    assert crawl.report()["pages"] == web.pages
    print("stopped at", stopped, "twice:", compare(broker, "full", crawl.out))


@needs_redis
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_fleet_tells_of_everything_that_any_of_its_processes_stores(broker: KafkaBroker, tmp_path: Path) -> None:
    """One node has no store, so coordinators tell of its pages. A coordinator and a node are killed."""
    with benchmark_web(tmp_path, 20, 60, "--latency-ms", "20") as web:
        broker.produce("fleet-seeds", web.seeds.read_bytes().split())
        flags = ("--nodes", "1", "--masters", "1", "--delay", "1s", "--events", broker.address("fleet"))
        seeds = ("--seeds-from", broker.address("fleet-seeds"), "--seeds-idle", "10s", "--scope", "any")
        with fleet(tmp_path, *flags, *seeds) as one:
            one.start_node("lonely", *one.record.coordinators, spool=tmp_path / "lonely")
            wait_until(lambda: web.accounts()["pages_distinct"] >= 300, STALL_S_MAX, "300 pages")
            kill(one.of(ProcessRole.COORDINATOR)[0])
            wait_until(lambda: web.accounts()["pages_distinct"] >= 600, STALL_S_MAX, "600 pages")
            kill(one.of(ProcessRole.NODE)[0])
            one.wait_until_finished(CRAWL_S_MAX)
            drumlin(tmp_path, "fleet", "down", "--out", str(one.root))
            twice = compare(broker, "fleet", one.store)
            pages = pq.read_table(one.store / "tables" / "pages")
    assert len(set(pages["url"].to_pylist())) == web.pages
    assert "lonely" in pages["node"].to_pylist()
    print("fleet, twice:", dict(twice))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_seeds_from_a_topic_are_in_the_frontier_exactly_once_through_kills(broker: KafkaBroker, tmp_path: Path) -> None:
    with benchmark_web(tmp_path, 20, 60, "--latency-ms", "20") as web:
        urls = _pages_of(web, tmp_path)
        flags = ("--nodes", "1", "--scope", "page", "--depth", "0", "--delay", "200ms", "--seeds-idle", "8s")
        crawl = Crawl(tmp_path / "crawl", *flags, "--seeds-from", broker.address("seeds"))
        plain, documents = urls[: len(urls) // 2], urls[len(urls) // 2 :]
        values = [url.encode() for url in plain]
        values += [json.dumps({"url": url, "priority": place % 10}).encode() for place, url in enumerate(documents)]
        values += [b"no address", b'{"url": 7}', b"\xff"]
        broker.produce("seeds", values[: len(values) // 2])
        try:
            crawl.start()
            for share in (0.2, 0.35):
                _asked_for(web, crawl, int(share * len(urls)))
                crawl.process.kill()
                crawl.process.wait()
                broker.produce("seeds", values[len(values) // 2 :] if share == 0.2 else values[:100])
                crawl.start()
            assert crawl.wait(CRAWL_S_MAX) == 0, crawl.errors
        finally:
            crawl.end()
    stored = pq.read_table(crawl.out / "tables" / "fetches").to_pylist()
    fetched = [row["url"] for row in stored if row["outcome"] != "robots"]
    assert sorted(fetched) == sorted(urls)
    assert crawl.report()["pages"] == len(urls)


def _pages_of(web: Web, folder: Path) -> list[str]:
    """The URLs of a small web, found by a crawl of it."""
    report = Crawl(folder / "first", "-i", str(web.seeds), "--nodes", "1").run(CRAWL_S_MAX)
    urls = pq.read_table(folder / "first" / "tables" / "pages")["url"].to_pylist()
    assert report["pages"] == len(set(urls)) == len(urls)
    listed: list[str] = urls
    return listed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_removal_on_request_is_told(broker: KafkaBroker, tmp_path: Path) -> None:
    out, events = tmp_path / "crawl", ("--events", broker.address("removed"))
    with benchmark_web(tmp_path, 3, 5) as web:
        Crawl(out, "-i", str(web.seeds), "--nodes", "1", *events).run(CRAWL_S_MAX)
        host = web.seeds.read_text().split()[0].split("/")[2]
    command = [DRUMLIN, "remove", "--host", host, "--yes", "--out", str(out), *events, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STALL_S_MAX, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["pages"] == 5
    told = [(key, event) for key, event in broker.events("removed", RESULTS) if isinstance(event, Removal)]
    assert [(key, event.what, event.name) for key, event in told] == [(host, "host", host)]
