"""What a coordinator tells of URLs that are traced: that it gave one out, and that it settled it.

Which URLs are traced, and the ids of their traces, follow from the ids of their assignments, which only coordinators
can make. So whichever coordinator gets a result knows both, and no node can have further results traced, or write into
traces of others.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

from drumlin.coordinator.taking.settling import Taken
from drumlin.logs import Event, event
from drumlin.protocol import Results, Work, shown_lease
from drumlin.tracing import SpanId, read_traceparent, shown_url, traceparent

if TYPE_CHECKING:
    from drumlin.tracing.spans import Attributes, Tracer

DRAWN_BYTES, TRACE_BYTES = 8, 16
DRAWN_MAX = 1 << 8 * DRAWN_BYTES

log = logging.getLogger("drumlin.tracing")


@contextlib.contextmanager
def coordinator_traces(every: int, name: str) -> Iterator[CoordinatorTraces | None]:
    """The traces of the coordinator of this name; None if no URL is to be traced, and then nothing is loaded."""
    if not every:
        yield None
        return
    from drumlin.tracing.spans import Tracer

    tracer = Tracer("drumlin-coordinator", name)
    try:
        yield CoordinatorTraces(tracer, every, time.time)
    finally:
        tracer.close()


class CoordinatorTraces:
    """Chooses one URL in `every` and tells of it. `wall` is the time of the calendar."""

    def __init__(self, tracer: Tracer, every: int, wall: Callable[[], float]) -> None:
        self._tracer = tracer
        self._every = every
        self.wall = wall

    def _trace_of(self, assignment_id: str) -> int:
        """The id of the trace of a URL that was given out under this id; 0 if it is not traced."""
        digest = blake2b(assignment_id.encode(), digest_size=DRAWN_BYTES + TRACE_BYTES).digest()
        drawn, trace_id = int.from_bytes(digest[:DRAWN_BYTES]), int.from_bytes(digest[DRAWN_BYTES:])
        return trace_id if drawn * self._every < DRAWN_MAX else 0

    def given(self, work: Work, node: str, begun_s: float) -> None:
        """Choose some of the URLs that a node is given, and tell the node which. `begun_s` is when it asked."""
        for lease in work.leases:
            for one in lease.assignments:
                if not (trace_id := self._trace_of(one.assignment_id)):
                    continue
                attributes: Attributes = {
                    "url.full": shown_url(one.url),
                    "server.address": lease.host,
                    "drumlin.node": node,
                    "drumlin.lease": shown_lease(lease.lease_id),
                    "drumlin.depth": one.depth,
                    "drumlin.attempts": one.attempts,
                    "drumlin.priority": one.priority,
                }
                span = self._tracer.begin("lease", None, begun_s, attributes, trace_id=trace_id)
                span.end(self.wall())
                work.traces[one.assignment_id] = traceparent(span.id)
                _log("gave %s to node %s", span.id, shown_url(one.url), node)

    def settled(self, results: Results, taken: Taken, node: str, begun_s: float) -> None:
        """Tell what came of the traced URLs of a batch: of each once, when its result counts."""
        if not results.traces:
            return
        ended_s, others = self.wall(), taken.repeated.union(taken.accepted.rejected_at)
        for place, result in enumerate(results.results):
            told = results.traces.get(result.assignment_id)
            parent = self._parent(result.assignment_id, told) if told and place not in others else None
            if parent is None:
                continue
            attributes: Attributes = {
                "url.full": shown_url(result.url),
                "drumlin.node": node,
                "drumlin.outcome": str(result.outcome),
                "drumlin.links": len(result.links),
                "drumlin.batch": len(results.results),
            }
            span = self._tracer.begin("settle", parent, begun_s, attributes, remote=True)
            span.end(ended_s)
            _log("settled %s of node %s: %s", span.id, shown_url(result.url), node, result.outcome)

    def _parent(self, assignment_id: str, told: str) -> SpanId | None:
        """The node's span that it tells of; None unless it is of the trace that this URL has."""
        parent = read_traceparent(told)
        return parent if parent is not None and parent.trace_id == self._trace_of(assignment_id) else None


def _log(message: str, span: SpanId, *arguments: object) -> None:
    log.debug(message, *arguments, extra=event(Event.TRACED, trace_id=span.trace, span_id=span.span))
