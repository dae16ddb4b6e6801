"""One run of `bench.reality`: what is to happen in it, and what the web has seen of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

NODES = 4
COORDINATORS = 2
LATENCY_VARIES = 0.5
"""If hosts were alike, those of a node would be contacted at the same moments, and a fault would hit all or none."""
KILL, FREEZE = "kill", "freeze"


@dataclass(frozen=True)
class Plan:
    """What is crawled, and when what is struck. Times are in seconds since the fleet has begun to work."""

    number: int
    hosts: int
    pages: int
    delay_s: float
    latency_s: float
    lease_s: float
    concurrency: int
    kill_at: float
    freeze_at: float
    frozen_s: float
    coordinator_at: float
    ends_at: float


@dataclass
class Record:
    """What came of a plan. `contacts` are all requests: when, the number of the host, and that of the page, or -1.
    `struck` says by fault when it came and which hosts its node held at that moment."""

    plan: Plan
    contacts: list[tuple[float, int, int]]
    struck: dict[str, tuple[float, list[int]]]


def victim(held: Mapping[str, Collection[int]], hosts: int) -> str:
    """The node to strike, of those that hold hosts: the one that holds most nearly its share, so runs are alike."""
    share = hosts / max(1, len(held))
    return min(held, key=lambda node: (abs(len(held[node]) - share), node))
