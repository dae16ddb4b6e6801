"""The gate that requests pass: each sender's share of the coordinator, and quarantine for those who misbehave.

`limits.Limits` judges; here its verdicts meet the nodes' records, so that a node in quarantine is so for every
coordinator, and people see it: in the list of nodes, in the audit log with the cause and how often, and in metrics.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from drumlin.coordinator.audit import AuditLog
from drumlin.coordinator.auth import Identity, Role
from drumlin.coordinator.bodies import Refused
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.limits import Limits
from drumlin.coordinator.misdeeds import Misdeed
from drumlin.protocol import NodeStatus

# One join token serves a whole fleet, and all of it may start at once.
JOINS_PER_S = 2_000.0
JOINS_BURST = 20_000.0
BYTES_PER_REQUEST = 128 * 1024
"""What a busy node's batches have; together with its other requests it stays far below its share."""
RELEASED_WITHIN_S = 10.0
"""How often a node in quarantine asks whether it was released: so long it takes at most to hear of it."""
QUARANTINE_ACTION = "node.quarantine"
"""What the audit log calls it, whether a person or a coordinator did it; the latter's entries name the node as who."""


class Origin(NamedTuple):
    """Where a request came from, and when by the calendar; for the audit log."""

    address: str
    today: float


NOWHERE = Origin("", 0.0)


class Gate:
    """Lets requests pass, and remembers how their senders behave."""

    def __init__(self, dispatcher: Dispatcher, audit: AuditLog) -> None:
        self._dispatcher = dispatcher
        self._audit = audit
        self.misdeeds: Counter[str] = Counter()
        """What nodes did that no honest one does, as this coordinator has seen it."""
        self.quarantines = 0
        self._limits = Limits()
        self._joins = Limits(requests_per_s=JOINS_PER_S, burst=JOINS_BURST)

    async def admit(self, who: Identity, now: float, origin: Origin = NOWHERE) -> None:
        """Let a request pass, or raise `Refused` with the time to wait."""
        try:
            (self._joins if who.role is Role.JOIN else self._limits).admit(who.subject, now)
        except Refused as refused:
            if refused.code == "quarantined":
                await self._quarantine(who, now, origin)
            elif who.role is Role.NODE:
                self.misdeeds[Misdeed.FLOOD] += 1
            raise
        if who.role is Role.NODE:
            self._refuse_quarantined(who)

    def weigh(self, who: Identity, body_bytes: int, now: float) -> None:
        """Count a large body of a node as several requests, before it is read: reading takes as long as it is large."""
        if who.role is Role.NODE and body_bytes > BYTES_PER_REQUEST:
            self._limits.admit(who.subject, now, cost=body_bytes / BYTES_PER_REQUEST)

    def _refuse_quarantined(self, who: Identity) -> None:
        """A person, or another coordinator, may have put the node into quarantine."""
        record, ordered = self._dispatcher.nodes.get(who.id), self._dispatcher.orders.nodes.get(who.id)
        if NodeStatus.QUARANTINED in (ordered, record.status if record is not None else None):
            hint = "An operator can release it: POST /api/v1/nodes/{id}/release."
            raise Refused(429, "quarantined", "This node is in quarantine.", hint, retry_after_s=RELEASED_WITHIN_S)

    def counted(self, who: Identity, settled: int, now: float) -> None:
        """A batch of results counted in full."""
        self._limits.reported(who.subject, now, settled=settled)

    async def judge(self, who: Identity, now: float, *, settled: int = 0, late: int = 0, foreign: int = 0) -> None:
        """A batch of results did not count in full. People are not judged: they may try things out."""
        if who.role is not Role.NODE:
            return
        self._limits.reported(who.subject, now, settled=settled, late=late, foreign=foreign)
        await self._quarantine_if_due(who, now, NOWHERE)

    async def account(self, who: Identity, now: float, origin: Origin) -> None:
        """Judge what a node did in a call that no honest one does. People are not judged."""
        noted = self._dispatcher.misdeeds.take(who.id)
        if not noted or who.role is not Role.NODE:
            return
        self.misdeeds.update({str(misdeed): count for misdeed, count in noted.items()})
        self._limits.lied(who.subject, now, noted)
        await self._quarantine_if_due(who, now, origin)

    async def _quarantine_if_due(self, who: Identity, now: float, origin: Origin) -> None:
        try:
            self._limits.admit(who.subject, now, cost=0.0)
        except Refused:
            await self._quarantine(who, now, origin)

    async def _quarantine(self, who: Identity, now: float, origin: Origin) -> None:
        """Only nodes have a record to mark; a person's token is merely refused for a while."""
        record = await self._dispatcher.node(who.id) if who.role is Role.NODE else None
        if record is None or record.status is NodeStatus.QUARANTINED:
            return
        self.quarantines += 1
        await self._dispatcher.set_node_status(who.id, NodeStatus.QUARANTINED, now)
        charge = f"{who.id}: {self._limits.charge(who.subject)}"
        await self._audit.record(who, QUARANTINE_ACTION, charge, "done", origin.address, origin.today or now)

    def release(self, node_id: str) -> None:
        """Forget everything held against a node."""
        self._limits.release(Identity(Role.NODE, node_id).subject)
