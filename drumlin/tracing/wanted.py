"""Whether traces can be had where they are wanted."""

from __future__ import annotations

import importlib.util

from drumlin.errors import ConfigError

NEEDED = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def check_installed(trace_every: int) -> None:
    """ConfigError if URLs are to be traced and OpenTelemetry is not installed."""
    if trace_every and not all(_is_there(name) for name in NEEDED):
        hint = "Install it (`pip install '.[otel]'` in drumlin's clone), or leave out --trace-every."
        raise ConfigError("Traces need OpenTelemetry, which is not installed.", hint)


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
