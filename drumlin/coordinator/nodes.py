"""The nodes of a crawl: who is there, how they do, and who has fallen silent.

A node's record is made of two entries in the engine, so that no coordinator can undo what another one knows. Table
"nodes" says who a node is (instance, boot, what it was told), and is written only when the node registers or leaves.
Table "beats" says how it does. Every coordinator keeps the records of the nodes that talk to it and writes the beats
that changed about once a second, however many heartbeats came. Of two entries the later counts.

The leading coordinator reads both tables now and then and marks the silent. A silent node is `failed` to people, and
gets nothing new, but its leases end only at their deadlines: it may be cut off from us and still at work, and a host
must never have two holders.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from drumlin.engines.base import Engine
from drumlin.protocol import Heartbeat, NodeRecord, NodeStatus, Register

TABLE = "nodes"
BEATS_TABLE = "beats"
SIZE_KEY = "nodes"
HEARTBEAT_MIN_S = 2.0
HEARTBEAT_MAX_S = 20.0
NODES_PER_HEARTBEAT_S = 500.0
"""Heartbeats a second that all coordinators together should see: a larger fleet's come less often."""
SILENT_HEARTBEATS = 3
FORGET_AFTER_S = 86_400.0
RATE_MEMORY_S = 10.0
FAILURE = "failure"
"""The word in a node's metadata under which people find why it ended."""
PRESENT = frozenset({NodeStatus.ACTIVE, NodeStatus.DRAINING})
GONE = frozenset({NodeStatus.FAILED, NodeStatus.INACTIVE})


class Beat(msgspec.Struct, array_like=True):
    """The part of a record that changes as the node works."""

    last_seen: float
    status: NodeStatus
    current_load: float
    total_crawled: int
    leases: int
    unstarted: int
    total_bytes: int
    pages_per_s: float
    unanswered: int = 0
    lag_s: float = 0.0
    config_version: int | None = None
    last_beat: float = 0.0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(NodeRecord).decode
