"""What the simulated web is like, in figures of the real one.

The shares are worked out from what Common Crawl publishes of its crawl CC-MAIN-2026-30 (3.45 billion fetches; the
statistics of commoncrawl/cc-crawl-statistics, Apache-2.0): how fetches ended, how many URLs a host has, how sizes fall
with rank, how long bodies are. Latencies are not published there; those are our assumption and are marked as such.
"""

from __future__ import annotations

# Of the requests that were made, 2,594 million: how they ended.
SHARE_MOVED = 0.0593
SHARE_MOVED_FOR_NOW = 0.0274
SHARE_NOT_FOUND = 0.0499
SHARE_GONE = 0.0019
SHARE_FORBIDDEN = 0.0005
SHARE_BROKEN = 0.0224
"""Time-outs, resets, protocol errors."""

SHARE_DENIED = 0.073
"""Of the URLs that were to be fetched, those that robots.txt denies."""
SHARE_OUT_OF_REACH = 0.136
"""Of the URLs that were to be fetched, those that were left because too many requests to their host had failed."""
URLS_PER_HOST = 52.7
"""2,136 million URLs on 40.5 million hosts."""
SIZE_TAIL = 1.4
"""Sizes fall with rank to the power of -0.71 among the 500 largest domains: the tail of a Pareto distribution with this
exponent."""
BODY_BYTES = (20_000, 80_000, 180_000, 460_000)
"""400 TB in 2,160 million pages, which is 185,000 bytes on average: the simulated web has bodies of these sizes."""

# Assumptions
LATENCY_MEDIAN_S = 0.12
LATENCY_SIGMA = 0.7
LATENCY_MAX_S = 5.0
LATENCY_MEAN_S = 0.2
"""Of an answer, with the way there, worked out from the two above."""
WAY_S_MAX = 0.35
"""How long a request may be on its way to a host. The law of contact allows half a second for it (`LEASE_MARGIN_S`)."""
CONNECT_S_MAX = 0.3
SHARE_HOSTS_WITH_DELAY = 0.05
SHARE_HOSTS_WITH_RULES = 0.3
SHARE_HOSTS_WITHOUT_ROBOTS = 0.3
SHARE_HOSTS_ROBOTS_ELSEWHERE = 0.02
SHARE_MOVED_ELSEWHERE = 0.3
"""Of the URLs that have moved, those that have moved to another host."""
OUTAGE_S_MEAN = 3_600.0
"""How much longer a host that is out of reach at the beginning stays so."""
SHARE_HOSTS_ROBOTS_BROKEN = 0.01
ROBOTS_BROKEN_S_MEAN = 300.0
"""Hosts whose robots.txt is answered with 503 at the beginning, and for how long."""
SHARE_HOSTS_OVERLOADED = 0.03
"""Hosts that answer 429 or 503 now and then."""
