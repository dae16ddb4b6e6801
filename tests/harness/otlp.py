"""A receiver of OpenTelemetry's traces: a real HTTP server that decodes what exporters send."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class ReceivedSpan(msgspec.Struct, frozen=True):
    """A span as it arrived. Times are nanoseconds since the epoch; `parent` is empty for the first of a trace."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    start: int
    end: int
    attributes: dict[str, str | int | bool]


class Receiver:
    """Listens on loopback; `spans` are those that have come."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        spans = self.spans

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                spans.extend(spans_in(ExportTraceServiceRequest.FromString(body)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_request(self, *code_and_size: object) -> None:
                """Log nothing: the test looks at `spans`."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True

    @property
    def variables(self) -> dict[str, str]:
        """What a process must have in its environment to send its traces here, soon."""
        endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *ending: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def spans_in(request: ExportTraceServiceRequest) -> list[ReceivedSpan]:
    found = []
    for resource in request.resource_spans:
        service = next(one.value.string_value for one in resource.resource.attributes if one.key == "service.name")
        for scope in resource.scope_spans:
            for span in scope.spans:
                attributes = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
                ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                times = (span.start_time_unix_nano, span.end_time_unix_nano)
                found.append(ReceivedSpan(service, span.name, *ids, *times, attributes))
    return found
