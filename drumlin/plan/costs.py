"""What a page and a URL cost, as measured, each with its source. Of several measurements the dearest counts."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from drumlin.errors import ConfigError

_TWO_CORES = "two shared cores, Debian 12"
_RUN = f"bench.run speed --tools drumlin, {_TWO_CORES}, 2026-11-18"
_CRAWL = f"drumlin crawl with two nodes, which took 500 MB, {_TWO_CORES}, 2026-11-15"
_LOAD_AGAIN = f"bench.load --rate 8000, {_TWO_CORES}, 2026-11-18"
_LOAD = f"bench.load --auth --tls --rate 8000, {_TWO_CORES}, 2026-11-16"
_CLUSTER = f"bench.load --masters 3 --rate 8000, {_TWO_CORES}, 2026-11-16"
_MEMORY = f"bench.load_memory, {_TWO_CORES}, 2026-11-16"


class Cost(msgspec.Struct, frozen=True):
    """One measured cost: how much, of what, and by which measurement."""

    value: float
    unit: str
    what: str
    source: str


Costs = Mapping[str, Cost]

MEASURED: Costs = {
    "node_cpu": Cost(1.27, "ms", "CPU of a node, and of coordinating it on one machine, for a page", _RUN),
    "node_memory": Cost(250, "MB", "memory of a node", _CRAWL),
    "coordinator_cpu": Cost(97, "µs", "CPU of coordinators for a page", _LOAD),
    "coordinator_memory": Cost(270, "MB", "memory of a coordinator with 5,000 nodes", _LOAD_AGAIN),
    "connection_memory": Cost(80, "kB", "memory of a coordinator for a connection with TLS", _LOAD),
    "engine_cpu": Cost(78, "µs", "CPU of Redis for a page", _CLUSTER),
    "url_queued": Cost(98, "bytes", "memory of Redis for a URL that is queued", _MEMORY),
    "url_seen": Cost(9.4, "bytes", "memory of Redis for a URL that was seen and is not queued", _MEMORY),
    "url_done": Cost(5, "bytes", "the same for two weeks after it was done", _MEMORY),
    "host": Cost(410, "bytes", "memory of Redis for a host", _MEMORY),
    "content_exact": Cost(247, "bytes", "memory of Redis for the content of a page, for exact duplicates", _MEMORY),
    "content_near": Cost(100, "bytes", "the same for near-duplicates, in addition", _MEMORY),
    "page_size": Cost(35_400, "bytes", "mean size of the pages that were measured", _RUN),
    "result_size": Cost(294, "bytes", "what a node sends to a coordinator for a page", _LOAD_AGAIN),
    "stored_share": Cost(0.56, "", "what the store needs for each byte of a page: WARC and tables", _RUN),
}
DIVISORS = frozenset({"node_cpu", "page_size"})
"""Costs that something is divided by, so they cannot be 0."""
COST_MAX = 1e12
DIVISOR_MIN = 1e-9
"""With these, products and quotients of a plan stay numbers that can be shown."""


def replaced(costs: Costs, values: Mapping[str, float], source: str) -> dict[str, Cost]:
    """The costs with other values for some of them. ConfigError if there is no such cost, or it cannot be so much."""
    for name, value in values.items():
        if name not in costs:
            raise ConfigError(f"There is no cost {name!r}.", f"The costs are {', '.join(costs)}.")
        if not (DIVISOR_MIN if name in DIVISORS else 0) <= value <= COST_MAX:
            raise ConfigError(f"The cost {name} cannot be {value:g} ({source}).")
    new = {name: msgspec.structs.replace(costs[name], value=value, source=source) for name, value in values.items()}
    return {**costs, **new}
