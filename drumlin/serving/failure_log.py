"""What the log of a coordinator says of nodes that cannot go on.

A node reports its failure once and ends. But a node that is broken or hostile could report failures without end, and so
fill the disk of its coordinator. Hence each node is told of once a minute, and there is a limit for all nodes together,
since somebody with a join token can make up as many nodes as he likes.
"""

from __future__ import annotations

import logging

from drumlin.logs import Event, event
from drumlin.protocol import Failure

TOLD_EVERY_S = 60.0
NODES_TOLD_MAX = 100
"""How many nodes are told of within TOLD_EVERY_S."""

log = logging.getLogger("drumlin.coordinator")


class FailureLog:
    """Writes failures of nodes to the log. `now` must be a time that never goes back."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._untold = 0

    def note(self, failure: Failure, now: float) -> None:
        if not self._is_news(failure.node_id, now):
            self._untold += 1
            return
        others = f" ({self._untold} more failures of nodes were not logged)" if self._untold else ""
        self._untold = 0
        said = event(Event.FAILED, node=failure.node_id)
        log.error("node %s failed: %s %s%s", failure.node_id, failure.message, failure.hint, others, extra=said)

    def _is_news(self, node_id: str, now: float) -> bool:
        self._told = {node: told for node, told in self._told.items() if now - told < TOLD_EVERY_S}
        if node_id in self._told or len(self._told) >= NODES_TOLD_MAX:
            return False
        self._told[node_id] = now
        return True
