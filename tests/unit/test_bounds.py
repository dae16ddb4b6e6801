"""What bounds a crawl that fetches is told from its figures: the right cause, or both when there are two."""

from __future__ import annotations

import math
from typing import Any

from drumlin.api.explaining.bounds import Seen, bound_by
from drumlin.api.messages.people import Reason
from drumlin.api.watch import Look
from drumlin.coordinator.totals import Totals, lately_of
from drumlin.model import HostState
from drumlin.protocol import Effort, NodeRecord, NodeStatus

NOW = 1_000.0
WELL = Look(0.001, 0.002, 0.1)


def totals(**figures: Any) -> Totals:
    none: dict[str, Any] = dict.fromkeys(Totals.__struct_fields__, 0)
    return Totals(**(none | {"next_event": math.inf, "counters": {}} | figures))


def node(status: NodeStatus = NodeStatus.ACTIVE, **effort: Any) -> NodeRecord:
    """A node that has worked for ten seconds: as told, and else 20 requests that were answered at once."""
    lately = Effort(**({"time_s": 10.0, "cpu_s": 1.0, "requests": 20.0, "answer_s": 0.4, "body_s": 0.1} | effort))
    return NodeRecord("n", "", NOW, status, 1.0, 1.0, 0, NOW, {}, lately=lately)


def causes(*nodes: NodeRecord, look: Look = WELL, delay_s: float = 1.0, **figures: Any) -> list[Reason]:
    return bound_by(Seen(totals(**({"queued": 99, "hosts_ready": 5} | figures)), nodes, look, [delay_s], [], NOW))


def codes(*nodes: NodeRecord, **more: Any) -> list[str]:
    return [reason.code for reason in causes(*nodes, **more)]


POLITE: dict[str, Any] = {"hosts_ready": 0, "hosts_leased": 2}


def test_two_hosts_with_a_second_between_contacts_bind_a_crawl_by_politeness() -> None:
    (reason,) = causes(node(requests=19.0), **POLITE)
    assert reason.code == "politeness"
    assert reason.figures["permitted_per_s"] == 1.95
    assert "Each of the 2 hosts" in reason.message
    assert "permits about 1.95 requests a second, and so many are made." in reason.message
    (fewer,) = causes(node(requests=14.0), **POLITE)
    assert "permits about 1.93 requests a second; 1.4 are made." in fewer.message


def test_hosts_that_could_be_asked_more_often_bind_nothing() -> None:
    assert codes(node(requests=5.0), **POLITE) == []
    assert codes(node(), hosts_ready=1, hosts_leased=2) == []


def test_slow_answers_are_the_sites_and_slow_bodies_the_bandwidth() -> None:
    slow: dict[str, Any] = {"requests": 10.0, "answer_s": 19.0, "body_s": 0.1}
    assert codes(node(**slow), delay_s=0.0, **POLITE) == ["slow_sites"]
    fat: dict[str, Any] = {"requests": 10.0, "answer_s": 0.1, "body_s": 19.0}
    assert codes(node(**fat), delay_s=0.0, **POLITE) == ["bandwidth"]
    both: dict[str, Any] = {"requests": 10.0, "answer_s": 9.0, "body_s": 10.0}
    assert codes(node(**both), delay_s=0.0, **POLITE) == ["slow_sites", "bandwidth"]


def test_a_delay_and_a_slow_answer_of_the_same_length_are_both_named() -> None:
    assert codes(node(requests=10.0, answer_s=10.0), **POLITE) == ["politeness", "slow_sites"]


def test_a_node_that_computes_or_waits_for_a_core_is_bound_by_the_cpu() -> None:
    (reason,) = causes(node(cpu_s=9.4), node(cpu_s=2.0))
    assert (reason.code, reason.figures) == ("cpu", {"nodes": 1, "share": 0.94})
    assert reason.message == "CPU: 1 of 2 nodes compute or wait for a core 94 % of the time."
    assert codes(node(NodeStatus.FAILED, cpu_s=9.4)) == []


def test_a_slow_disk_is_told_from_a_busy_core() -> None:
    assert codes(node(disk_s=4.0)) == ["disk"]
    assert codes(node(disk_s=4.0, cpu_s=9.9)) == ["cpu"]
    assert codes(node(), look=Look(0.001, 0.5, 0.1)) == ["disk"]


