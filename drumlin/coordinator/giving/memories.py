"""What a coordinator remembers of the nodes that asked it for work: how often each did, and which hosts it had lately.

Nodes may get a new name at each start, so there is no end of names: those of nodes that are gone are forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sized
from typing import Protocol

GONE_MAX = 1_000
"""How many nodes that are gone are remembered at most. To look for them costs a look at all."""
RECENT_HOSTS_MAX = 256


class Names(Sized, Protocol):
    """The nodes that are not gone."""

    def __contains__(self, node: str, /) -> bool: ...


class Memories:
    """The memories of one coordinator."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}
        self._recent: dict[str, deque[str]] = {}

    def __len__(self) -> int:
        """How many nodes are remembered."""
        return len(self._turns.keys() | self._recent.keys())

    def next_turn(self, node: str) -> int:
        """How often the node has asked, with this time."""
        turn = self._turns[node] = self._turns.get(node, 0) + 1
        return turn

    def recent(self, node: str) -> Collection[str]:
        """The hosts that the node had lately, as far as they were noted."""
        return self._recent.get(node, ())

    def note(self, node: str, hosts: Iterable[str]) -> None:
        self._recent.setdefault(node, deque(maxlen=RECENT_HOSTS_MAX)).extend(hosts)

    def forget_gone(self, present: Names) -> None:
        """Forget nodes that are not among those present, if there are many."""
        if max(len(self._turns), len(self._recent)) > len(present) + GONE_MAX:
            self._turns = {node: turn for node, turn in self._turns.items() if node in present}
            self._recent = {node: hosts for node, hosts in self._recent.items() if node in present}
