"""How many nodes ask for work, and what follows from that: who shares the hosts, and how long idle nodes wait."""

from __future__ import annotations

import random
from collections.abc import Sequence

from drumlin.coordinator.nodes import NodeRegistry

IDLE_NODES_PER_S = 500.0
"""How often all nodes together would ask if all were idle. The more are, the sooner one of them takes a host that
becomes ready; and hundreds for which there is nothing to do cost coordinators little."""
IDLE_WAIT_MAX_S = 5.0
IDLE_WAIT_VARIES = (0.5, 1.5)
UNWAITED_NODES_MAX = 16
NODES_PER_SHARD_LISTED = 4


class Crowd:
    """The nodes of the crawl, seen as a number."""

    def __init__(self, nodes: NodeRegistry, shard_count: int, chance: random.Random) -> None:
        self._nodes = nodes
        self._listed_max = NODES_PER_SHARD_LISTED * shard_count
        self._chance = chance

    @property
    def size(self) -> int:
        """How many nodes there are, by the latest count of all coordinators or by what this one has heard."""
        return max(self._nodes.known, len(self._nodes))

    @property
    def workers(self) -> int:
        """How many nodes the hosts are shared among."""
        return max(self._nodes.known, len(self._nodes.names() if self._few else self._nodes))

    def listed(self) -> Sequence[str]:
        """The nodes that shards are dealt out to: none if there are many, because listing thousands of them for every
        request is expensive."""
        return self._nodes.names() if self._few else ()

    @property
    def _few(self) -> bool:
        return len(self._nodes) <= self._listed_max

    def idle_wait_s(self) -> float:
        """How long a node that got nothing should wait: thousands of idle nodes must not ask all at once."""
        return self._idle_wait_s_mean() * self._chance.uniform(*IDLE_WAIT_VARIES)

    def idle_wait_s_max(self) -> float:
        """The longest that any node waits that got nothing."""
        return self._idle_wait_s_mean() * max(IDLE_WAIT_VARIES)

    def _idle_wait_s_mean(self) -> float:
        return 0.0 if self.size <= UNWAITED_NODES_MAX else min(IDLE_WAIT_MAX_S, self.size / IDLE_NODES_PER_S)
