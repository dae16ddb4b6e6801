"""What travels of a trace, what a span shows of a URL, and which URLs a coordinator traces: no node can choose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from drumlin.api.traces import CoordinatorTraces
from drumlin.clock import CLOCKS
from drumlin.engines.blocking import drive
from drumlin.node import traces
from drumlin.protocol import Assignment, Results, Work, WorkRequest
from drumlin.tracing import SpanId, read_traceparent, shown_url, traceparent
from tests.harness.dispatching import Driven, dispatcher, result

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_traceparent_is_read_as_it_is_written() -> None:
    one = read_traceparent(PARENT)
    assert one == SpanId(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)
    assert traceparent(one) == PARENT
    assert (one.trace, one.span) == ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
        PARENT.replace("-01", "-00"),
        PARENT.upper(),
        PARENT + "\n",
    ],
)
def test_what_is_no_parent_of_a_recorded_trace_is_none(text: str) -> None:
    assert read_traceparent(text) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.example/p/q", "https://a.example/p/q"),
        ("https://a.example:8443/?token=hunter2", "https://a.example:8443/?REDACTED"),
        ("http://me:hunter2@a.example/x?a=1&b=hunter2", "http://a.example/x?REDACTED"),
        ("http://a.example/x#hunter2", "http://a.example/x"),
        ("http://[", "http://["),
        ("http://[/?token=hunter2", "http://[/?REDACTED"),
        ("", ""),
        ("\ud800?hunter2", "\ud800?REDACTED"),
    ],
)
def test_a_span_shows_a_url_without_its_query_and_its_user(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_messages_without_traces_are_as_they_were_and_others_are_checked() -> None:
    encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode
    assert decode(encode({"results": []}), type=Results).traces == {}
    told = decode(encode({"results": [], "traces": {"n0:1.2/3": PARENT}}), type=Results)
    assert told.traces == {"n0:1.2/3": PARENT}
    with pytest.raises(msgspec.ValidationError):
        decode(encode({"results": [], "traces": {"n0:1.2/3": f"{PARENT}\r\nX-Evil: 1"}}), type=Results)
    old = {"leases": [], "assignments": [], "retry_after_s": 0.0}
    assert decode(encode(old), type=Work).traces == {}


def test_requests_for_robots_of_urls_that_were_given_back_are_not_remembered_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traces, "WAITING_MAX", 3)
    told = traces.NodeTraces(cast(Any, None), "n0", CLOCKS)
    fetched = cast(Any, SimpleNamespace(started=1.0, finished=2.0, status=200))
    for number in range(9):
        given = SimpleNamespace(host=f"h{number}", assignments=[SimpleNamespace(assignment_id=str(number))])
        told.received(cast(Any, SimpleNamespace(leases=[given], traces={str(number): PARENT})))
        told.robots(f"h{number}", fetched)
    assert list(told._robots) == ["h6", "h7", "h8"]


# Which URLs are traced


class Told:
    """A tracer that only remembers, for each span, its name, its trace and its URL. It stands for the span, too."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, int, str]] = []

    def begin(self, name: str, parent: SpanId | None, start_s: float, about: Any, **more: Any) -> Told:
        trace_id = parent.trace_id if parent else more["trace_id"]
        self.id = SpanId(trace_id, len(self.spans) + 1)
        self.spans.append((name, trace_id, about["url.full"]))
        return self

    def end(self, end_s: float) -> None:
        """Nothing is sent."""


HOSTS = 300
EVERY = 10


class Fleet:
    """A node with work of one coordinator, which returns its results to another one."""

    def __init__(self) -> None:
        self.made: Driven = dispatcher([f"http://h{number}.test/" for number in range(HOSTS)], delay_s=0.0)
        self.made.register("n0", 0.0)
        self.told, self.there = Told(), Told()
        self.work = self.made.work("n0", WorkRequest(HOSTS, max_hosts=HOSTS, request_id="1"), 0.0)
        self.assignments = [one for lease in self.work.leases for one in lease.assignments]
        CoordinatorTraces(self.told, EVERY, lambda: 1.0).given(self.work, "n0", 0.0)  # type: ignore[arg-type]

    @property
    def parents(self) -> dict[str, str]:
        """What an honest node sends for the URLs that it was told to trace: a span of its own, in the same trace."""
        given = {name: read_traceparent(text) for name, text in self.work.traces.items()}
        return {name: traceparent(SpanId(one.trace_id, 77)) for name, one in given.items() if one}

    def send(self, assignments: list[Assignment], traces: dict[str, str], **more: Any) -> list[tuple[str, int, str]]:
        """Send results; the spans that the coordinator tells."""
        results = Results([result(one, **more) for one in assignments], traces=traces)
        taken = drive(self.made.made.take("n0", results, 1.0))
        before = len(self.there.spans)
        CoordinatorTraces(self.there, EVERY, lambda: 3.0).settled(results, taken, "n0", 2.0)  # type: ignore[arg-type]
        return self.there.spans[before:]


def test_one_url_in_so_many_is_traced_and_every_coordinator_knows_which() -> None:
    fleet = Fleet()
    assert len(fleet.assignments) > HOSTS / 2
    assert 0 < len(fleet.work.traces) < len(fleet.assignments) / 2
    settled = fleet.send(fleet.assignments, fleet.parents)
    assert sorted(one[1:] for one in settled) == sorted(one[1:] for one in fleet.told.spans)
    assert {name for name, _, _ in settled} == {"settle"}


def test_a_node_cannot_have_more_traced_than_was_chosen() -> None:
    fleet = Fleet()
    made_up = {one.assignment_id: PARENT for one in fleet.assignments}
    settled = fleet.send(fleet.assignments, made_up | fleet.parents)
    assert len(settled) == len(fleet.work.traces)


def test_a_node_cannot_write_into_another_trace() -> None:
    fleet = Fleet()
    parents = fleet.parents
    exchanged = dict(zip(parents, [*list(parents.values())[1:], PARENT], strict=True))
    assert fleet.send(fleet.assignments, exchanged) == []


def test_results_that_do_not_count_or_counted_before_are_not_told() -> None:
    fleet = Fleet()
    parents = fleet.parents
    traced = [one for one in fleet.assignments if one.assignment_id in parents]
    assert fleet.send(traced, parents, url="http://[") == [], "it was not given out with this URL"
    assert len(fleet.send(traced * 5, parents)) == len(traced)
    assert fleet.send(traced, parents) == []
