"""Which nodes lack work ("are hungry"), so others share their hosts with them.

This is for crawls without a delay, where nodes limit the speed. With a delay hosts do; `giving.shares` is for those.
"""

from __future__ import annotations

import itertools

from drumlin.protocol import NodeRecord

LITTLE_WORK_S = 0.3
"""About as long as a host takes to change nodes: its present node first settles what it has fetched."""
FEW_HOSTS_SHARE = 0.5
LATELY_S = 0.25
LOOKED_AT = 8


class Hunger:
    """The nodes that lately asked for hosts and still have hardly any work, or far fewer hosts than their share."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._hosts_each = 0.0
        self._lately_s = LATELY_S

    def count(self, hosts: int, nodes: int, wait_s: float) -> None:
        """Note that `hosts` hosts are leased by `nodes` nodes, and that a node which got nothing waits for at most
        `wait_s`: it is hungry until it asks again."""
        self._hosts_each = hosts / max(1, nodes)
        self._lately_s = LATELY_S + wait_s

    def answered(self, record: NodeRecord, unstarted: int, given: int, now: float) -> None:
        """Note that a node with `unstarted` URLs asked for hosts and was `given` so many URLs."""
        self._forget_some(now)
        self._since.pop(record.node_id, None)
        little = unstarted + given <= LITTLE_WORK_S * record.pages_per_s
        if little or (not given and record.leases < FEW_HOSTS_SHARE * self._hosts_each):
            self._since[record.node_id] = now

    def felt(self, now: float, *, but: str = "") -> bool:
        """Whether any node other than `but` is hungry."""
        self._forget_some(now)
        return any(node != but and now - since <= self._lately_s for node, since in self._first())

    def _first(self) -> list[tuple[str, float]]:
        """Those that asked longest ago."""
        return list(itertools.islice(self._since.items(), LOOKED_AT))

    def _forget_some(self, now: float) -> None:
        for node, since in self._first():
            if now - since > self._lately_s:
                del self._since[node]
