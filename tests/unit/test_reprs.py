"""What a debugger shows of the main objects: who they are and how they stand, in one line, and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumlin.config.processes import ClientConfig
from drumlin.contact.hosts import HostWork
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.engines.rocksdb.engine import RocksEngine
from drumlin.fetch import Fetcher, FetchLimits
from drumlin.fetch.guard import Guard
from drumlin.model import Lease
from drumlin.node.calling.client import CoordinatorClient
from drumlin.node.calling.parties import Coordinators, Credentials
from drumlin.node.membership import NodeOptions
from drumlin.protocol import NodeRecord, NodeStatus, Register, Registered, WorkLease
from drumlin.serving.service import Listen, ServiceOptions
from tests.harness.dispatching import dispatcher

SECRET = "5ec2e7"  # what must not be shown


def client() -> CoordinatorClient:
    fetcher = Fetcher(FetchLimits(1.0, 1.0, 1, 0, 1), user_agent="test", guard=Guard(allow_private=True))
    return CoordinatorClient(
        fetcher, Coordinators(["https://c:8700"]), chance=lambda: 0.5, access=Credentials(SECRET, SECRET)
    )


def record() -> NodeRecord:
    return NodeRecord(
        "n0", "10.0.0.1", 7.0, NodeStatus.ACTIVE, 0.0, 0.0, 12, 1.0, {}, leases=3, instance=SECRET, boot=2
    )


@pytest.mark.parametrize(
    ("thing", "shown"),
    [
        (
            Lease(1, "a.test", "n0:r.1.2", "n0", 20.0, 1.0, None, [], b""),
            "<Lease n0:r.1.2 of a.test: until 20.000, 0 URLs>",
        ),
        (WorkLease(f"n0:r.1.2.{SECRET}", "a.test", 20.0, 1.0, []), "<WorkLease n0:r.1.2 of a.test: 20 s, 0 URLs>"),
        (record(), "<NodeRecord n0 active: seen at 7.000, boot 2, 3 hosts, 12 pages>"),
        (Register(0.0, "n0", instance=SECRET, boot=2, recovering=True), "<Register n0: boot 2, recovering>"),
        (
            Registered("n0", "ok", 2.0, "", {}, "", [], [], token=SECRET, key=SECRET, crawl_id="3fa9"),
            "<Registered n0 in crawl 3fa9: settings 0>",
        ),
        (Credentials(SECRET, SECRET, b""), "Credentials(join_token=True, token=True, key=False)"),
        (client(), "<CoordinatorClient of https://c:8700: answered, 0 calls to repeat>"),
        (
            NodeOptions("n0", "https://c:8700", Path("store"), 1, False, token=SECRET),
            "<NodeOptions n0 of https://c:8700, store>",
        ),
        (
            ServiceOptions(f"redis://:{SECRET}@r/x", Listen("h", 1)),
            "<ServiceOptions http://h:1: engine redis://***@r/x, store None>",
        ),
        (ClientConfig(coordinator="https://c:8700", token=SECRET), "<ClientConfig of https://c:8700, with a token>"),
        (
            HostWork(WorkLease(f"n0:r.1.2.{SECRET}", "a.test", 20.0, 1.0, []), 5.0, 6.0, 1.0, "drumlin"),
            "<HostWork a.test until 25.000: 0 URLs, 0 under way, 0 to settle, next contact at 6.000>",
        ),
        (MemoryEngine(2), "<MemoryEngine: 2 shards, 0 URLs>"),
    ],
)
def test_a_thing_says_what_it_is_without_secrets(thing: object, shown: str) -> None:
    assert repr(thing) == shown


def test_an_engine_on_disk_says_where_it_is(tmp_path: Path) -> None:
    engine = RocksEngine(str(tmp_path / "frontier"), shard_count=2)
    assert repr(engine) == f"<RocksEngine {tmp_path / 'frontier'}: 2 shards>"


def test_a_dispatcher_and_its_registry_say_how_the_crawl_stands() -> None:
    made = dispatcher()
    made.register("n0", 1.0)
    standing = f"follows: crawl {made.made.crawl_id} running, 0 pages, 0 pending, 1 nodes>"
    assert repr(made.made) == f"<Dispatcher {made.made.name} {standing}"
    assert repr(made.made.nodes) == "<NodeRegistry 1 active; 0 nodes in the fleet>"
