"""Calls about leases: what is sent to a coordinator, and what is told of its answers."""

from __future__ import annotations

import pytest

from drumlin.config import CrawlConfig
from drumlin.contact.actions import AskVisit, AskWork, Renew
from drumlin.contact.events import Event, Granted, RenewalEnded, Renewed, VisitEnded, WorkEnded
from drumlin.contact.hosts import HostTable, HostWork
from drumlin.node.leases import TASKS_PER_REQUEST, LeaseCalls
from drumlin.node.main import make_pipeline
from drumlin.protocol import CrawlState, Work, WorkLease, WorkRequest
from tests.harness.agents import RETRY_S, Around
from tests.harness.contacts import lease_of

JOINED = "http://joined.test/"


class Asking:
    """Lease calls of a node that holds one host, and what is told of them."""

    def __init__(self, around: Around | None = None, start: str = "a1") -> None:
        self.around = around or Around()
        self.heard: list[Event | CrawlState] = []
        self.pipeline = make_pipeline(CrawlConfig(scope="host"), ["http://a.test/"])
        hosts = HostTable()
        hosts.by_name["held.test"] = HostWork(lease_of("held.test", "/1", "/2"), 0.0, 0.0, 1.0, "drumlin")
        self.calls = LeaseCalls(
            "n0", self.around, hosts, self.pipeline, self.heard.append, self.heard.append, self.around.clocks, start
        )

    @property
    def sent(self) -> WorkRequest:
        """The request that was sent last."""
        request = self.around.of(WorkRequest)[-1]
        assert isinstance(request, WorkRequest)
        return request

    def answer(self, *leases: WorkLease, retry_after_s: float = 0.0, **more: object) -> None:
        """Answer the oldest call, two seconds after it was sent."""
        self.around.clock.now += 2.0
        work = Work(list(leases), [], retry_after_s)
        for name, value in more.items():
            setattr(work, name, value)
        self.around.said.pop(0).on_reply(work)

    def fail(self) -> None:
        failed = self.around.said.pop(0).on_failure
        assert failed is not None
        failed(RETRY_S)


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_leases_are_told_of_with_when_they_were_asked_for_and_after_the_crawls_state(asking: Asking) -> None:
    asking.calls.ask(AskWork(5))
    sent = asking.around.clock()
    assert (asking.sent.max_hosts, asking.sent.hosts, asking.sent.unstarted) == (5, 1, 2)
    first, second = lease_of("a.test"), lease_of("b.test")
    asking.answer(first, second, retry_after_s=7.0)
    assert asking.heard == [WorkEnded(7.0), CrawlState.RUNNING, Granted(first, sent), Granted(second, sent)]


@pytest.mark.parametrize(("further", "tasks"), [(True, TASKS_PER_REQUEST), (False, 0)])
def test_renewals_are_told_of_one_by_one_and_then_what_was_lost(asking: Asking, further: bool, tasks: int) -> None:
    asking.calls.renew(Renew([("n0:a", "a.test"), ("n0:b", "b.test")], further))
    sent = asking.around.clock()
    assert (asking.sent.renew, asking.sent.max_hosts) == ([("n0:a", "a.test"), ("n0:b", "b.test")], 0)
    assert asking.sent.max_tasks == tasks
    lease = lease_of("a.test", "/3")
    asking.answer(lease, lost=["b.test"], state=CrawlState.PAUSED)
    assert asking.heard == [CrawlState.PAUSED, Renewed(lease, sent, further), RenewalEnded(["b.test"])]


def test_a_visit_ends_with_a_lease_or_with_what_others_know(asking: Asking) -> None:
    visit = AskVisit("b.test", ("n0:a", "a.test"))
    asking.calls.visit(visit)
    sent = asking.around.clock()
    assert (asking.sent.visits, asking.sent.visits_for) == (["b.test"], [("n0:a", "a.test")])
    lease = lease_of("b.test")
    asking.answer(lease)
    assert asking.heard == [CrawlState.RUNNING, Granted(lease, sent), VisitEnded("b.test")]
    asking.heard.clear()
    asking.calls.visit(visit)
    asking.answer(notes={"b.test": b"note"})
    assert asking.heard == [CrawlState.RUNNING, VisitEnded("b.test", b"note")]


def test_calls_that_fail_are_told_of_with_how_long_to_wait(asking: Asking) -> None:
    asking.calls.ask(AskWork(5))
    asking.calls.renew(Renew([("n0:a", "a.test")], True))
    asking.calls.visit(AskVisit("b.test", ("n0:a", "a.test")))
    for _ in range(3):
        asking.fail()
    assert asking.heard == [WorkEnded(RETRY_S), RenewalEnded(again_s=RETRY_S), VisitEnded("b.test")]


def test_every_request_for_work_has_a_name_of_its_own_and_is_never_repeated_as_it_is(asking: Asking) -> None:
    another_process = Asking(asking.around, start="b2")
    for one in (asking, another_process, asking):
        one.calls.ask(AskWork(5))
    assert len({request.request_id for request in asking.around.of(WorkRequest)}) == 3
    assert {call.repeat_s for call in asking.around.said} == {0.0}


def test_the_scope_is_widened_before_any_lease_is_told_of(asking: Asking) -> None:
    assert not asking.pipeline.in_scope(JOINED)
    asking.calls.ask(AskWork(5))
    asking.answer(scope_seeds=[JOINED], scope_version=1)
    assert asking.pipeline.in_scope(JOINED)
    asking.calls.ask(AskWork(5))
    assert asking.sent.scope_version == 1
