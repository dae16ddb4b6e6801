"""Traces: the way of single URLs through coordinators and nodes, as spans for any receiver of OpenTelemetry.

A coordinator chooses one of so many URLs that it gives out (`--trace-every`) and sends a W3C `traceparent` for each of
them with the lease. A node that traces, too, tells what it did under that parent, and sends its own `traceparent` with
the result, under which the coordinator tells that it settled the URL. So one trace spans both:

    lease (coordinator) ─► url (node) ─► robots, fetch, read, store, send ─► settle (coordinator)

`parents` reads and writes what travels; `wanted` checks that OpenTelemetry is installed where traces are wanted;
`spans` is the only file that imports it, and is loaded only there. What is told of a URL: `drumlin/api/traces.py` and
`drumlin/node/traces.py`.

Invariants
- Without `--trace-every`, nothing of OpenTelemetry is imported, and no page costs anything more.
- Nobody waits for a receiver: spans are sent by a thread, from a queue of bounded length. What does not fit is dropped.
- No span has the query of a URL, in which sites put secrets.

Limits. Traces of results that are sent again after a crash end at the node: journals do not keep them.
"""

from drumlin.tracing.parents import SpanId, read_traceparent, shown_url, traceparent
from drumlin.tracing.wanted import check_installed

__all__ = ["SpanId", "check_installed", "read_traceparent", "shown_url", "traceparent"]
