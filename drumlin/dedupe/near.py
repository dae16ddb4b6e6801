"""Which fingerprints of a domain are within 3 bits of a given one: a tree of packed lists in a key-value store.

A node is one value: a list of at most `NODE_ENTRIES_MAX` entries, each a fingerprint and the reference of its capture.
Every domain starts as one node, so a small domain costs one read and one write. A node that is full splits by
the four quarters of the bits that its path has not fixed yet (16 bits each at the root, then 12, then 9): it becomes a
mark, and each of its entries moves into four children, one per quarter, named by that quarter's bits. Two fingerprints
that differ in at most three bits agree on at least one whole quarter, at every level, so they meet in some leaf:
the search misses nothing. A domain of a million pages has lists of about 15 entries under its root.

Bounds: a search reads at most 4 ** DEPTH_MAX leaves, four unless fingerprints cluster. A full leaf at DEPTH_MAX (256
fingerprints that agree on the same 37 bits) takes no more entries: there, and only there, a neighbour can be missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

DISTANCE_BITS_MAX = 3
"""Fingerprints that differ in at most so many bits are near-duplicates. The quarters of a split depend on it."""

NODE_ENTRIES_MAX = 256
"""A longer list splits. Longer lists cost more bytes per write, shorter ones more reads per search."""

DEPTH_MAX = 3
"""Splits on a path from the root to a leaf."""

SIMHASH_BITS = 64
REFERENCE_BYTES = 8

_ENTRY_BYTES = 8 + REFERENCE_BYTES
_NODE_BYTES_MAX = NODE_ENTRIES_MAX * _ENTRY_BYTES
_STEP_BYTES = 3
_SPLIT = b"split"
_QUARTERS = (b"\0", b"\1", b"\2", b"\3")


class KeyValue(Protocol):
    """Where an index lives. `put_many` is atomic and durable; what it put, the next `get_many` sees."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]: ...

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None: ...


class Fingerprint(NamedTuple):
    """A SimHash to look up and insert: the root node of its domain, and the reference of its capture (8 bytes)."""

    root: bytes
    simhash: int
    reference: bytes


class Match(NamedTuple):
    """The nearest earlier fingerprint: how many bits away, and whose it is."""

    distance: int
    reference: bytes


def place(kv: KeyValue, fingerprints: Sequence[Fingerprint]) -> tuple[list[Match | None], list[tuple[bytes, bytes]]]:
    """The nearest earlier fingerprint of each, and what to write so that these are found from now on.

    Those given earlier in the batch count as earlier. A SimHash that is there already is not inserted again.
    """
    tree = _Tree(kv)
    leaves = tree.load(fingerprints)
    matches = _nearest(fingerprints, leaves, _neighbours_in_batch(fingerprints))
    for fingerprint, match in zip(fingerprints, matches, strict=True):
        if match is None or match.distance > 0:
            tree.insert(fingerprint)
    return matches, tree.changes()


