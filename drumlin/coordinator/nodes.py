"""The nodes of a crawl: which there are, how they are doing, and which have fallen silent.

A node's record consists of two entries in the engine, so no coordinator can undo what another one knows. The table
"nodes" says who a node is (instance, boot, metadata) and is written only when the node registers, leaves or fails. The
table "beats" says how it is doing. Every coordinator keeps the records of the nodes that talk to it, and writes changed
beats about once a second, however many heartbeats came. Of two entries the later one counts.

The leading coordinator reads both tables now and then and marks silent nodes. People see a silent node as `failed`, and
it gets nothing new, but its leases end only at their deadlines: it may be cut off from us and still at work, and a host
must never have two holders.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from copy import copy
from enum import Enum
from operator import attrgetter

import msgspec

from drumlin.coordinator.breathing import Breathe, go_on
from drumlin.coordinator.totals import RATE_MEMORY_S, lately_of
from drumlin.engines.base import Engine
from drumlin.errors import BusyError
from drumlin.logs import Event
from drumlin.logs import event as logged
from drumlin.logs.events import Happenings
from drumlin.protocol import GONE, NODE_MOVES, PRESENT, Effort, Heartbeat, NodeEvent, NodeRecord, NodeStatus, Register
from drumlin.protocol.nodes import EventsBeat

TABLE = "nodes"
BEATS_TABLE = "beats"
SIZE_KEY = "nodes"
FAILED_KEY = "nodes.failed"
HEARTBEAT_MIN_S = 2.0
HEARTBEAT_MAX_S = 20.0
NODES_PER_HEARTBEAT_S = 500.0
"""How many heartbeats a second all coordinators together should get; nodes of a larger fleet beat less often."""
SILENT_HEARTBEATS = 3
FORGET_AFTER_S = 86_400.0
NODES_AT_ONCE = 250
"""How many records are put together between two breaths. If those of 10,000 nodes were put together in one go, every
node that asks for work would wait for all of them."""
FAILURE = "failure"
"""The key in a node's metadata under which people find why it ended."""
ORDERED = {
    NodeEvent.DRAIN: (logging.INFO, Event.DRAINING, "is to finish what it has and leave"),
    NodeEvent.QUARANTINE: (logging.WARNING, Event.QUARANTINED, "is in quarantine: it is answered nothing"),
    NodeEvent.RELEASE: (logging.INFO, Event.RELEASED, "may work again"),
}
"""What the log says of an order that a node has to follow from now on."""

log = logging.getLogger("drumlin.coordinator")


class Proof(Enum):
    """What a node that registers has proved, apart from knowing its instance."""

    NONE = 0
    """Nothing: this crawl asks for no tokens, or the token is a person's."""
    JOIN_TOKEN = 1
    """That it may join, but not that it is the node that it names."""
    OWN_TOKEN = 2
    """That it is the node that it names."""


class SupersededError(BusyError):
    """A process registers although its own successor has already registered."""


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
    effort: Effort | None = None
    lately: Effort | None = None
    events: EventsBeat | None = None


_AFTER_CALL = NODE_MOVES[NodeEvent.CALLS]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(NodeRecord).decode
_decode_beat = msgspec.msgpack.Decoder(Beat).decode
_beat_values = attrgetter(*Beat.__struct_fields__)


