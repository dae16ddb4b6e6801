"""What a coordinator tells of URLs that are traced: that it gave one out, and that it settled it."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from drumlin.logs import Event, event
from drumlin.protocol import Accepted, Results, Work, shown_lease
from drumlin.tracing import SpanId, read_traceparent, shown_url, traceparent

if TYPE_CHECKING:
    from drumlin.tracing.spans import Attributes, Tracer

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
        yield CoordinatorTraces(tracer, every, random.Random(), time.time)  # noqa: S311  # which URLs is no secret
    finally:
        tracer.close()


class CoordinatorTraces:
    """Chooses one URL in `every` and tells of it. `wall` is the time of the calendar."""

    def __init__(self, tracer: Tracer, every: int, chance: random.Random, wall: Callable[[], float]) -> None:
        self._tracer = tracer
        self._every = every
        self._chance = chance
        self.wall = wall

    def given(self, work: Work, node: str, begun_s: float) -> None:
        """Choose some of the URLs that a node is given, and tell the node which. `begun_s` is when it asked."""
        for lease in work.leases:
            for one in lease.assignments:
                if self._chance.random() * self._every >= 1:
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
                span = self._tracer.begin("lease", None, begun_s, attributes)
                span.end(self.wall())
                work.traces[one.assignment_id] = traceparent(span.id)
                _log("gave %s to node %s", span.id, shown_url(one.url), node)

    def settled(self, results: Results, accepted: Accepted, node: str, begun_s: float) -> None:
        """Tell what came of the traced URLs of a batch."""
        ended_s, rejected = self.wall(), dict(zip(accepted.rejected_at, accepted.rejected, strict=False))
        for place, result in enumerate(results.results):
            parent = read_traceparent(results.traces.get(result.assignment_id, ""))
            if parent is None:
                continue
            refused = rejected[place].reason if place in rejected else ""
            attributes: Attributes = {
                "url.full": shown_url(result.url),
                "drumlin.node": node,
                "drumlin.outcome": str(result.outcome),
                "drumlin.counted": not refused,
                "drumlin.links": len(result.links),
                "drumlin.batch": len(results.results),
            }
            span = self._tracer.begin("settle", parent, begun_s, attributes, remote=True)
            span.end(ended_s, error=refused)
            _log("settled %s of node %s: %s", span.id, shown_url(result.url), node, refused or result.outcome)


def _log(message: str, span: SpanId, *arguments: object) -> None:
    log.debug(message, *arguments, extra=event(Event.TRACED, trace_id=span.trace, span_id=span.span))
