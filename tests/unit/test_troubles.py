"""The live display names troubles: seeds that failed first, then hosts that are out of reach."""

from __future__ import annotations

import pytest

from drumlin.api.explaining.causes import cause
from drumlin.coordinator.totals import add_up
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.local.troubles import LOOK_EVERY_S, SHOWN_MAX, Troubles, standstill
from drumlin.model import FailureKind, Lease, NewURLs, Settled, Settlement, TaskState
from drumlin.protocol import CrawlState, Heartbeat
from drumlin.urls import host_of
from tests.harness.dispatching import dispatcher

NOW = 1_000.0


class Looked:
    """An engine with one shard, and the lines about it."""

    def __init__(self, *seeds: str) -> None:
        self.engine = MemoryEngine(1)
        self.troubles = Troubles(seeds)
        for url in seeds:
            drive(self.engine.add(0, [NewURLs(host_of(url), [url])], NOW))
        leases = drive(self.engine.lease(0, "n", "1", NOW, until=NOW + 60, hosts_max=99, urls_max=99, urls_per_host=1))
        self.leases: dict[str, Lease] = {lease.host: lease for lease in leases}

    def settle(self, host: str, state: TaskState, **more: object) -> None:
        lease = self.leases[host]
        settled = Settled(lease.tasks[0].id, lease.tasks[0].url, state, b"1", **more)  # type: ignore[arg-type]
        drive(self.engine.settle(0, [Settlement(host, lease.lease_id, [settled], release=True)], NOW))

    def lines(self, after_s: float = 0.0) -> list[str]:
        totals = add_up(drive(self.engine.stats_all(NOW)))
        drive(self.troubles.look(self.engine, totals, NOW + after_s, after_s))
        return self.troubles.lines


def test_a_seed_that_failed_is_named_with_its_next_try_until_it_is_fetched() -> None:
    looked = Looked("http://a.test/", "http://b.test/")
    assert looked.lines() == []
    looked.settle("a.test", TaskState.SCHEDULED, retry_at=NOW + 14.0, kind=FailureKind.HTTP_5XX)
    looked.settle("b.test", TaskState.DONE)
    assert looked.lines(LOOK_EVERY_S) == ["http://a.test/: failed, next try in 13 s"]


def test_a_seed_that_is_given_up_stays_named_with_its_cause() -> None:
    looked = Looked("http://a.test/")
    looked.settle("a.test", TaskState.DEAD, kind=FailureKind.FORBIDDEN_ADDRESS, error="127.0.0.1")
    for after_s in (0.0, LOOK_EVERY_S):
        assert looked.lines(after_s) == ["http://a.test/: its address is private, given up"]


def test_of_many_troubles_the_first_are_shown_and_the_others_counted() -> None:
    looked = Looked(*(f"http://h{number}.test/" for number in range(SHOWN_MAX + 2)))
    for host in list(looked.leases):
        looked.settle(host, TaskState.SCHEDULED, retry_at=NOW + 5.0, kind=FailureKind.TIMEOUT)
    lines = looked.lines()
    assert (len(lines), lines[-1]) == (SHOWN_MAX + 1, "and 2 more")


@pytest.mark.parametrize("kind", list(FailureKind))
def test_every_kind_of_failure_has_words_of_its_own(kind: FailureKind) -> None:
    assert cause(kind) != kind.replace("_", " "), "give it a phrase: this is what an unknown kind is called"
    assert cause(kind) not in {cause(other) for other in FailureKind if other is not kind}


def test_details_are_told_where_they_help() -> None:
    assert cause("dns", "robots.txt: Could not resolve host: a.test") == "no such host"
    assert cause("tls", "robots.txt: certificate has expired.") == (
        "no secure connection could be made (certificate has expired)"
    )
    assert cause("something_new") == "something new"


def test_a_pause_and_silent_nodes_are_named() -> None:
    made = dispatcher()
    for name in ("n0", "n1"):
        made.register(name, 0.0)
        made.heartbeat(name, Heartbeat("active", 0.0, 0), 1.0)

    def lines(state: CrawlState = CrawlState.RUNNING) -> list[str]:
        return standstill(state, made.made.nodes.records())

    assert lines() == []
    assert lines(CrawlState.PAUSED) == ["paused; `drumlin resume` goes on"]
    made.tick(60.0)
    assert lines() == ["n0, n1 say nothing: frozen, or without CPU time"]
    made.heartbeat("n1", Heartbeat("active", 0.0, 0), 61.0)
    assert lines() == ["n0 says nothing: frozen, or without CPU time"]
