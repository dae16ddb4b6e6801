"""When a crawl on one machine has waited long enough for hosts that are out of reach."""

from __future__ import annotations

from typing import Any

from drumlin.coordinator.patience import Patience, first_in_backoff
from drumlin.coordinator.totals import Totals
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.model import NewURLs, Settlement


def totals(**figures: Any) -> Totals:
    names = ("queued", "scheduled", "leased", "done", "dead", "hosts_ready", "hosts_waiting", "hosts_leased")
    zeros: dict[str, Any] = dict.fromkeys(names, 0) | {"next_event": 0.0, "counters": {}}
    return Totals(**(zeros | figures))


def test_it_is_out_when_nothing_has_come_of_a_crawl_for_so_long() -> None:
    patience = Patience(600.0)
    stuck = totals(queued=5, hosts_waiting=1, hosts_in_backoff=1)
    assert [patience.is_out(stuck, at) for at in (0.0, 599.0, 600.0)] == [False, False, True]


def test_a_url_that_comes_to_an_end_begins_it_anew() -> None:
    patience = Patience(600.0)
    stuck = {"queued": 5, "hosts_waiting": 1, "hosts_in_backoff": 1}
    patience.is_out(totals(**stuck), 0.0)
    assert not patience.is_out(totals(**stuck, counters={"outcome.fetched": 1}), 600.0)
    assert patience.is_out(totals(**stuck, counters={"outcome.fetched": 1}), 1200.0)


def test_a_probe_under_way_does_not_begin_it_anew() -> None:
    patience = Patience(600.0)
    for at in range(0, 600, 10):
        assert not patience.is_out(totals(leased=5, hosts_leased=1, hosts_in_backoff=1), float(at))
    assert patience.is_out(totals(queued=5, hosts_waiting=1, hosts_in_backoff=1), 600.0)


def test_hosts_that_may_be_asked_and_retries_are_waited_for() -> None:
    for more in ({"hosts_waiting": 2}, {"hosts_waiting": 1, "scheduled": 1}, {"hosts_waiting": 1, "hosts_ready": 1}):
        patience = Patience(0.0)
        assert not patience.is_out(totals(queued=5, hosts_in_backoff=1, **more), 0.0)


def engine_with(*hosts: tuple[str, bool, float]) -> MemoryEngine:
    """Hosts with a URL each: whether in back-off, and their next contact."""
    engine = MemoryEngine(1)
    for name, in_backoff, next_contact in hosts:
        drive(engine.add(0, [NewURLs(name, [f"http://{name}/"])], 0.0))
        (lease,) = drive(
            engine.lease(0, "n", name, 0.0, until=9.0, hosts_max=1, urls_max=1, urls_per_host=1, only_hosts=[name])
        )
        told = Settlement(name, lease.lease_id, [], release=True, next_contact=next_contact, in_backoff=in_backoff)
        drive(engine.settle(0, [told], 0.0))
    return engine


def test_a_host_with_a_long_delay_is_something_else_left() -> None:
    patience = Patience(0.0)
    assert drive(patience.nothing_else_left(engine_with(("a.test", True, 50.0), ("b.test", True, 0.0)), 1.0))
    assert not drive(patience.nothing_else_left(engine_with(("a.test", True, 50.0), ("b.test", False, 900.0)), 1.0))


def test_those_that_are_tried_next_are_named_first() -> None:
    engine = engine_with(("a.test", True, 90.0), ("b.test", True, 50.0), ("c.test", False, 5.0))
    assert [host.host for host in drive(first_in_backoff(engine, 1.0, 9))] == ["b.test", "a.test"]