class NodeRegistry:
    """The records of the nodes that talk to this coordinator; `all` reads those of the whole fleet."""

    def __init__(self, heartbeat_s: float | None = None, happened: Happenings | None = None) -> None:
        self._happened = happened or Happenings()
        self._records: dict[str, NodeRecord] = {}
        self._changed: set[str] = set()
        self._heartbeat_s = heartbeat_s
        self.known = 0
        """How many nodes the whole fleet has, as far as this coordinator knows."""
        self.owed = ""
        """What nodes that are gone owe to the store while nothing is left to fetch, in a sentence."""
        self.bundles_owed: tuple[int, float] = (0, 0.0)
        """How many bundles have not arrived in the store, and for how many seconds the oldest is owed; only for the
        coordinator that looks for them."""
        self.names_version = 0
        """Changes whenever a node joins or goes."""
        self._names: tuple[int, list[str]] = (-1, [])
        self._let_go_at = 0.0
        self.reviewed: tuple[float, list[NodeRecord]] | None = None
        """What the last review found, and when; for the leader only."""
        self._failed: dict[str, float] | None = None
        """The nodes that had failed at the last review by any leader, and when each had registered; None: to be read
        from the engine."""
        self._decoded: dict[str, tuple[bytes | None, bytes | None, NodeRecord]] = {}
        """The entries of each node as they were last read, and the record that they make: most stay as they are for
        many seconds, and to decode those of 10,000 nodes each second would be a tenth of a core."""

    def __repr__(self) -> str:
        statuses = Counter(str(record.status) for record in self._records.values())
        counts = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
        return f"<NodeRegistry {counts or 'no nodes'}; {self.known} nodes in the fleet>"

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, node: str) -> bool:
        return node in self._records

    @property
    def heartbeat_s(self) -> float:
        """How often each node should send a heartbeat; the same for all, and rarer in a larger fleet."""
        if self._heartbeat_s is not None:
            return self._heartbeat_s
        return heartbeat_s_of(max(self.known, len(self._records)))

    def get(self, node: str) -> NodeRecord | None:
        return self._records.get(node)

    def records(self) -> list[NodeRecord]:
        return list(self._records.values())

    def names(self) -> list[str]:
        """The nodes that talk to this coordinator and may be given work."""
        if self._names[0] != self.names_version:
            active = [record.node_id for record in self._records.values() if record.status is NodeStatus.ACTIVE]
            self._names = (self.names_version, active)
        return self._names[1]

    async def find(self, engine: Engine, node: str) -> NodeRecord | None:
        """A node's record; read from the engine if the node has not talked to this coordinator yet."""
        record = self._records.get(node)
        if record is None:
            found = await self._read(engine, node)
            if found is not None:
                # Another request may have added it while we read.
                record = self._records.setdefault(node, found)
                self.names_version += 1
        return record

    async def gone_among(self, engine: Engine, nodes: Iterable[str]) -> set[str]:
        """Those of these nodes that are not at work. One that left here may have joined elsewhere: the engine knows."""
        found = {node: await self.find(engine, node) for node in nodes}
        found |= {node: await self.stored(engine, node) for node, one in found.items() if one and one.status in GONE}
        return {node for node, record in found.items() if record is None or record.status in GONE}

    async def stored(self, engine: Engine, node: str) -> NodeRecord | None:
        """A node's record as the engine has it; or our own, if it is newer because the engine lost its last write."""
        found, own = await self._read(engine, node), self._records.get(node)
        if found is None or own is None:
            return found or own
        return own if own.registered_at > found.registered_at else _later(found, own)

    async def _read(self, engine: Engine, node: str) -> NodeRecord | None:
        return _record(node, await engine.get_entry(TABLE, node), await engine.get_entry(BEATS_TABLE, node))

    async def has_registered(self, engine: Engine, node: str) -> bool:
        """Whether the node has ever registered, rather than just called."""
        record = await self.find(engine, node)
        return record is not None and record.registered_at > 0

    async def recovers(self, engine: Engine, node: str) -> bool:
        """Whether the node still sends what earlier processes have left, and so has not begun to send bundles."""
        record = await self.stored(engine, node)
        return record is not None and not record.released

    async def has_left(self, engine: Engine, node: str) -> bool:
        record = await self.find(engine, node)
        return record is not None and record.status is NodeStatus.INACTIVE

    def register(self, node: str, message: Register, address: str, before: NodeRecord | None, now: float) -> NodeRecord:
        """Make the record of a node that registers. It takes effect when `keep` writes it."""
        status = NODE_MOVES[NodeEvent.REGISTERS].get(before.status, before.status) if before else NodeStatus.ACTIVE
        return NodeRecord(
            node_id=node,
            ip_address=message.ip_address or address,
            last_seen=now,
            status=status,
            capacity=message.capacity,
            current_load=0.0,
            total_crawled=before.total_crawled if before else 0,
            registered_at=now,
            metadata=message.metadata,
            instance=message.instance or (before.instance if before else ""),
            boot=message.boot,
        )

    def joined(self, node: str, address: str, *, again: bool) -> None:
        """A node is at work; `again` if the same process was before, and only registers anew."""
        log.info("node %s joined from %s", node, address or "here", extra=logged(Event.JOINED, node=node))
        if not again:
            self._happened.note(Event.JOINED, node)

    def note_order(self, record: NodeRecord, event: NodeEvent) -> None:
        """Note what a person, or a coordinator, orders of a node, if that changes anything."""
        if event in ORDERED and NODE_MOVES[event].get(record.status, record.status) is not record.status:
            self._happened.note(ORDERED[event][1], record.node_id)

    def check_entry(self, before: NodeRecord, message: Register, successor: bool, proof: Proof, now: float) -> None:
        """Refuse a node whose name another node uses. It may always take its own name: it shows the instance, which
        only a successor knows, or the node's own token. A crawl without tokens believes a node that has no instance."""
        node = before.node_id
        if successor and message.boot < before.boot:
            raise SupersededError(f"A later process of node {node} is at work.", "There is nothing to do.")
        if successor or proof is Proof.OWN_TOKEN:
            return
        there = before.status not in GONE if proof is Proof.JOIN_TOKEN else self._is_at_work(before, now)
        if there and (before.instance or proof is Proof.JOIN_TOKEN):
            raise BusyError(f"Another node called {node} is at work.", "Give this one another --name.")

    def _is_at_work(self, record: NodeRecord, now: float) -> bool:
        return now - record.last_seen < SILENT_HEARTBEATS * self.heartbeat_s

    async def keep(self, engine: Engine, record: NodeRecord) -> None:
        """Write who a node is, for all coordinators."""
        self._records[record.node_id] = record
        self._touch(record)
        await engine.put_entries(TABLE, {record.node_id: _encode(record)})

    async def seen(self, engine: Engine, node: str, now: float) -> NodeRecord:
        """Note that a node has called: it is present, even if it was thought to be gone. A node that never registered,
        for instance a worker that a person drives, gets a record too, which is stored in its beats alone."""
        record = await self.find(engine, node)
        if record is None:
            record = self._records.setdefault(node, _unregistered(node))
            self._touch(record)
        elif (status := _AFTER_CALL.get(record.status)) is not None:
            record.status = status
            self._touch(record)
        record.last_seen = max(now, record.last_seen)
        return record

    async def beat(self, engine: Engine, node: str, beat: Heartbeat, now: float) -> NodeRecord:
        before = await self.find(engine, node)
        # Rates are counted between heartbeats, not from `last_seen`, which every call changes.
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
        record.lately = lately_of(record.lately, record.effort, beat.effort)
        record.effort, record.events = beat.effort, beat.events
        record.last_beat = now
        self._changed.add(node)
        return record

    def change(self, node: str, event: NodeEvent) -> None:
        """What happened to a node that talks to this coordinator changes its status as `NODE_MOVES` says."""
        record = self._records.get(node)
        status = NODE_MOVES[event].get(record.status) if record is not None else None
        if record is not None and status is not None and record.status is not status:
            record.status = status
            self._touch(record)
            if event in ORDERED:
                level, kind, sentence = ORDERED[event]
                log.log(level, "node %s %s", node, sentence, extra=logged(kind, node=node))

    async def leave(self, engine: Engine, node: str, now: float) -> None:
        """A node leaves cleanly: it stays in the list, as inactive, until it is forgotten. This is written at once with
        the present time, so older beats that another coordinator has yet to write do not count any more."""
        record = await self.stored(engine, node)
        if record is not None:
            _end(record, NodeEvent.LEAVES)
            record.last_seen = now
            await self.keep(engine, record)
            log.info("node %s left", node, extra=logged(Event.LEFT, node=node))
            self._happened.note(Event.LEFT, node)

    async def note_failure(self, engine: Engine, node: str, sentence: str) -> None:
        """Note why a node cannot go on. People find this in its record until it registers again."""
        record = await self.stored(engine, node)
        if record is not None:
            record.metadata = {**record.metadata, FAILURE: sentence}
            await self.keep(engine, record)
            self._happened.note(Event.FAILED, node)

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

    async def all(self, engine: Engine, breathe: Breathe = go_on) -> list[NodeRecord]:
        """Every node of the fleet, from the engine's tables or from our own record, whichever is newer."""
        told, beats = await engine.get_entries(TABLE), await engine.get_entries(BEATS_TABLE)
        found: dict[str, NodeRecord] = {}
        for number, node in enumerate(sorted(told.keys() | beats.keys() | self._records.keys())):
            if number % NODES_AT_ONCE == 0:
                await breathe()
            stored, own = self._decode(node, told.get(node), beats.get(node)), self._records.get(node)
            if stored is None or (own is not None and own.registered_at > stored.registered_at):
                stored = own
            elif own is not None:
                stored = _later(stored, own)
            if stored is not None:
                found[node] = stored
        if len(self._decoded) > len(found):
            self._decoded = {node: entry for node, entry in self._decoded.items() if node in found}
        self.known = sum(record.status in PRESENT for record in found.values())
        return list(found.values())

    def _decode(self, node: str, told: bytes | None, beat: bytes | None) -> NodeRecord | None:
        """A record of the caller's own, from what is stored."""
        known = self._decoded.get(node)
        if known is None or known[0] != told or known[1] != beat:
            record = _record(node, told, beat)
            if record is None:
                return None
            known = self._decoded[node] = (told, beat, record)
        return copy(known[2])

    async def follow(self, engine: Engine, now: float, breathe: Breathe, *, leads: bool) -> None:
        """Learn how the fleet is: the leader finds out, and the other coordinators read what it wrote."""
        if leads:
            await self.review(engine, now, breathe)
        else:
            self.reviewed = self._failed = None
            await self.learn_size(engine)

    async def learn_size(self, engine: Engine) -> None:
        """For all but the leader: read how many nodes the fleet has, so all coordinators ask for equally rare
        heartbeats."""
        saved = await engine.get_meta(SIZE_KEY)
        self.known = int(saved) if saved else 0

    async def lose_all(self, engine: Engine) -> list[str]:
        """For a crawl without a running process: mark all nodes that did not leave as failed, and return their
        names."""
        lost = {record.node_id: record for record in await self.all(engine) if record.status in PRESENT}
        for record in lost.values():
            _end(record, _silence(record))
        if lost:
            await engine.put_entries(BEATS_TABLE, {node: _encode(_beat_of(record)) for node, record in lost.items()})
        return list(lost)

    async def review(self, engine: Engine, now: float, breathe: Breathe = go_on) -> None:
        """For the leader: mark nodes that have fallen silent, forget those that are long gone, and write how many nodes
        there are. A node that has called since its record was read is not silent."""
        silent_s = SILENT_HEARTBEATS * self.heartbeat_s
        failed: dict[str, bytes] = {}
        gone: list[str] = []
        records = await self.all(engine, breathe)
        for record in records:
            own = self._records.get(record.node_id)
            if now - max(record.last_seen, own.last_seen if own is not None else 0.0) <= silent_s:
                continue
            if now - record.last_seen > FORGET_AFTER_S:
                gone.append(record.node_id)
            elif record.status in PRESENT:
                self._note_silence(record, now)
                failed[record.node_id] = _encode(_beat_of(record))
                if own is not None:
                    own.status = record.status
                    _clear_figures(own)
                    self._touch(own)
        await self._note_returns(engine, records)
        self.reviewed = now, records
        await engine.put_meta(SIZE_KEY, b"%d" % self.known)
        if failed:
            await engine.put_entries(BEATS_TABLE, failed)
        if gone:
            await engine.delete_entries(TABLE, gone)
            await engine.delete_entries(BEATS_TABLE, gone)
            for node in gone:
                self._records.pop(node, None)

    def _note_silence(self, record: NodeRecord, now: float) -> None:
        meaning = _silence(record)
        _end(record, meaning)
        if meaning is NodeEvent.FALLS_SILENT:
            silent_s = now - record.last_seen
            sentence = "node %s has said nothing for %.0f s; its hosts go to others when its leases end"
            log.warning(sentence, record.node_id, silent_s, extra=logged(Event.SILENT, node=record.node_id))
            self._happened.note(Event.SILENT, record.node_id)

    async def _note_returns(self, engine: Engine, records: list[NodeRecord]) -> None:
        """Say which nodes are back that had failed at the last review, so alarms about their silence can end. The
        engine keeps which had, since another coordinator may lead by then."""
        if self._failed is None:
            saved = await engine.get_meta(FAILED_KEY)
            self._failed = msgspec.msgpack.decode(saved, type=dict[str, float]) if saved else {}
        before = self._failed
        for record in records:
            node = record.node_id
            if node in before and record.status in PRESENT:
                log.warning("node %s is back", node, extra=logged(Event.BACK, node=node))
                if record.registered_at == before[node]:
                    # Otherwise another process has joined under its name, which was noted then.
                    self._happened.note(Event.BACK, node)
        self._failed = {one.node_id: one.registered_at for one in records if one.status is NodeStatus.FAILED}
        if self._failed != before:
            await engine.put_meta(FAILED_KEY, msgspec.msgpack.encode(self._failed))

    def let_go(self, now: float) -> None:
        """Drop the records of nodes that have not talked to this coordinator for long. A look at all of them once in a
        heartbeat's time is enough."""
        if now < self._let_go_at:
            return
        self._let_go_at = now + self.heartbeat_s
        silent_s = 2 * SILENT_HEARTBEATS * self.heartbeat_s
        for record in [one for one in self._records.values() if now - one.last_seen > silent_s]:
            if record.node_id not in self._changed:
                del self._records[record.node_id]
                self.names_version += 1


