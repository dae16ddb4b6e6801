"""Hosts whose leases were lost, for the next nodes that ask.

In the engine's queue they stand behind all hosts that became due in the meantime. This list lets them be given out
sooner. It is only a hint: if it is forgotten, the hosts are still in the queue.
"""

from __future__ import annotations

from collections import defaultdict, deque

LINE_MAX = 1_000
"""How many hosts of a shard are remembered: a leader that no node asks for work would else collect them for ever."""


class LostHosts:
    """The lost hosts by shard, in the order in which their leases ended."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[tuple[float, str]]] = defaultdict(lambda: deque(maxlen=LINE_MAX))

    def add(self, shard: int, host: str, now: float) -> None:
        self._lines[shard].append((now, host))

    def take(self, ended_by: float, most: int) -> tuple[int, list[str]]:
        """Some hosts of one shard whose leases ended no later than `ended_by`, and that shard."""
        shard = next((shard for shard, line in self._lines.items() if line[0][0] <= ended_by), None)
        if shard is None:
            return 0, []
        line = self._lines[shard]
        chosen: list[str] = []
        while line and line[0][0] <= ended_by and len(chosen) < most:
            chosen.append(line.popleft()[1])
        if not line:
            del self._lines[shard]
        return shard, chosen
