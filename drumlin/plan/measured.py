"""Reads measurements that a user has made: what `bench.load --json` and `bench.run --json` write, or costs by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NoReturn

import msgspec

from drumlin.errors import ConfigError

SCENARIO, TOOL = "speed", "drumlin"
"""The runs of `bench.run` that count: others measure waiting, or other programs."""
_HINT = "It may be what `bench.load --json` or `bench.run --json` wrote, or an object of costs by name."


class _LoadStep(msgspec.Struct):
    """What `bench.load` saw at one pace, as far as it matters here."""

    pages_per_s: float
    calls_per_s: dict[str, float]
    batch_bytes: float
    coordinators_us: float
    redis_us: float


class _Report(msgspec.Struct):
    pages: int
    bytes: int


class _Extra(msgspec.Struct):
    written_mb: float
    report: _Report


class _Run(msgspec.Struct):
    """One crawl of `bench.run`, as far as it matters here."""

    cpu_ms_per_page: float
    extra: _Extra


def read_measurements(content: bytes, name: str) -> dict[str, float]:
    """The costs that a file called `name` tells, the middle one of several measurements. ConfigError if it has none."""
    try:
        document = msgspec.json.decode(content)
        if isinstance(document, dict):
            return msgspec.convert(document, dict[str, float])
        rows = msgspec.convert(document, list[dict[str, Any]])
        return _costs_of(rows)
    except (msgspec.DecodeError, ZeroDivisionError, RecursionError) as cause:
        _refuse(name, cause)


def _refuse(name: str, cause: Exception) -> NoReturn:
    why = str(cause)
    if isinstance(cause, ZeroDivisionError):
        why = "it counted no pages"
    if isinstance(cause, RecursionError):
        why = "its brackets are nested too deeply"
    raise ConfigError(f"{name} has no measurements: {why}.", _HINT) from cause


def _costs_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    if any("redis_us" in row for row in rows):
        return _of_load(msgspec.convert(rows, list[_LoadStep]))
    runs = [row for row in rows if row.get("tool") == TOOL and row.get("scenario") == SCENARIO]
    if not runs:
        raise msgspec.ValidationError(f"there is no run of {TOOL} in the scenario `{SCENARIO}` in it")
    return _of_runs(msgspec.convert(runs, list[_Run]))


def _of_load(steps: Sequence[_LoadStep]) -> dict[str, float]:
    return {
        "coordinator_cpu": median(step.coordinators_us for step in steps),
        "engine_cpu": median(step.redis_us for step in steps),
        "result_size": median(
            step.batch_bytes * step.calls_per_s.get("results", 0.0) / step.pages_per_s for step in steps
        ),
    }


def _of_runs(runs: Sequence[_Run]) -> dict[str, float]:
    def middle(figure: Callable[[_Run], float]) -> float:
        return median(figure(run) for run in runs)

    return {
        "node_cpu": middle(lambda run: run.cpu_ms_per_page),
        "page_size": middle(lambda run: run.extra.report.bytes / run.extra.report.pages),
        "stored_share": middle(lambda run: run.extra.written_mb * 1e6 / run.extra.report.bytes),
    }
