"""Which shards a node is given hosts from: its own first, so hosts stay with a node while there is work for all.

Shards are dealt out to nodes by rendezvous hashing with an equal share for each: when a node joins or leaves, only
about one share moves. In a fleet with more nodes than shards there are no such shares; each node has a few favourites.
"""

from __future__ import annotations

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

FAVOURITES = 4


class Placement:
    """The shards of each node, worked out again when the nodes change."""

    def __init__(self, shard_count: int) -> None:
        self._shard_count = shard_count
        self._version = -1
        self._own: dict[str, list[int]] = {}

    def own(self, node: str, names: Sequence[str], version: int) -> list[int]:
        """The node's shards. `names` are all nodes, and `version` changes whenever they do; `names` is empty when there
        are too many nodes for shares."""
        if not names or len(names) > self._shard_count:
            return self._favourites(node)
        if version != self._version:
            self._version = version
            self._own = _deal(sorted(names), self._shard_count)
        return self._own.get(node) or self._favourites(node)

    def _favourites(self, node: str) -> list[int]:
        chosen = {_weight(node, turn) % self._shard_count for turn in range(FAVOURITES)}
        return sorted(chosen)


def _deal(names: list[str], shard_count: int) -> dict[str, list[int]]:
    """Give every shard to the node that ranks highest for it among those that have not got their share yet."""
    own: dict[str, list[int]] = {name: [] for name in names}
    share = -(-shard_count // max(1, len(names)))
    for shard in range(shard_count):
        ranked = sorted(names, key=lambda name: _weight(name, shard), reverse=True)
        for name in ranked:
            if len(own[name]) < share:
                own[name].append(shard)
                break
    return own


def _weight(node: str, shard: int) -> int:
    return xxh3_64_intdigest(f"{shard}/{node}".encode())
