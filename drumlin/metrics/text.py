"""Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from drumlin.metrics.counting import Histogram
from drumlin.metrics.registry import Metric

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[str, ...]
"""The values of a metric's labels, in the order in which the registry names the labels."""


def page(metrics: Iterable[Iterable[str]]) -> bytes:
    """A whole page of the lines of these metrics."""
    return "".join(f"{line}\n" for lines in metrics for line in lines).encode()


def one(metric: Metric, value: float) -> Iterator[str]:
    """A metric without labels."""
    return many(metric, {(): value})


def by_label(metric: Metric, values: Mapping[str, float]) -> Iterator[str]:
    """A metric with one label."""
    return many(metric, {(value_of,): value for value_of, value in values.items()})


def many(metric: Metric, values: Mapping[Labels, float]) -> Iterator[str]:
    yield from _head(metric)
    for labels, value in values.items():
        yield f"{metric.name}{_shown(_pairs(metric, labels))} {value}"


def histograms(metric: Metric, parts: Mapping[Labels, Histogram]) -> Iterator[str]:
    yield from _head(metric)
    for labels, histogram in parts.items():
        pairs = _pairs(metric, labels)
        # Another thread may be counting: one copy, so that the buckets and their total agree.
        counts = list(histogram.counts)
        total = 0
        for bound, count in zip((*histogram.bounds, "+Inf"), counts, strict=True):
            total += count
            yield f"{metric.name}_bucket{_shown([*pairs, ('le', str(bound))])} {total}"
        yield f"{metric.name}_sum{_shown(pairs)} {histogram.sum:.6f}"
        yield f"{metric.name}_count{_shown(pairs)} {total}"


def _head(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"


def _pairs(metric: Metric, labels: Labels) -> list[tuple[str, str]]:
    return list(zip(metric.labels, labels, strict=True))


def _shown(pairs: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
