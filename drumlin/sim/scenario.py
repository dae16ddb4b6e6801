"""What is simulated: how many machines of which kinds, which web, which settings, for how long, and which faults.

`of_seed` makes a scenario of a number, by a swarm: each seed has faults of some kinds and not of others, and other
settings than the next. `of_fleet` makes one for people who plan a fleet. Any other scenario can be written by hand.
"""

from __future__ import annotations

import math
import random
from typing import Annotated

import msgspec
from msgspec.structs import replace

from drumlin.config import CrawlConfig
from drumlin.coordinator.nodes import heartbeat_s_of
from drumlin.sim.faults import VIRTUAL_S_MAX, Drawn, Fault, Moment, Share, swarm
from drumlin.sim.figures import URLS_PER_HOST
from drumlin.sim.web import seconds_a_page

AGENT = "drumlin-sim"
FIRST_FAULT_S = 60.0
CALM_AT_THE_END_S = 240.0
"""After the last fault so much time is left, to see whether the crawl recovers."""
NODES = (300, 1_000)
"""Small fleets are drawn more often than large ones, which take more time for as many pages."""
LONG_S = 1_200.0
PAGE_S_SPREAD = (0.5, 1.5)
"""How much slower or faster than the average a node's link may be."""
PAGES = 51_000
"""About so many pages are fetched in a long simulation, whatever fails: its nodes are as fast as that takes."""
LOST_S = 30.0
"""How much time a long simulation loses at its start, and by whatever is not a fault."""
SHORT_PAGES_PER_S = 2.5
URLS = 400_000
"""Of these about half can be found: what is behind an error or a denied page is linked from nowhere else."""
HOSTS_PER_NODE = 3
CROWDED, MIXED = 0.05, 0.25
"""The shares of the seeds in which there are few hosts, which want a long delay, and in which a few nodes are large. To
simulate nodes that wait for hosts takes four times as long."""
CROWDED_DELAYS_S = (5.0, 10.0)
CROWDED_PAGE_S = (0.3, 2.0)
CROWDED_SPARE = 1.5
"""So many times the hosts that would be enough if all of them answered, always and soon."""
CROWDED_URLS = 3
"""So many times as many URLs as elsewhere: each of these hosts has to last for the whole time."""
LARGE = (0.01, 0.04)
"""The share of the nodes that are large, where some are."""
RETRIES_MAX = (0, 1, 2, 3, 3)
BUDGETED = 0.1
BUDGET_SHARE = 0.8
"""After this share of the time a budget is spent."""
HEARTBEATS_S = (10.0, 20.0)
"""Seconds between two heartbeats: more than in real fleets of this size, so that simulating them takes less time. What
follows from a heartbeat is the same, only later."""
TIMEOUT_S_MIN = 30.0
TIMEOUT_PAGES = 4.0
"""A request may take as long as so many pages."""
FLEET_LEASE_S = (20.0, 90.0)
FLEET_LEASE_PAGES = 2.25
"""A lease lasts longer than a page takes, so it is renewed about once in that time. What a lost node held is given to
others after a lease's time, which people wait for."""
HOSTS_BUDGETED = 0.3
"""The chance that people want only so many pages of some hosts."""
NODES_PER_LOOK_S = 1_000.0
"""To look at all nodes of a large fleet takes time, so it is done less often than in a small one."""
MASS_LOSS = 0.3
"""The share of a planned fleet that is lost at once, half-way through."""
MASS_LOSS_S = 600.0


HOSTS_MAX = 10_000_000
FAULTS_MAX = 10_000

