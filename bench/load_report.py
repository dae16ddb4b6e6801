"""The load test's figures, and how they are printed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from bench.load_record import LostWork, Record

TARGETS_MS = {"work": 100.0, "heartbeat": 200.0, "results": 500.0}
"""99 % of the calls must be answered within this."""
ACHIEVED_SHARE_MIN = 0.97
P99 = 2
CALLS = {"work": ("work", "renew"), "known": ("known",), "results": ("results",), "heartbeat": ("heartbeat",)}
CALLS["register"] = ("register",)


class Usage(msgspec.Struct):
    """CPU seconds so far, and memory now."""

    coordinators_s: float
    redis_s: float
    generator_s: float
    machine_s: float
    coordinators_mb: float
    redis_mb: float

    @property
    def others_s(self) -> float:
        """What processes outside of the test have used."""
        return self.machine_s - self.coordinators_s - self.redis_s - self.generator_s


class Measured(msgspec.Struct):
    """What was seen at one pace. Latencies are the median, 95 %, 99 %, 99.9 % and the largest, in milliseconds."""

    pace: float
    pages_per_s: float
    latencies_ms: dict[str, list[float]]
    calls_per_s: dict[str, float]
    errors: dict[str, int]
    pages_rejected: int
    pages_late: int
    turns: int
    turns_empty: int
    turns_without_node: int
    batch_bytes: float
    coordinators_us: float
    redis_us: float
    generator_us: float
    others_cores: float
    coordinators_mb: float
    redis_mb: float

    @classmethod
    def of(cls, pace: float, elapsed_s: float, record: Record, before: Usage, after: Usage) -> Measured:
        pages = max(1, record.pages)
        latencies = {name: record.percentiles_ms(*kinds) for name, kinds in CALLS.items()}
        return cls(
            pace=pace,
            pages_per_s=record.pages / elapsed_s,
            latencies_ms={name: values for name, values in latencies.items() if values},
            calls_per_s={kind: count / elapsed_s for kind, count in record.calls.items()},
            errors=dict(record.errors),
            pages_rejected=record.pages_rejected,
            pages_late=record.pages_late,
            turns=record.turns,
            turns_empty=record.turns_empty,
            turns_without_node=record.turns_without_node,
            batch_bytes=record.bytes_sent["results"] / max(1, record.calls["results"]),
            coordinators_us=(after.coordinators_s - before.coordinators_s) / pages * 1e6,
            redis_us=(after.redis_s - before.redis_s) / pages * 1e6,
            generator_us=(after.generator_s - before.generator_s) / pages * 1e6,
            others_cores=(after.others_s - before.others_s) / elapsed_s,
            coordinators_mb=after.coordinators_mb,
            redis_mb=after.redis_mb,
        )


def missed(measured: Measured) -> Iterator[str]:
    """Every target that was not met, in words."""
    for call, target_ms in TARGETS_MS.items():
        latencies = measured.latencies_ms.get(call)
        if latencies is None or latencies[P99] >= target_ms:
            found = f"{latencies[P99]:.0f} ms" if latencies else "no answers"
            yield f"{call} p99 {found}, not under {target_ms:.0f} ms"
    if measured.pages_per_s < ACHIEVED_SHARE_MIN * measured.pace:
        yield f"{measured.pages_per_s:,.0f} pages/s, not {measured.pace:,.0f}"


def holds(measured: Measured) -> bool:
    return not any(missed(measured))


def print_measured(measured: Measured) -> None:
    print(f"\n{measured.pages_per_s:,.0f} pages/s of {measured.pace:,.0f} asked for")
    print("call        calls/s   p50 ms   p95 ms   p99 ms  p99.9 ms   max ms   target p99")
    for name, latencies in measured.latencies_ms.items():
        calls = sum(measured.calls_per_s.get(kind, 0.0) for kind in CALLS[name])
        target = f"{TARGETS_MS[name]:10.0f}" if name in TARGETS_MS else ""
        print(f"{name:10}{calls:9.1f}" + "".join(f"{value:9.1f}" for value in latencies) + f"   {target}")
    print(
        f"CPU µs/page: coordinators {measured.coordinators_us:.1f}, Redis {measured.redis_us:.1f},"
        f" generator {measured.generator_us:.1f}; other programs took {measured.others_cores:.2f} cores"
    )
    print(f"memory: coordinators {measured.coordinators_mb:,.0f} MB, Redis {measured.redis_mb:,.0f} MB of data")
    print(
        f"turns: {measured.turns:,} begun, {measured.turns_empty:,} got nothing, {measured.turns_without_node:,} found"
        f" no idle node; a batch of results has {measured.batch_bytes / 1000:.1f} KB"
    )
    print(f"results rejected {measured.pages_rejected:,}, sent late by nodes that came back {measured.pages_late:,}")
    print(f"errors: {measured.errors or 'none'}")
    print(f"targets: {'; '.join(missed(measured)) or 'all held'}", flush=True)


def print_lost_work(lost: LostWork, held: int) -> None:
    """How soon the hosts of killed nodes were given to others; `held` of those that were not are still leased."""
    if lost.waited_s:
        p50, p99 = np.percentile(lost.waited_s, (50, 99))
        print(
            f"hosts of nodes that died: {len(lost.waited_s):,} leased again after {p50:.0f} s (median),"
            f" {p99:.0f} s (p99), {max(lost.waited_s):.0f} s (last);"
            f" {len(lost.missing) - held:,} are free and wait for their turn, {held:,} still held by the dead",
            flush=True,
        )


def print_row_names() -> None:
    names = (
        "pages/s",
        "work p99",
        "results p99",
        "heartbeat p99",
        "coordinators µs",
        "Redis µs",
        "generator µs",
        "others",
    )
    print("\n" + "   ".join(names) + "   missed")


def print_row(measured: Measured) -> None:
    values = [measured.latencies_ms.get(call, [0.0] * 5)[P99] for call in ("work", "results", "heartbeat")]
    print(
        f"{measured.pages_per_s:7,.0f} {values[0]:10.1f} {values[1]:13.1f} {values[2]:15.1f}"
        f" {measured.coordinators_us:17.1f} {measured.redis_us:10.1f} {measured.generator_us:14.1f}"
        f" {measured.others_cores:8.2f}"
        f"   {'; '.join(missed(measured))}",
        flush=True,
    )
