"""A list of hosts stays small, however large what is known of each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import msgspec

from drumlin.coordinator.api_hosts import NOTES_SHOWN_BYTES_MAX, HostFace
from drumlin.coordinator.intake import Intake
from drumlin.coordinator.messages_hosts import HostsQuery
from drumlin.coordinator.routing import Call
from drumlin.engines.blocking import drive
from drumlin.protocol import HostNote
from drumlin.robots import Decision
from tests.harness.dispatching import Asker, batch_of, dispatcher, release

RULES_BYTES = 512 * 1024


def test_a_list_shows_robots_rules_up_to_a_bound_and_one_host_always() -> None:
    count = 2 * NOTES_SHOWN_BYTES_MAX // RULES_BYTES
    made = dispatcher([f"http://r{number}.test/" for number in range(count)], delay_s=0.0)
    rules = Decision(b"#" * RULES_BYTES, False, False, 100.0, False, "rules")
    note = msgspec.msgpack.encode(HostNote({"http": msgspec.msgpack.encode(rules)}))
    leases = Asker(made).work(0.0, hosts=100)
    made.results(batch_of([], [release(lease, note=note) for lease in leases]), 1.0, "n0")
    face = HostFace(made.made, cast(Intake, None))
    call = cast(Call, SimpleNamespace(now=2.0, parameters={"host": leases[-1].host}))
    views = drive(face.hosts(call, HostsQuery(limit=1_000))).hosts
    assert len(views) == len(leases) == count
    assert 0 < sum(bool(view.robots) for view in views) < count
    assert drive(face.host(call, None)).robots
