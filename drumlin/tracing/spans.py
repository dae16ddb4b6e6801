"""Spans on their way to a receiver, by OpenTelemetry's SDK. Loading this file loads the SDK.

The receiver is named by the usual variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, and so on. A
thread of the SDK sends what is in its queue every few seconds; while the receiver is away the queue fills, and then
spans are dropped. Whoever works is never held up.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from drumlin import __version__
from drumlin.logs import Event, event
from drumlin.tracing.parents import SpanId

CLOSE_S = 3.0
"""How long the end of a process waits for its last spans to be sent."""
NS_PER_S = 1_000_000_000
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
ENDPOINT_DEFAULT = "http://localhost:4318"

Attributes = Mapping[str, str | int | float | bool]
NONE: Attributes = MappingProxyType({})

log = logging.getLogger("drumlin.tracing")
# Its complaints about each attempt would fill the log; what matters is told once, below.
logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)


class OpenSpan:
    """A span that has begun. Times are seconds since the epoch."""

    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        self.id = SpanId(context.trace_id, context.span_id)

    def end(self, end_s: float, attributes: Attributes = NONE, error: str = "") -> None:
        self._span.set_attributes(dict(attributes))
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end(_ns(end_s))


class _Ids(RandomIdGenerator):
    """Makes the ids of spans, and of traces that are not told their id."""

    next_trace = 0

    def generate_trace_id(self) -> int:
        return self.next_trace or super().generate_trace_id()


class Tracer:
    """Makes the spans of one process, `service`, and sends them. Must be closed."""

    def __init__(self, service: str, instance: str) -> None:
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
        resource = Resource.create({**named, "service.instance.id": instance, "service.version": __version__})
        self._ids = _Ids()
        # Whoever makes a span has chosen its URL already.
        self._provider = TracerProvider(
            resource=resource, sampler=ALWAYS_ON, shutdown_on_exit=False, id_generator=self._ids
        )
        self._provider.add_span_processor(BatchSpanProcessor(_Told(OTLPSpanExporter())))
        self._tracer = self._provider.get_tracer("drumlin", __version__)

    def begin(
        self,
        name: str,
        parent: SpanId | None,
        start_s: float,
        attributes: Attributes = NONE,
        *,
        remote: bool = False,
        trace_id: int = 0,
    ) -> OpenSpan:
        """Begin a span below `parent`, which another process made if `remote`; without a parent, a new trace, of this
        id if one is given."""
        kind = SpanKind.CONSUMER if remote else SpanKind.PRODUCER if parent is None else SpanKind.INTERNAL
        context = None
        if parent is not None:
            flags = TraceFlags(TraceFlags.SAMPLED)
            known = SpanContext(parent.trace_id, parent.span_id, is_remote=remote, trace_flags=flags)
            context = set_span_in_context(NonRecordingSpan(known))
        self._ids.next_trace = trace_id
        span = self._tracer.start_span(name, context, kind, dict(attributes), start_time=_ns(start_s))
        return OpenSpan(span)

    def span(
        self, name: str, parent: SpanId, start_s: float, end_s: float, attributes: Attributes = NONE, error: str = ""
    ) -> None:
        """Tell of something that is over."""
        self.begin(name, parent, start_s, attributes).end(max(start_s, end_s), error=error)

    def close(self) -> None:
        """Send what is left, within `CLOSE_S`. The SDK alone would wait for half a minute."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_S)


class _Told(SpanExporter):
    """Sends spans by another exporter, and logs when the receiver goes away and when it is back."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            if not self._lost:
                place = next((os.environ[name] for name in ENDPOINT_VARIABLES if name in os.environ), ENDPOINT_DEFAULT)
                said = event(Event.TRACES_LOST)
                log.warning("traces cannot be sent to %s, and are dropped; pages are not", place, extra=said)
            self._lost += len(spans)
        elif self._lost:
            log.info("traces are sent again; %d spans were lost", self._lost, extra=event(Event.TRACES_BACK))
            self._lost = 0
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)
