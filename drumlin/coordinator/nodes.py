"""The nodes of a crawl: who is there, how they do, and who has fallen silent.

Every coordinator keeps the records of the nodes that talk to it and writes what changed to the engine's table "nodes"
about once a second, however many heartbeats came; the leading coordinator reads the whole table now and then and marks
the silent. A silent node is `failed` to people, and gets nothing new, but its leases end only at their deadlines: it
may be cut off from us and still at work, and a host must never have two holders.
"""

from __future__ import annotations

import msgspec

from drumlin.engines.base import Engine
from drumlin.protocol import Heartbeat, NodeRecord, NodeStatus, Register

TABLE = "nodes"
SIZE_KEY = "nodes"
HEARTBEAT_MIN_S = 2.0
HEARTBEAT_MAX_S = 20.0
NODES_PER_HEARTBEAT_S = 500.0
"""Heartbeats a second that all coordinators together should see: a larger fleet's come less often."""
SILENT_HEARTBEATS = 3
FORGET_AFTER_S = 86_400.0
RATE_MEMORY_S = 10.0
PRESENT = frozenset({NodeStatus.ACTIVE, NodeStatus.DRAINING})

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(NodeRecord).decode


class NodeRegistry:
    """The records of the nodes that talk to this coordinator, and a look at all."""

    def __init__(self, heartbeat_s: float | None = None) -> None:
        self._records: dict[str, NodeRecord] = {}
        self._changed: set[str] = set()
        self._heartbeat_s = heartbeat_s
        self.known = 0
        """How many nodes the whole fleet has, as far as this coordinator knows."""
        self.names_version = 0
        """Changes whenever a node joins or goes."""
        self._names: tuple[int, list[str]] = (-1, [])

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, node: str) -> bool:
        return node in self._records

    @property
    def heartbeat_s(self) -> float:
        """How often each node should send a heartbeat; the same for all, and rarer in a larger fleet."""
        if self._heartbeat_s is not None:
            return self._heartbeat_s
        return min(HEARTBEAT_MAX_S, max(HEARTBEAT_MIN_S, max(self.known, len(self._records)) / NODES_PER_HEARTBEAT_S))

    def get(self, node: str) -> NodeRecord | None:
        return self._records.get(node)

    def records(self) -> list[NodeRecord]:
        return list(self._records.values())

    def names(self) -> list[str]:
        """Nodes of this coordinator that may be given work."""
        if self._names[0] != self.names_version:
            active = [record.node_id for record in self._records.values() if record.status is NodeStatus.ACTIVE]
            self._names = (self.names_version, active)
        return self._names[1]

    async def find(self, engine: Engine, node: str) -> NodeRecord | None:
        """A node's record, from the engine when it has not talked to this coordinator yet."""
        record = self._records.get(node)
        if record is None:
            value = await engine.get_entry(TABLE, node)
            if value is not None:
                record = self._records.setdefault(node, _decode(value))
                self.names_version += 1
        return record

    async def stored(self, engine: Engine, node: str) -> NodeRecord | None:
        """A node's record as all coordinators know it, or as this one does if it heard of a later process."""
        value = await engine.get_entry(TABLE, node)
        own = self._records.get(node)
        found = _decode(value) if value is not None else None
        if found is None or own is None:
            return found or own
        return max(found, own, key=lambda record: (record.boot, record.released, record.last_seen))

    def register(self, node: str, message: Register, address: str, now: float) -> NodeRecord:
        before = self._records.get(node)
        record = NodeRecord(
            node_id=node,
            ip_address=message.ip_address or address,
            last_seen=now,
            status=NodeStatus.ACTIVE,
            capacity=message.capacity,
            current_load=0.0,
            total_crawled=before.total_crawled if before else 0,
            registered_at=now,
            metadata=message.metadata,
            instance=message.instance,
            boot=message.boot,
        )
        if before is not None and before.status is NodeStatus.QUARANTINED:
            record.status = NodeStatus.QUARANTINED
        self._records[node] = record
        self._touch(record)
        return record

    def seen(self, node: str, now: float) -> NodeRecord:
        """A node talks to us: it is there, whatever was thought of it."""
        record = self._records.get(node)
        if record is None:
            metadata: dict[str, str] = {}
            record = NodeRecord(node, "", now, NodeStatus.ACTIVE, 0.0, 0.0, 0, now, metadata)
            self._records[node] = record
            self._touch(record)
        elif record.status in (NodeStatus.FAILED, NodeStatus.INACTIVE):
            record.status = NodeStatus.ACTIVE
            self._touch(record)
        record.last_seen = now
        return record

    def beat(self, node: str, beat: Heartbeat, now: float) -> NodeRecord:
        record = self._records.get(node)
        since_s = now - record.last_seen if record else 0.0
        before = record.total_crawled if record else 0
        record = self.seen(node, now)
        if since_s > 0:
            rate = max(0, beat.total_crawled - before) / since_s
            weight = min(1.0, since_s / RATE_MEMORY_S)
            record.pages_per_s += (rate - record.pages_per_s) * weight
        record.current_load, record.total_crawled, record.total_bytes = (
            beat.current_load,
            beat.total_crawled,
            beat.total_bytes,
        )
        record.leases, record.unstarted = beat.hosts, beat.unstarted
        record.unanswered, record.lag_s = beat.unanswered, beat.lag_s
        self._changed.add(node)
        return record

    def set_status(self, node: str, status: NodeStatus) -> None:
        record = self._records.get(node)
        if record is not None and record.status is not status:
            record.status = status
            self._touch(record)

    def leave(self, node: str) -> None:
        """A node leaves cleanly: it stays in the list, as inactive, until it is forgotten."""
        self.set_status(node, NodeStatus.INACTIVE)

    def _touch(self, record: NodeRecord) -> None:
        self._changed.add(record.node_id)
        self.names_version += 1

    # With the engine

    async def flush(self, engine: Engine) -> None:
        """Write what changed since the last time, in one go."""
        changed, self._changed = self._changed, set()
        entries = {node: _encode(self._records[node]) for node in changed if node in self._records}
        if entries:
            await engine.put_entries(TABLE, entries)

    async def all(self, engine: Engine) -> list[NodeRecord]:
        """Every node of the fleet; where this coordinator heard of one later than the table, as it knows it."""
        found = {node: _decode(value) for node, value in (await engine.get_entries(TABLE)).items()}
        for node, own in self._records.items():
            stored = found.get(node)
            if stored is None or own.last_seen >= stored.last_seen:
                found[node] = own
        self.known = sum(record.status in PRESENT for record in found.values())
        return sorted(found.values(), key=lambda record: record.node_id)

    async def learn_size(self, engine: Engine) -> None:
        """For all but the leader: how many nodes the whole fleet has, so that heartbeats are as rare everywhere."""
        saved = await engine.get_meta(SIZE_KEY)
        self.known = int(saved) if saved else 0

    async def review(self, engine: Engine, now: float) -> None:
        """For the leader: mark nodes that have fallen silent, forget those that are long gone, and say how many are
        there."""
        silent_s = SILENT_HEARTBEATS * self.heartbeat_s
        failed: dict[str, bytes] = {}
        gone: list[str] = []
        for record in await self.all(engine):
            if now - record.last_seen > FORGET_AFTER_S:
                gone.append(record.node_id)
            elif record.status in PRESENT and now - record.last_seen > silent_s:
                record.status = NodeStatus.FAILED
                failed[record.node_id] = _encode(record)
                self.set_status(record.node_id, NodeStatus.FAILED)
        await engine.put_meta(SIZE_KEY, b"%d" % self.known)
        if failed:
            await engine.put_entries(TABLE, failed)
        if gone:
            await engine.delete_entries(TABLE, gone)
            for node in gone:
                self._records.pop(node, None)

    def let_go(self, now: float) -> None:
        """Drop the records of nodes that have long been talking to another coordinator."""
        silent_s = 2 * SILENT_HEARTBEATS * self.heartbeat_s
        for record in [one for one in self._records.values() if now - one.last_seen > silent_s]:
            if record.node_id not in self._changed:
                del self._records[record.node_id]
                self.names_version += 1
