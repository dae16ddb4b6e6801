"""Every reason for idleness is said, in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from drumlin.api.explaining.why import why_idle
from drumlin.api.messages.people import Reason
from drumlin.coordinator.totals import Totals, add_up
from drumlin.model import HostState
from drumlin.protocol import CrawlState, HostNote, NodeRecord, NodeStatus

NOW = 1_000.0


def totals(**figures: Any) -> Totals:
    none: dict[str, Any] = dict.fromkeys(Totals.__struct_fields__, 0)
    none |= {"next_event": math.inf, "counters": {}}
    return Totals(**(none | figures))


def node(status: NodeStatus = NodeStatus.ACTIVE, load: float = 0.0) -> NodeRecord:
    return NodeRecord("n", "", NOW, status, 1.0, load, 0, NOW, {})


def reasons(
    figures: Totals,
    *nodes: NodeRecord,
    state: CrawlState = CrawlState.RUNNING,
    stop_reason: str = "",
    waiting: Sequence[HostState] = (),
    blocked: int = 0,
    budgeted: int = 0,
    held: Sequence[HostState] = (),
) -> list[Reason]:
    return why_idle(state, stop_reason, figures, nodes, waiting, blocked, budgeted, NOW, held=held)


def codes(*arguments: Any, **more: Any) -> list[str]:
    return [reason.code for reason in reasons(*arguments, **more)]


def test_a_crawl_that_fetches_is_not_idle() -> None:
    assert reasons(totals(queued=5, hosts_ready=1), node(load=3.0)) == []


def test_a_load_of_a_node_that_is_gone_does_not_count() -> None:
    assert codes(totals(queued=5, hosts_ready=1), node(NodeStatus.FAILED, load=3.0)) == ["no_active_nodes"]


def test_a_paused_a_stopping_and_a_finished_crawl_say_so() -> None:
    assert codes(totals(queued=5), state=CrawlState.PAUSED) == ["paused"]
    (stopping,) = reasons(totals(), node(), state=CrawlState.DRAINING, stop_reason="stopped by an operator")
    assert "is stopping: stopped by an operator" in stopping.message
    assert codes(totals(), state=CrawlState.FINISHED) == ["finished"]


def test_a_finished_crawl_says_what_was_queued_since() -> None:
    for pending, budgeted, said in (
        (0, 1, "The crawl is finished."),
        (1, 0, "The crawl is finished. 1 URL has been queued since. `drumlin resume` goes on."),
        (2, 1, "2 URLs have been queued since, or are beyond the budgets of their hosts. `drumlin resume` goes on."),
    ):
        (one,) = reasons(totals(queued=pending), state=CrawlState.FINISHED, budgeted=budgeted)
        assert one.message.endswith(said)


def test_a_crawl_that_has_stopped_says_how_it_goes_on() -> None:
    left = node(NodeStatus.INACTIVE)
    (stopped,) = reasons(totals(queued=5), left, state=CrawlState.DRAINING, stop_reason="stopped by an operator")
    assert stopped.message == "The crawl has stopped: stopped by an operator. `drumlin resume` goes on."
    (spent,) = reasons(totals(queued=5), left, state=CrawlState.DRAINING, stop_reason="pages_max")
    assert "--pages-max is spent. Raise that with `drumlin set pages_max ...`" in spent.message


def test_an_empty_frontier_says_whether_anything_was_ever_known() -> None:
    assert "none is known" in reasons(add_up([]), node())[0].message
    assert "all 7 that are known are done or given up" in reasons(totals(done=6, dead=1), node())[0].message


def test_without_nodes_nothing_can_be_fetched() -> None:
    assert codes(totals(queued=5, hosts_ready=1)) == ["no_nodes"]
    (reason,) = reasons(totals(queued=5, hosts_ready=1), node(NodeStatus.QUARANTINED), node(NodeStatus.FAILED))
    assert reason.message == (
        "No node is active: 1 failed (n), 1 quarantined (n). Their logs say why; start them again."
    )


def test_nodes_that_are_not_active_are_named_with_what_to_do() -> None:
    def said(status: NodeStatus, *names: str) -> str:
        nodes = [msgspec.structs.replace(node(status), node_id=name) for name in names]
        return reasons(totals(queued=5, hosts_ready=1), *nodes)[0].message

    assert said(NodeStatus.FAILED, "m2", "m1") == (
        "No node is active: 2 failed (m1, m2). Their logs say why; start them again."
    )
    assert "`drumlin nodes release NAME`" in said(NodeStatus.DRAINING, "m1")
    many = said(NodeStatus.INACTIVE, *(f"m{number}" for number in range(7)))
    assert "7 inactive (m0, m1, m2, m3, m4, …)" in many
    assert "`drumlin node --coordinator …` starts one" in many


def test_retries_that_wait_say_until_when() -> None:
    (reason,) = reasons(totals(scheduled=3, next_event=NOW + 60), node())
    assert reason.code == "all_scheduled"
    assert "again, in 1 min." in reason.message


def test_waiting_hosts_name_the_first_that_is_due() -> None:
    first = HostState("slow.example", NOW + 12.5, None, 1, 1, 0, 0)
    (reason,) = reasons(totals(queued=9, hosts_waiting=4), node(), waiting=[first])
    assert reason.code == "all_waiting"
    assert "slow.example, in 12 s" in reason.message


def test_leased_and_blocked_hosts_are_told() -> None:
    assert codes(totals(queued=9, hosts_leased=4), node()) == ["all_leased"]
    assert codes(totals(queued=9, hosts_leased=4), node(), blocked=2) == ["all_leased", "blocked"]
    assert codes(totals(queued=9, hosts_leased=4), node(), budgeted=1) == ["all_leased", "budgeted"]


def test_the_last_urls_are_said_to_be_with_those_who_took_them() -> None:
    (one,) = reasons(totals(leased=1, hosts_leased=1), node())
    assert (one.code, one.message.startswith("The one URL that is left is with nodes or workers")) == (
        "all_given",
        True,
    )
    assert reasons(totals(leased=3, hosts_leased=1), node())[0].message.startswith("All 3 URLs that are left are")


def test_hosts_of_lost_nodes_are_not_said_to_be_looked_after() -> None:
    lost, leased = reasons(totals(queued=9, hosts_leased=1), node(NodeStatus.FAILED))
    assert (lost.code, leased.code) == ("no_active_nodes", "all_leased")
    assert "they go to other nodes as soon as it is certain" in leased.message


def test_there_is_always_a_reason() -> None:
    assert codes(totals(queued=9, hosts_ready=4), node()) == ["between"]


def test_at_a_polite_pace_a_crawl_is_not_idle() -> None:
    assert reasons(totals(queued=9, hosts_leased=2, hosts_waiting=1), node(load=0.04)) == []


def test_results_of_workers_that_tell_no_load_count() -> None:
    figures = totals(queued=9, hosts_leased=1)
    assert why_idle(CrawlState.RUNNING, "", figures, [node()], [], 0, 0, NOW, settled_s=1.0) == []
    assert why_idle(CrawlState.RUNNING, "", figures, [node()], [], 0, 0, NOW, settled_s=60.0) != []
    assert why_idle(CrawlState.PAUSED, "", figures, [node()], [], 0, 0, NOW, settled_s=1.0)[0].code == "paused"


def test_hosts_in_backoff_are_named() -> None:
    assert codes(totals(queued=9, hosts_waiting=2, hosts_in_backoff=2), node()) == ["backoff"]
    assert codes(totals(queued=9, hosts_waiting=3, hosts_in_backoff=1), node()) == ["backoff", "all_waiting"]


def test_a_host_that_is_asked_less_often_after_a_429_is_named_with_its_pace() -> None:
    note = msgspec.msgpack.encode(HostNote(slow_s=31.0))
    slow = HostState("busy.example", NOW + 20, None, 140, 150, 9, 9, "t", "n", NOW + 9, note)
    figures = totals(queued=140, hosts_leased=1, hosts_waiting=1, hosts_in_backoff=1)
    backoff, leased, slowed = reasons(figures, node(), held=[slow])
    assert (backoff.code, leased.code, slowed.code) == ("backoff", "all_leased", "slowed")
    assert "The one other host with URLs is with a node" in leased.message
    assert "busy.example every 31 s" in slowed.message


def test_one_is_not_called_several() -> None:
    first = HostState("h.test", NOW + 9, None, 1, 1, 0, 0)
    messages = [
        *(one.message for one in reasons(totals(queued=9, hosts_leased=1), node(), blocked=1, budgeted=1)),
        reasons(totals(scheduled=1, next_event=NOW + 60), node())[0].message,
        reasons(totals(queued=9, hosts_waiting=1), node(), waiting=[first])[0].message,
    ]
    assert messages == [
        "The one host with URLs is with a node; their nodes keep to each host's delay.",
        "1 host is blocked by an operator.",
        "1 host has a budget of pages, set by an operator, and waits once that is spent.",
        "1 URL failed and waits to be tried again, in 1 min.",
        "1 host with URLs waits until it may be contacted again. It is h.test, in 9 s.",
    ]