Hosts = Annotated[int, msgspec.Meta(ge=0, le=HOSTS_MAX)]
Pages = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000_000)]
Heartbeat = Annotated[float, msgspec.Meta(ge=0.1, le=3_600.0)]


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a simulation depends on: the same scenario gives the same simulation, event by event. The bounds hold
    for scenarios that are read from files."""

    seed: Drawn = 1
    nodes: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 100
    coordinators: Annotated[int, msgspec.Meta(ge=1, le=100)] = 2
    duration_s: Annotated[float, msgspec.Meta(gt=0.0, le=VIRTUAL_S_MAX)] = 300.0
    hosts: Annotated[int, msgspec.Meta(ge=1, le=HOSTS_MAX)] = 1_000
    urls_per_host: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)] = 200.0
    page_s: Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)] = 2.0
    """How long a page takes on the link of an average node."""
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1
    """How many requests a node makes at a time."""
    large: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    """So many of the nodes make `large_concurrency` requests at a time."""
    large_concurrency: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 32
    delay_s: Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)] = 1.0
    lease_s: Annotated[float, msgspec.Meta(ge=1.0, le=3_600.0)] = 20.0
    pages_max: Pages | None = None
    hosts_budgeted: Hosts = 0
    """So many of the largest hosts have a budget of `host_pages_max` pages each."""
    host_pages_max: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 12
    retries_max: Annotated[int, msgspec.Meta(ge=0, le=100)] = 3
    heartbeat_s: Heartbeat | None = None
    """How often nodes send heartbeats; None: as often as the real ones do."""
    shards: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 8
    engine_servers: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 3
    way_s: Annotated[float, msgspec.Meta(gt=0.0, le=60.0)] = 0.01
    """How long a message between a node and a coordinator takes one way: a fifth of this, and on average this."""
    suspends: Share = 0.0
    """The chance that a call of the engine lets the calls of others come first."""
    join_s: Moment = 10.0
    """Within which time all nodes are started."""
    churn: Annotated[float, msgspec.Meta(ge=0.0, le=0.9)] = 0.0
    """The share of the nodes that is away at any time, because nodes come and go."""
    session_s: Annotated[float, msgspec.Meta(ge=1.0, le=VIRTUAL_S_MAX)] = 2_400.0
    """How long a node that comes and goes takes for one turn of both."""
    look_every_s: Annotated[float, msgspec.Meta(ge=0.1, le=100_000.0)] = 5.0
    """How often all nodes are looked at, for the figures and by those checkers that judge states."""
    faults: Annotated[tuple[Fault, ...], msgspec.Meta(max_length=FAULTS_MAX)] = ()

    def config(self) -> CrawlConfig:
        return CrawlConfig(
            scope="any",
            delay_s=self.delay_s,
            lease_s=self.lease_s,
            pages_max=self.pages_max,
            retries_max=self.retries_max,
            fetch_timeout_s=_timeout_s(self.page_s),
            near_duplicates=False,
            sitemaps=False,
            user_agent=AGENT,
        )


def of_seed(seed: int, *, short: bool = False) -> Scenario:
    """The scenario of a seed in the swarm: 20 minutes of hundreds of nodes or, if `short`, a few of some dozens."""
    chance = random.Random(f"{seed}/scenario")
    nodes = chance.randint(12, 40) if short else round(NODES[0] * (NODES[1] / NODES[0]) ** chance.random() ** 2)
    duration_s = 420.0 if short else LONG_S
    concurrency = chance.choice((1, 1, 1, 4))
    hosts = HOSTS_PER_NODE * nodes * concurrency
    budgeted = chance.random() < BUDGETED
    limits, shape = random.Random(f"{seed}/limits"), random.Random(f"{seed}/shape")
    faults = swarm(random.Random(f"{seed}/faults"), FIRST_FAULT_S, duration_s - CALM_AT_THE_END_S)
    pages_per_s = SHORT_PAGES_PER_S if short else _pages_per_s(faults)
    if budgeted:
        pages_per_s /= BUDGET_SHARE
    scenario = Scenario(
        seed=seed,
        nodes=nodes,
        coordinators=chance.randint(2, 4),
        duration_s=duration_s,
        hosts=hosts,
        urls_per_host=max(URLS_PER_HOST, (URLS / 10 if short else URLS) / hosts),
        page_s=_page_s(nodes * concurrency / pages_per_s),
        concurrency=concurrency,
        delay_s=chance.choice((1.0, 1.0, 2.0, 5.0)),
        lease_s=chance.choice((20.0, 30.0, 60.0)),
        pages_max=(int(SHORT_PAGES_PER_S * duration_s) if short else PAGES) if budgeted else None,
        hosts_budgeted=limits.randint(1, 8) if limits.random() < HOSTS_BUDGETED else 0,
        host_pages_max=limits.randint(1, 30),
        heartbeat_s=limits.choice(HEARTBEATS_S),
        suspends=chance.choice((0.0, 0.05, 0.2)),
        retries_max=limits.choice(RETRIES_MAX),
        faults=faults,
    )
    drawn = shape.random()
    if drawn < CROWDED:
        return _crowded(scenario, shape, pages_per_s)
    return _mixed(scenario, shape, pages_per_s) if drawn < CROWDED + MIXED else scenario


def _crowded(scenario: Scenario, shape: random.Random, pages_per_s: float) -> Scenario:
    """Hosts are the bound, and not nodes: contacts are as close as the delay allows, and nodes wait for hosts."""
    delay_s, page_s = shape.choice(CROWDED_DELAYS_S), round(shape.uniform(*CROWDED_PAGE_S), 3)
    hosts = math.ceil(CROWDED_SPARE * pages_per_s * (delay_s + page_s))
    urls_per_host = CROWDED_URLS * scenario.urls_per_host * scenario.hosts / hosts
    return replace(scenario, delay_s=delay_s, page_s=page_s, hosts=hosts, urls_per_host=urls_per_host)


def _mixed(scenario: Scenario, shape: random.Random, pages_per_s: float) -> Scenario:
    """A few nodes make many requests at a time, the others one."""
    large = math.ceil(shape.uniform(*LARGE) * scenario.nodes)
    connections = scenario.nodes + large * (scenario.large_concurrency - 1)
    page_s, hosts = _page_s(connections / pages_per_s), HOSTS_PER_NODE * connections
    urls_per_host = max(URLS_PER_HOST, scenario.urls_per_host * scenario.hosts / hosts)
    return replace(scenario, concurrency=1, large=large, page_s=page_s, hosts=hosts, urls_per_host=urls_per_host)


def _pages_per_s(faults: tuple[Fault, ...]) -> float:
    """How many pages the nodes of a long simulation must be able to fetch in a second, if these faults strike."""
    return PAGES / (LONG_S - LOST_S - sum(fault.costs_s for fault in faults))


def of_fleet(seed: int, nodes: int, hours: float, churn: float, pages_per_minute: float) -> Scenario:
    """A fleet of slow nodes that come and go; half-way through, a large part of it is lost at once."""
    duration_s = hours * 3600.0
    lost = Fault("nodes_killed", duration_s / 2, min(MASS_LOSS_S, duration_s / 4), MASS_LOSS, seed)
    page_s = _page_s(60.0 / pages_per_minute)
    pages = nodes * pages_per_minute * 60.0 * hours
    hosts = HOSTS_PER_NODE * nodes
    return Scenario(
        seed=seed,
        nodes=nodes,
        coordinators=3,
        duration_s=duration_s,
        hosts=hosts,
        urls_per_host=max(URLS_PER_HOST, 4.0 * pages / hosts),
        page_s=page_s,
        lease_s=min(FLEET_LEASE_S[1], max(FLEET_LEASE_S[0], FLEET_LEASE_PAGES * page_s)),
        heartbeat_s=heartbeat_s_of(nodes),
        shards=32,
        join_s=min(120.0, duration_s / 20),
        churn=churn,
        look_every_s=max(5.0, nodes / NODES_PER_LOOK_S),
        faults=(lost,),
    )


def _timeout_s(page_s: float) -> float:
    return max(TIMEOUT_S_MIN, TIMEOUT_PAGES * page_s)


def _page_s(seconds: float) -> float:
    """How long a page takes on an average link if a node fetches one in so many seconds, on average and with all
    requests that bring none. (Fast nodes are ahead of it by more than slow ones are behind.)"""
    slowest, fastest = PAGE_S_SPREAD[1], PAGE_S_SPREAD[0]
    seconds *= math.log(slowest / fastest) / (slowest - fastest)
    page_s = seconds
    for _ in range(20):
        page_s *= seconds / seconds_a_page(page_s, _timeout_s(page_s))
    return round(page_s, 3)
