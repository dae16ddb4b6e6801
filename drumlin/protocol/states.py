"""The states of a crawl and of a node, and which may follow which.

Both are tables: what happens, and for each state that it can happen in, the state that follows. In a state that is not
named there, the same event changes nothing: pausing a crawl that is stopping leaves it stopping. No other code decides
what follows what, so a state that is missing here cannot be reached.

A node's status is what people see and what decides whether it is given work. It says nothing of its leases: those of a
silent node end at their deadlines and never before, because the node may be cut off from us and still at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class CrawlState(StrEnum):
    """What a coordinator wants of its nodes: go on, wait, finish what is in flight and leave, or leave because the
    crawl is complete."""

    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"
    FINISHED = "finished"


class CrawlEvent(StrEnum):
    """What changes the state of a crawl: what people order, a budget that is spent (STOP), and the end (DONE)."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    DONE = "done"


ENDED = frozenset({CrawlState.DRAINING, CrawlState.FINISHED})
"""Nodes leave, and come back only when the crawl is resumed."""

CRAWL_MOVES: Mapping[CrawlEvent, Mapping[CrawlState, CrawlState]] = {
    CrawlEvent.PAUSE: {CrawlState.RUNNING: CrawlState.PAUSED},
    # Also of a crawl that runs: what was said of its last stop is then forgotten.
    CrawlEvent.RESUME: dict.fromkeys(CrawlState, CrawlState.RUNNING),
    CrawlEvent.STOP: {CrawlState.RUNNING: CrawlState.DRAINING, CrawlState.PAUSED: CrawlState.DRAINING},
    # A paused crawl is not looked at: people may still add URLs to it.
    CrawlEvent.DONE: {CrawlState.RUNNING: CrawlState.FINISHED},
}


class NodeStatus(StrEnum):
    ACTIVE = "active"
    INACTIVE = "inactive"
    FAILED = "failed"
    QUIET = "quiet"
    """A worker that sends no heartbeats and has asked for nothing lately. It becomes active when it asks again."""
    QUARANTINED = "quarantined"
    DRAINING = "draining"


class NodeEvent(StrEnum):
    """What changes the status of a node."""

    REGISTERS = "registers"
    CALLS = "calls"
    FALLS_SILENT = "falls silent"
    """It missed its heartbeats."""
    RESTS = "rests"
    """It never sends heartbeats and has asked for nothing for a while: a worker that a person or a script drives."""
    LEAVES = "leaves"
    DRAIN = "drain"
    QUARANTINE = "quarantine"
    RELEASE = "release"


PRESENT = frozenset({NodeStatus.ACTIVE, NodeStatus.DRAINING})
GONE = frozenset({NodeStatus.FAILED, NodeStatus.QUIET, NodeStatus.INACTIVE})
ORDERS: Mapping[NodeEvent, NodeStatus] = {
    NodeEvent.DRAIN: NodeStatus.DRAINING,
    NodeEvent.QUARANTINE: NodeStatus.QUARANTINED,
}
"""What people order of a node stays in force, also when the node registers again, until they release it."""

NODE_MOVES: Mapping[NodeEvent, Mapping[NodeStatus, NodeStatus]] = {
    # Only a person lets a node out of quarantine.
    NodeEvent.REGISTERS: {status: NodeStatus.ACTIVE for status in NodeStatus if status != NodeStatus.QUARANTINED},
    NodeEvent.CALLS: dict.fromkeys(GONE, NodeStatus.ACTIVE),
    NodeEvent.FALLS_SILENT: dict.fromkeys(PRESENT, NodeStatus.FAILED),
    NodeEvent.RESTS: dict.fromkeys(PRESENT, NodeStatus.QUIET),
    NodeEvent.LEAVES: dict.fromkeys(NodeStatus, NodeStatus.INACTIVE),
    NodeEvent.DRAIN: dict.fromkeys(NodeStatus, NodeStatus.DRAINING),
    NodeEvent.QUARANTINE: dict.fromkeys(NodeStatus, NodeStatus.QUARANTINED),
    NodeEvent.RELEASE: dict.fromkeys(ORDERS.values(), NodeStatus.ACTIVE),
}