class _Tree:
    """The nodes that one batch touches, read once and written once."""

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv
        self._nodes: dict[bytes, bytes] = {}
        self._changed: set[bytes] = set()

    def load(self, fingerprints: Sequence[Fingerprint]) -> list[bytes]:
        """All entries in the leaves on each fingerprint's paths, reading one level of all paths at a time."""
        nodes = self._nodes
        leaves = [b""] * len(fingerprints)
        level = [(position, fingerprint.root) for position, fingerprint in enumerate(fingerprints)]
        while level:
            wanted = list({key for _, key in level})
            nodes.update((key, node or b"") for key, node in zip(wanted, self._kv.get_many(wanted), strict=True))
            below: list[tuple[int, bytes]] = []
            for position, key in level:
                node = nodes[key]
                if node == _SPLIT:
                    fingerprint = fingerprints[position]
                    below += [(position, child) for child in _children(key, fingerprint.root, fingerprint.simhash)]
                elif node:
                    leaves[position] += node
            level = below
        return leaves

    def insert(self, fingerprint: Fingerprint) -> None:
        entry = fingerprint.simhash.to_bytes(8, "little") + fingerprint.reference
        self._insert(fingerprint.root, fingerprint.root, fingerprint.simhash, entry)

    def changes(self) -> list[tuple[bytes, bytes]]:
        return [(key, self._nodes[key]) for key in self._changed]

    def _insert(self, key: bytes, root: bytes, simhash: int, entry: bytes) -> None:
        # A node that `load` did not read is the child of one that split since, and so was empty.
        node = self._nodes.get(key, b"")
        if node == _SPLIT:
            for child in _children(key, root, simhash):
                self._insert(child, root, simhash, entry)
        elif len(node) < _NODE_BYTES_MAX:
            self._nodes[key] = node + entry
            self._changed.add(key)
        elif len(key) < len(root) + DEPTH_MAX * _STEP_BYTES:
            self._split(key, root, node + entry)

    def _split(self, key: bytes, root: bytes, entries: bytes) -> None:
        self._nodes[key] = _SPLIT
        self._changed.add(key)
        for start in range(0, len(entries), _ENTRY_BYTES):
            entry = entries[start : start + _ENTRY_BYTES]
            simhash = int.from_bytes(entry[:8], "little")
            for child in _children(key, root, simhash):
                self._insert(child, root, simhash, entry)


def _children(key: bytes, root: bytes, simhash: int) -> list[bytes]:
    """The four nodes under a split node where this SimHash belongs."""
    rest, width = simhash, SIMHASH_BITS
    for step in range(len(root), len(key), _STEP_BYTES):
        quarter = width // 4
        shift = key[step] * quarter
        rest = rest & ((1 << shift) - 1) | rest >> shift + quarter << shift
        width -= quarter
    quarter = width // 4
    mask = (1 << quarter) - 1
    return [key + _QUARTERS[index] + (rest >> index * quarter & mask).to_bytes(2, "big") for index in range(4)]


def _neighbours_in_batch(fingerprints: Sequence[Fingerprint]) -> dict[int, list[Match]]:
    """For each fingerprint, by position, the near ones that stand before it in the batch."""
    simhashes = np.array([fingerprint.simhash for fingerprint in fingerprints], np.uint64)
    distances = np.bitwise_count(simhashes[:, None] ^ simhashes)
    found: dict[int, list[Match]] = {}
    for later, earlier in zip(*np.nonzero(np.tril(distances <= DISTANCE_BITS_MAX, -1)), strict=True):
        if fingerprints[later].root == fingerprints[earlier].root:
            match = Match(int(distances[later, earlier]), fingerprints[earlier].reference)
            found.setdefault(int(later), []).append(match)
    return found


def _nearest(
    fingerprints: Sequence[Fingerprint], leaves: list[bytes], in_batch: dict[int, list[Match]]
) -> list[Match | None]:
    """The nearest of each fingerprint's stored candidates and of those before it in the batch; the first if tied."""
    candidates: dict[int, list[Match]] = {}
    entries: npt.NDArray[np.uint64] = np.frombuffer(b"".join(leaves), "<u8").reshape(-1, 2)
    lengths = [len(leaf) // _ENTRY_BYTES for leaf in leaves]
    simhashes = np.array([fingerprint.simhash for fingerprint in fingerprints], np.uint64)
    distances = np.bitwise_count(entries[:, 0] ^ np.repeat(simhashes, lengths))
    hits = np.flatnonzero(distances <= DISTANCE_BITS_MAX)
    positions = np.searchsorted(np.cumsum(lengths), hits, side="right")
    for hit, position in zip(hits.tolist(), positions.tolist(), strict=True):
        reference = int(entries[hit, 1]).to_bytes(REFERENCE_BYTES, "little")
        candidates.setdefault(position, []).append(Match(int(distances[hit]), reference))
    for position, matches in in_batch.items():
        candidates.setdefault(position, []).extend(matches)
    best = {position: min(matches, key=lambda match: match.distance) for position, matches in candidates.items()}
    return [best.get(position) for position in range(len(fingerprints))]