def test_a_slow_engine_is_told_from_a_busy_coordinator() -> None:
    assert codes(node(held_s=5.0), look=Look(0.3, 0.001, 0.1)) == ["engine"]
    assert codes(node(held_s=5.0), look=Look(0.3, 0.001, 0.97)) == ["coordinator_cpu"]


def test_nodes_that_hold_back_for_no_cause_that_is_known_are_told() -> None:
    assert codes(node(held_s=5.0)) == ["settling"]
    assert codes(node(held_s=5.0, disk_s=5.0)) == ["disk"]


def test_hosts_out_of_reach_are_named_if_they_are_many() -> None:
    assert codes(node(), hosts_ready=1, hosts_waiting=2, hosts_in_backoff=2) == ["backoff"]
    assert codes(node(), hosts_ready=9, hosts_waiting=1, hosts_in_backoff=1) == []


def test_two_causes_at_once_are_both_named() -> None:
    polite: dict[str, Any] = {"hosts_ready": 0, "hosts_leased": 2, "hosts_waiting": 2, "hosts_in_backoff": 2}
    assert codes(node(requests=19.0), **polite) == ["politeness", "backoff"]
    assert codes(node(cpu_s=9.9), look=Look(0.3, 0.001, 0.1)) == ["cpu", "engine"]
    assert codes(node(disk_s=4.0, requests=19.0), **POLITE) == ["disk", "politeness"]


def test_of_workers_that_tell_nothing_only_what_is_certain_is_said() -> None:
    silent = NodeRecord("n", "", NOW, NodeStatus.ACTIVE, 1.0, 1.0, 0, NOW, {})
    assert codes(silent, **POLITE) == ["politeness"]
    assert codes(silent) == []
    assert codes() == []


def test_what_a_node_did_lately_counts_the_less_the_older_it_is() -> None:
    first = lately_of(None, None, Effort(time_s=5.0, cpu_s=5.0))
    assert first == Effort(time_s=5.0, cpu_s=5.0)
    later = lately_of(first, Effort(time_s=5.0, cpu_s=5.0), Effort(time_s=105.0, cpu_s=5.0))
    assert later is not None
    assert later.cpu_s / later.time_s < 0.001
    anew = lately_of(later, Effort(time_s=105.0, cpu_s=50.0), Effort(time_s=2.0, cpu_s=1.0))
    assert anew == Effort(time_s=2.0, cpu_s=1.0), "a process that was started again"
    assert lately_of(anew, anew, None) is None


def held(name: str) -> HostState:
    return HostState(f"{name}.example", NOW, None, 9, 9, 0, 0, "lease", name, NOW + 10.0)


def test_a_node_that_has_missed_heartbeats_and_holds_hosts_is_a_cause() -> None:
    """Also before it counts as failed, and after that until its leases end."""

    def said(
        last_seen: float,
        status: NodeStatus = NodeStatus.ACTIVE,
        leases: int = 0,
        holds: bool = False,
        heartbeat_s: float = 2.0,
    ) -> list[str]:
        silent = NodeRecord("m2", "", last_seen, status, 1.0, 0.0, 0, NOW, {}, leases=leases, last_beat=last_seen)
        seen = Seen(totals(queued=99, hosts_ready=5), [node(), silent], WELL, [1.0], [], NOW)
        seen = seen._replace(held=[held("m2")] if holds else [], heartbeat_s=heartbeat_s)
        return [reason.message for reason in bound_by(seen)]

    (told,) = said(NOW - 5.0, leases=19)
    assert told == (
        "Silent nodes: nothing was heard of m2 for 5 s. The hosts that it holds go to others when the leases end."
    )
    assert said(NOW - 12.0, NodeStatus.FAILED, holds=True) != []
    assert said(NOW - 3.0, leases=19) == [], "one heartbeat may be late"
    assert said(NOW - 1.5, leases=19, heartbeat_s=0.5) == [], "a busy machine, on which heartbeats are frequent"
    assert said(NOW - 3.5, leases=19, heartbeat_s=0.5) != []
    assert said(NOW - 5.0) == said(NOW - 90.0, NodeStatus.FAILED) == [], "it holds nothing"
