"""How fast a fleet can be: as fast as is asked for, unless politeness or the number of nodes is the bound."""

from __future__ import annotations

from enum import StrEnum
from math import ceil

import msgspec

from drumlin.config.quantities import show_duration, show_gap, show_many, show_number, show_rate
from drumlin.engines.redis.address import Duplicates
from drumlin.plan.costs import Costs

FLOAT_ERROR = 1e-9
PACE_MAX = 1e6
"""Costs were measured up to 10,000 pages/s. A hundred times that are 86 billion pages a day; what multiplication gives
beyond is no plan."""
PACE_MIN = 1 / 86_400
"""A page a day."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. Shares lie between 0 and 1, and all other figures that divide are above 0."""

    pages_per_s: float
    urls: float
    page_bytes: float
    pages: float | None = None
    """How many pages in all, if the crawl has an end."""
    queued_share: float = 0.1
    hosts: float | None = None
    delay_s: float = 1.0
    response_s: float = 0.4
    """How long a host takes to answer. The delay counts from the answer."""
    nodes: float | None = None
    """How many nodes there are; None: as many as needed. A node is one process on one core."""
    availability: float = 0.7
    concurrency: int = 512
    nodes_busy: float = 0.66
    servers_busy: float = 0.5
    replicas: int = 2
    contents: Duplicates = Duplicates.NEAR
    master_bytes: float = 25e9
    """How much data one master may hold."""

    @property
    def turn_s(self) -> float:
        """The time between two requests to the same host."""
        return self.delay_s + self.response_s


class Bound(StrEnum):
    """What keeps the fleet from being faster."""

    WISH = "wish"
    POLITENESS = "politeness"
    NODES = "nodes"


class Pace(msgspec.Struct, frozen=True):
    """The pace that a plan is for, and why it is not faster."""

    pages_per_s: float
    bound: Bound
    sentence: str


class NodePace(msgspec.Struct, frozen=True):
    """How many pages a second one node fetches while it is there, and what that is made of."""

    pages_per_s: float
    made_of: str


def rounded_up(number: float) -> int:
    """The least whole number that is not smaller, except by what calculating with floats may have added."""
    return ceil(number * (1 - FLOAT_ERROR))


def page_cpu_s(wish: Wish, costs: Costs) -> float:
    """The CPU time of a node for a page. Larger pages than those measured are taken to cost more in proportion, and
    smaller ones as much, so the truth lies below."""
    larger = max(1.0, wish.page_bytes / costs["page_size"].value)
    return costs["node_cpu"].value / 1e3 * larger


def node_pace(wish: Wish, costs: Costs) -> NodePace:
    """Either CPU or the number of its requests in flight is a node's limit."""
    cpu_s = page_cpu_s(wish, costs)
    by_cpu, by_requests = wish.nodes_busy / cpu_s, wish.concurrency / wish.response_s
    if by_cpu <= by_requests:
        return NodePace(by_cpu, f"{wish.nodes_busy:.0%} of a core / {show_number(cpu_s * 1e3)} ms a page")
    waiting = f"{wish.concurrency:,} requests at once / {show_duration(wish.response_s)} for an answer"
    return NodePace(by_requests, waiting)


def find_pace(wish: Wish, costs: Costs) -> Pace:
    """The pace that can be reached. If two bounds are lower than the wish, the lower of them counts."""
    bounds = {Bound.WISH: wish.pages_per_s}
    if wish.hosts is not None:
        bounds[Bound.POLITENESS] = wish.hosts / wish.turn_s
    if wish.nodes is not None:
        bounds[Bound.NODES] = wish.nodes * wish.availability * node_pace(wish, costs).pages_per_s
    bound = min(bounds, key=lambda name: bounds[name])
    sentence = {
        Bound.WISH: _enough_hosts,
        Bound.POLITENESS: _too_few_hosts,
        Bound.NODES: _too_few_nodes,
    }[bound](wish, bounds[bound])
    return Pace(bounds[bound], bound, sentence)


def _turn(wish: Wish) -> str:
    return f"{show_gap(wish.delay_s)} of delay and {show_duration(wish.response_s)} for the answer"


def _too_few_hosts(wish: Wish, reached: float) -> str:
    hosts = show_many(wish.hosts or 0.0, "host")
    asked = f"{hosts}, each asked once in {_turn(wish)}, allow"
    if wish.hosts == 1:
        asked = f"{hosts}, asked once in {_turn(wish)}, allows"
    return (
        f"Politeness is the bound, not cores: {asked} "
        f"{show_rate(reached)}, not {show_number(wish.pages_per_s)}. More nodes would not help; more hosts "
        f"or a shorter delay would. All that follows is for {show_rate(reached)}."
    )


def _too_few_nodes(wish: Wish, reached: float) -> str:
    return (
        f"Nodes are the bound: {show_many(wish.nodes or 0, 'node')}, there {wish.availability:.0%} of the time, "
        f"can fetch {show_rate(reached)}, not {show_number(wish.pages_per_s)}. All that follows is for "
        f"{show_rate(reached)}."
    )


def _enough_hosts(wish: Wish, reached: float) -> str:
    if wish.hosts is None:
        least = rounded_up(reached * wish.turn_s)
        have = f"{show_many(least, 'host')} {'has' if least == 1 else 'have'}"
        return f"Politeness allows this only while at least {have} URLs to fetch (--hosts)."
    turn, have = f"{_turn(wish)} each", "all of them have"
    if wish.hosts == 1:
        turn, have = _turn(wish), "it has"
    return (
        f"Politeness allows up to {show_rate(wish.hosts / wish.turn_s)} from {show_many(wish.hosts, 'host')} "
        f"({turn}), so it is not the bound while {have} URLs to fetch."
    )