def heartbeat_s_of(nodes: int) -> float:
    """How often each of so many nodes should send a heartbeat."""
    return min(HEARTBEAT_MAX_S, max(HEARTBEAT_MIN_S, nodes / NODES_PER_HEARTBEAT_S))


def _end(record: NodeRecord, event: NodeEvent) -> None:
    """Mark a node as not at work any more, and clear its figures."""
    record.status = NODE_MOVES[event].get(record.status, record.status)
    _clear_figures(record)


def _clear_figures(record: NodeRecord) -> None:
    """Figures described the node at work; they say nothing of one that is gone."""
    record.leases = record.unstarted = 0
    record.current_load = record.pages_per_s = record.lag_s = 0.0
    record.lately = record.events = None


def _silence(record: NodeRecord) -> NodeEvent:
    """What the silence of a node means. A worker that a person or a script drives never sends
    heartbeats, so its silence does not mean that it failed."""
    return NodeEvent.FALLS_SILENT if record.instance or record.last_beat else NodeEvent.RESTS


def _unregistered(node: str) -> NodeRecord:
    return NodeRecord(node, "", 0.0, NodeStatus.ACTIVE, 0.0, 0.0, 0, 0.0, {})


def _record(node: str, told: bytes | None, beat: bytes | None) -> NodeRecord | None:
    """The record that the entries of the two tables make together."""
    if told is None and beat is None:
        return None
    record = _decode(told) if told is not None else _unregistered(node)
    return _later(record, _decode_beat(beat)) if beat is not None else record


def _beat_of(record: NodeRecord) -> Beat:
    return Beat(*_beat_values(record))


def _later(record: NodeRecord, beat: Beat | NodeRecord) -> NodeRecord:
    """The record with this beat, unless the record is newer."""
    if beat.last_seen >= record.last_seen:
        for name, value in zip(Beat.__struct_fields__, _beat_values(beat), strict=True):
            setattr(record, name, value)
    return record