_decode_beat = msgspec.msgpack.Decoder(Beat).decode


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
            found = await self._read(engine, node)
            if found is not None:
                # Another request may have brought it while we looked.
                record = self._records.setdefault(node, found)
                self.names_version += 1
        return record

    async def gone_among(self, engine: Engine, nodes: Iterable[str]) -> set[str]:
        """Those of these nodes that are known to be at work no more, or not known at all."""
        found = {node: await self.find(engine, node) for node in nodes}
        return {node for node, record in found.items() if record is None or record.status in GONE}

    async def stored(self, engine: Engine, node: str) -> NodeRecord | None:
        """A node's record as all coordinators know it; as this one does, where the engine has lost the last one."""
        found, own = await self._read(engine, node), self._records.get(node)
        if found is None or own is None:
            return found or own
        return own if own.registered_at > found.registered_at else _later(found, own)

    async def _read(self, engine: Engine, node: str) -> NodeRecord | None:
        return _record(node, await engine.get_entry(TABLE, node), await engine.get_entry(BEATS_TABLE, node))

    async def has_registered(self, engine: Engine, node: str) -> bool:
        """Whether the node is known by more than its calls."""
        record = await self.find(engine, node)
        return record is not None and record.registered_at > 0

    def register(self, node: str, message: Register, address: str, before: NodeRecord | None, now: float) -> NodeRecord:
        """A record for a node that registers; it counts once it is written with `keep`."""
        quarantined = before is not None and before.status is NodeStatus.QUARANTINED
        return NodeRecord(
            node_id=node,
            ip_address=message.ip_address or address,
            last_seen=now,
            status=NodeStatus.QUARANTINED if quarantined else NodeStatus.ACTIVE,
            capacity=message.capacity,
            current_load=0.0,
            total_crawled=before.total_crawled if before else 0,
            registered_at=now,
            metadata=message.metadata,
            instance=message.instance or (before.instance if before else ""),
            boot=message.boot,
        )

    async def keep(self, engine: Engine, record: NodeRecord) -> None:
        """Have every coordinator know who a node is from now on."""
        self._records[record.node_id] = record
        self._touch(record)
        await engine.put_entries(TABLE, {record.node_id: _encode(record)})

    async def seen(self, engine: Engine, node: str, now: float) -> NodeRecord:
        """A node talks to us: it is there, whatever was thought of it. One that never registered, a worker that a
        person drives, is known by its beats alone."""
        record = await self.find(engine, node)
        if record is None:
            record = self._records.setdefault(node, _unregistered(node))
            self._touch(record)
        elif record.status in (NodeStatus.FAILED, NodeStatus.INACTIVE):
            record.status = NodeStatus.ACTIVE
            self._touch(record)
        record.last_seen = max(now, record.last_seen)
        return record

    async def beat(self, engine: Engine, node: str, beat: Heartbeat, now: float) -> NodeRecord:
        before = await self.find(engine, node)
        # Every call counts as seen; only the time between two heartbeats is what their figures are of.
        since_s = now - (before.last_beat or before.registered_at or now) if before else 0.0
        crawled = before.total_crawled if before else 0
        record = await self.seen(engine, node, now)
        if since_s > 0:
            rate = max(0, beat.total_crawled - crawled) / since_s
            weight = min(1.0, since_s / RATE_MEMORY_S)
            record.pages_per_s += (rate - record.pages_per_s) * weight
        record.current_load, record.total_crawled, record.total_bytes = (
            beat.current_load,
            beat.total_crawled,
            beat.total_bytes,
        )
        record.leases, record.unstarted = beat.hosts, beat.unstarted
        record.unanswered, record.lag_s = beat.unanswered, beat.lag_s
        record.config_version = beat.config_version
        record.last_beat = now
        self._changed.add(node)
        return record

    def set_status(self, node: str, status: NodeStatus) -> None:
        record = self._records.get(node)
        if record is not None and record.status is not status:
            record.status = status
            self._touch(record)

    async def leave(self, engine: Engine, node: str, now: float) -> None:
        """A node leaves cleanly: it stays in the list, as inactive, until it is forgotten. Written at once and as of
        now, so that no beat that another coordinator still has to write counts any more."""
        record = await self.stored(engine, node)
        if record is not None:
            record.status, record.last_seen = NodeStatus.INACTIVE, now
            await self.keep(engine, record)

    async def note_failure(self, engine: Engine, node: str, sentence: str) -> None:
        """A node says why it cannot go on. People find it in its record until it registers again."""
        record = await self.stored(engine, node)
        if record is not None:
            record.metadata = {**record.metadata, FAILURE: sentence}
            await self.keep(engine, record)

    def _touch(self, record: NodeRecord) -> None:
        self._changed.add(record.node_id)
        self.names_version += 1

    # With the engine

    async def flush(self, engine: Engine) -> None:
        """Write what changed since the last time, in one go."""
        changed, self._changed = self._changed, set()
        entries = {node: _encode(_beat_of(self._records[node])) for node in changed if node in self._records}
        if entries:
            await engine.put_entries(BEATS_TABLE, entries)

    async def all(self, engine: Engine) -> list[NodeRecord]:
        """Every node of the fleet; where this coordinator heard of one later than the table, as it knows it."""
        told, beats = await engine.get_entries(TABLE), await engine.get_entries(BEATS_TABLE)
        found: dict[str, NodeRecord] = {}
        for node in told.keys() | beats.keys():
            if (record := _record(node, told.get(node), beats.get(node))) is not None:
                found[node] = record
        for node, own in self._records.items():
            stored = found.get(node)
            lost = stored is None or own.registered_at > stored.registered_at
            found[node] = own if stored is None or lost else _later(stored, own)
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
                failed[record.node_id] = _encode(_beat_of(record))
                self.set_status(record.node_id, NodeStatus.FAILED)
        await engine.put_meta(SIZE_KEY, b"%d" % self.known)
        if failed:
            await engine.put_entries(BEATS_TABLE, failed)
        if gone:
            await engine.delete_entries(TABLE, gone)
            await engine.delete_entries(BEATS_TABLE, gone)
            for node in gone:
                self._records.pop(node, None)

    def let_go(self, now: float) -> None:
        """Drop the records of nodes that have long been talking to another coordinator."""
        silent_s = 2 * SILENT_HEARTBEATS * self.heartbeat_s
        for record in [one for one in self._records.values() if now - one.last_seen > silent_s]:
            if record.node_id not in self._changed:
                del self._records[record.node_id]
                self.names_version += 1


def _unregistered(node: str) -> NodeRecord:
    return NodeRecord(node, "", 0.0, NodeStatus.ACTIVE, 0.0, 0.0, 0, 0.0, {})


def _record(node: str, told: bytes | None, beat: bytes | None) -> NodeRecord | None:
    """A record of what the two tables say."""
    if told is None and beat is None:
        return None
    record = _decode(told) if told is not None else _unregistered(node)
    return _later(record, _decode_beat(beat)) if beat is not None else record


def _beat_of(record: NodeRecord) -> Beat:
    return Beat(*(getattr(record, name) for name in Beat.__struct_fields__))


def _later(record: NodeRecord, beat: Beat | NodeRecord) -> NodeRecord:
    """The record with this beat, unless it knows a later one."""
    if beat.last_seen >= record.last_seen:
        for name in Beat.__struct_fields__:
            setattr(record, name, getattr(beat, name))
    return record
