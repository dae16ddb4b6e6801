"""What a node tells of URLs that are traced.

Times come from what it knows of each page anyway, so nothing is measured for the sake of traces. In a node that traces,
a page that is not traced costs one look into a dictionary; in any other, nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from drumlin.clock import CLOCKS, Clocks
from drumlin.logs import Event, event
from drumlin.model import Outcome
from drumlin.node.keeping.archive import Arrival
from drumlin.tracing import SpanId, read_traceparent, shown_url, traceparent

if TYPE_CHECKING:
    from drumlin.fetch import Transfer
    from drumlin.protocol import Result, Work
    from drumlin.tracing.spans import Attributes, OpenSpan, Tracer

WAITING_MAX = 10_000
"""How many traced URLs may be with the node at once, and of how many hosts the request for robots.txt is remembered.
Leases that are given back leave some behind; the oldest go."""

log = logging.getLogger("drumlin.tracing")


@contextlib.contextmanager
def node_traces(wanted: bool, node: str) -> Iterator[NodeTraces | None]:
    """The traces of the node of this name; None if they are not wanted, and then nothing is loaded."""
    if not wanted:
        yield None
        return
    from drumlin.tracing.spans import Tracer

    tracer = Tracer("drumlin-node", node)
    try:
        yield NodeTraces(tracer, node, CLOCKS)
    finally:
        tracer.close()


class _Waiting(NamedTuple):
    """A traced URL that was given to this node, and when, by the boot clock."""

    parent: SpanId
    received: float
    host: str


class _Sent(NamedTuple):
    """The spans of a URL whose result is under way."""

    url: OpenSpan
    send: OpenSpan
    result: Result


Sent = list[_Sent]


class NodeTraces:
    """Tells what becomes of traced URLs."""

    def __init__(self, tracer: Tracer, node: str, clocks: Clocks) -> None:
        self._tracer = tracer
        self._node = node
        self._clocks = clocks
        self._waiting: dict[str, _Waiting] = {}
        self._robots: dict[str, tuple[float, float, int]] = {}
        """The last request for the robots.txt of hosts with traced URLs: begun, ended, status."""

    def received(self, work: Work) -> None:
        """Note which of the URLs that a coordinator gave are traced."""
        if not work.traces:
            return
        now = self._clocks.boot()
        for lease in work.leases:
            for one in lease.assignments:
                parent = read_traceparent(work.traces.get(one.assignment_id, ""))
                if parent is not None:
                    self._waiting[one.assignment_id] = _Waiting(parent, now, lease.host)
        while len(self._waiting) > WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]

    def robots(self, host: str, transfer: Transfer) -> None:
        """A request for a robots.txt has ended."""
        if any(one.host == host for one in self._waiting.values()):
            self._robots.pop(host, None)
            self._robots[host] = (transfer.started, transfer.finished, transfer.status)
            if len(self._robots) > WAITING_MAX:
                del self._robots[next(iter(self._robots))]

    def stored(self, arrivals: Iterable[Arrival], begun: float) -> Sent:
        """Tell of URLs whose results were archived, from `begun` until now, and are sent next. Returns their spans,
        which end when the results are answered."""
        now = self._clocks.boot()
        found = [(self._waiting.pop(one.result.assignment_id, None), one) for one in arrivals]
        sent = [self._tell(waiting, one, begun, now) for waiting, one in found if waiting is not None]
        if not self._waiting:
            self._robots.clear()
        return sent

    def _tell(self, waiting: _Waiting, arrival: Arrival, begun: float, now: float) -> _Sent:
        result, fetch, wall = arrival.result, arrival.fetch, self._wall
        about: Attributes = {
            "url.full": shown_url(result.url),
            "server.address": fetch.host,
            "drumlin.node": self._node,
        }
        url = self._tracer.begin("url", waiting.parent, wall(waiting.received), about, remote=True)
        robots = self._robots.get(fetch.host)
        if robots is not None and robots[1] >= waiting.received:
            self._tracer.span("robots", url.id, wall(robots[0]), wall(robots[1]), _status(robots[2]))
        if fetch.duration_s:
            started = arrival.arrived - fetch.duration_s
            self._tracer.span("fetch", url.id, wall(started), wall(arrival.arrived), _fetched(arrival), fetch.kind)
        self._tracer.span("read", url.id, wall(arrival.arrived), wall(begun), {"drumlin.links": len(result.links)})
        self._tracer.span("store", url.id, wall(begun), wall(now), {"drumlin.record_id": result.record_id})
        return _Sent(url, self._tracer.begin("send", url.id, wall(now)), result)

    def answered(self, sent: Sequence[_Sent]) -> None:
        """A coordinator has answered these results."""
        now_s = self._clocks.wall()
        for one in sent:
            result = one.result
            one.send.end(now_s)
            failed = result.kind if result.outcome == Outcome.FAILED else ""
            one.url.end(now_s, {"drumlin.outcome": str(result.outcome)}, error=failed)
            said = event(Event.TRACED, trace_id=one.url.id.trace, span_id=one.url.id.span)
            log.debug("done with %s: %s", shown_url(result.url), result.outcome, extra=said)

    def _wall(self, moment: float) -> float:
        """A moment of the boot clock on the calendar."""
        return self._clocks.wall() - (self._clocks.boot() - moment)


def parents_of(sent: Sequence[_Sent]) -> dict[str, str]:
    """The `traceparent` of each result that is sent."""
    return {one.result.assignment_id: traceparent(one.send.id) for one in sent}


def _status(status: int) -> Attributes:
    return {"http.response.status_code": status} if status else {}


def _fetched(arrival: Arrival) -> Attributes:
    fetch = arrival.fetch
    return {
        **_status(fetch.status),
        "http.request.method": "GET",
        "network.peer.address": fetch.ip,
        "network.protocol.name": fetch.protocol,
        "http.response.body.size": fetch.bytes or 0,
        "drumlin.attempt": fetch.attempt,
    }
