"""A store in a bucket and events in Kafka at once, with a real server of each: what was consumed is what the tables in
the bucket have, whatever is killed and whichever disk is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.events.dead import DEAD_NAME
from drumlin.events.schema import Page
from drumlin.fleet.layout import ProcessRole
from drumlin.store.objects.mark import read_mark, untold_segments
from tests.harness.crawls import Crawl, benchmark_web, kill_process, wait_until
from tests.harness.fleet import drumlin, fleet, kill, needs_redis
from tests.harness.kafka import KafkaBroker, kafka_broker
from tests.harness.outputs import query
from tests.harness.s3 import BUCKET, S3Server, downloaded, s3_server
from tests.slow.test_kafka import CRAWL_S_MAX, STALL_S_MAX, _asked_for, _why, compare

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3") / "data") as running:
        yield running


def test_events_equal_the_tables_in_the_bucket_through_kills_of_everything(
    broker: KafkaBroker, server: S3Server, tmp_path: Path
) -> None:
    store = server.store("both")
    with benchmark_web(tmp_path, 20, 60, "--latency-ms", "20") as web:
        flags = ("-i", str(web.seeds), "--nodes", "2", "--delay", "1s", "--events", broker.address("both"))
        flags_of_store = ("--store", f"s3://{BUCKET}/both")
        crawl = Crawl(tmp_path / "crawl", *flags, *flags_of_store, environment=server.environment)
        try:
            crawl.start()
            _asked_for(web, crawl, 200)
            kill_process(crawl.nodes()[0])
            _asked_for(web, crawl, 400)
            broker.kill()
            # Whoever follows a killed node completes and uploads its segment at once.
            kill_process(crawl.nodes()[-1])
            wait_until(lambda: len(untold_segments(store)) >= 1, STALL_S_MAX, "segments whose events wait", 1.0)
            server.kill()
            crawl.process.kill()
            for node in crawl.nodes():
                kill_process(node)
            crawl.process.wait()
            server.start()
            # Of what was uploaded, this disk has nothing any more: what its coordinator had brought is gone too.
            shutil.rmtree(crawl.out / "events")
            crawl.start()
            wait_until(lambda: "Kafka has taken no events" in _why(crawl.out), STALL_S_MAX, "why names it", 1.0)
            broker.start()
            assert crawl.wait(CRAWL_S_MAX) == 0, crawl.errors
        finally:
            crawl.end()
    assert crawl.report()["pages"] == web.pages
    copy = downloaded(store, tmp_path / "copy")
    assert query(copy, "SELECT count(DISTINCT url) FROM {pages}") == [(web.pages,)]
    twice = compare(broker, "both", copy)
    assert untold_segments(store) == set()
    assert not list(crawl.out.rglob("*.parquet"))
    print("twice:", dict(twice), "mark:", read_mark(store))


def test_a_spill_in_the_bucket_that_is_full_stops_fetching(
    broker: KafkaBroker, server: S3Server, tmp_path: Path
) -> None:
    with benchmark_web(tmp_path, 30, 60, "--latency-ms", "20") as web:
        flags = ("-i", str(web.seeds), "--nodes", "1", "--delay", "3s", "--events", broker.address("stopped"))
        flags_of_store = ("--store", f"s3://{BUCKET}/stopped", "--events-max", "30KB")
        crawl = Crawl(tmp_path / "crawl", *flags, *flags_of_store, environment=server.environment)
        broker.kill()
        try:
            crawl.start()
            _asked_for(web, crawl, 30)
            # Whoever follows a killed node completes and uploads its segment at once.
            kill_process(crawl.nodes()[0])
            wait_until(lambda: bool(untold_segments(server.store("stopped"))), STALL_S_MAX, "a segment", 1.0)
            wait_until(lambda: "--events-max" in _why(crawl.out), STALL_S_MAX, "why names it", 1.0)
            stopped = web.accounts()["pages_distinct"]
            assert 0 < stopped < web.pages
            broker.start()
            assert crawl.wait(CRAWL_S_MAX) == 0, crawl.errors
        finally:
            crawl.end()
    assert crawl.report()["pages"] == web.pages
    copy = downloaded(server.store("stopped"), tmp_path / "copy")
    print("stopped at", stopped, "twice:", compare(broker, "stopped", copy))


@needs_redis
def test_a_fleet_with_a_bucket_tells_of_everything_that_any_node_has_stored(
    broker: KafkaBroker, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node has credentials, another has none. A coordinator and the node with credentials are killed."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    with benchmark_web(tmp_path, 20, 60, "--latency-ms", "20") as web:
        flags = ("-i", str(web.seeds), "--nodes", "1", "--masters", "1", "--delay", "1s")
        where = ("--store", f"s3://{BUCKET}/fleet", "--events", broker.address("buckets"))
        with fleet(tmp_path, *flags, *where) as one:
            one.start_node("lonely", *one.record.coordinators, spool=tmp_path / "lonely")
            wait_until(lambda: web.accounts()["pages_distinct"] >= 300, STALL_S_MAX, "300 pages")
            kill(one.of(ProcessRole.COORDINATOR)[0])
            wait_until(lambda: web.accounts()["pages_distinct"] >= 600, STALL_S_MAX, "600 pages")
            kill(one.of(ProcessRole.NODE)[0])
            one.wait_until_finished(CRAWL_S_MAX)
            drumlin(tmp_path, "fleet", "down", "--out", str(one.root))
            copy = downloaded(server.store("fleet"), tmp_path / "copy")
            twice = compare(broker, "buckets", copy)
    assert query(copy, "SELECT count(DISTINCT url) FROM {pages}") == [(web.pages,)]
    assert "lonely" in [node for (node,) in query(copy, "SELECT DISTINCT node FROM {pages}")]
    assert untold_segments(server.store("fleet")) == set()
    print("fleet, twice:", dict(twice))


@pytest.mark.parametrize("limit", [1_200, 450])
def test_a_topic_that_takes_less_than_events_have_holds_up_nothing(
    broker: KafkaBroker, tmp_path: Path, limit: int
) -> None:
    """The broker refuses by its own limit what the client was allowed to send, and all that came in the same batch. By
    the lower limit, some events cannot be cut to what it takes."""
    prefix = f"small{limit}"
    for topic in ("results", "links"):
        broker.make_topic(f"{prefix}.{topic}", {"max.message.bytes": str(limit)})
    with benchmark_web(tmp_path, 5, 40) as web:
        flags = ("-i", str(web.seeds), "--nodes", "1", "--events", broker.address(prefix))
        crawl = Crawl(tmp_path / "crawl", *flags)
        crawl.run(CRAWL_S_MAX)
    told = {event.id for _, event in broker.events(prefix, "results") if isinstance(event, Page)}
    aside = [line for path in crawl.out.rglob(DEAD_NAME) for line in path.read_text().splitlines()]
    print("told", len(told), "put aside", len(aside))
    assert len(told) > 0 or limit < 1_000
    assert bool(aside) == (limit < 1_000)
    assert len(told) + sum('\\"type\\":\\"page\\"' in line for line in aside) >= web.pages
