"""The gate that requests pass: how much each sender may ask, and quarantine for those who misbehave.

`access.limits` judges. The gate writes its verdicts into the nodes' records, so every coordinator knows of a
quarantine. People see it in the list of nodes, in metrics, and with its cause in the audit log.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import NamedTuple

from drumlin.access.audit import AuditLog
from drumlin.access.limits import RELEASE_HINT, RELEASED_WITHIN_S, Limits
from drumlin.access.misdeeds import Misdeed
from drumlin.access.tokens import Identity, Role
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.http.refusal import Refused
from drumlin.logs import Event, event
from drumlin.protocol import NodeEvent, NodeStatus
from drumlin.protocol.refusals import RefusalCode

# A whole fleet may use one join token, and may start all at once.
JOINS_PER_S = 2_000.0
JOINS_BURST = 20_000.0
BYTES_PER_REQUEST = 128 * 1024
"""The size of a busy node's batches. Larger bodies count as several requests."""
QUARANTINE_ACTION = "node.quarantine"
"""The action in the audit log, whether a person or a coordinator ordered it. In a coordinator's entry the node itself
stands as the one who acted."""

log = logging.getLogger("drumlin.coordinator")


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
        """How often this coordinator saw each misdeed."""
        self.quarantines = 0
        self.refused_results: Counter[str] = Counter()
        """Results of nodes that did not count, by reason."""
        self._limits = Limits()
        self._joins = Limits(requests_per_s=JOINS_PER_S, burst=JOINS_BURST)

    async def admit(self, who: Identity, now: float, origin: Origin = NOWHERE, *, cost: float = 1.0) -> None:
        """Let a request pass, or raise `Refused` with the time to wait. It counts as `cost` requests."""
        try:
            (self._joins if who.role is Role.JOIN else self._limits).admit(who.subject, now, cost=cost)
        except Refused as refused:
            if refused.code == RefusalCode.QUARANTINED:
                await self._quarantine(who, now, origin)
            elif who.role is Role.NODE:
                self.misdeeds[Misdeed.FLOOD] += 1
            raise
        if who.role is Role.NODE:
            self._refuse_quarantined(who)

    def weigh(self, who: Identity, body_bytes: int, now: float) -> None:
        """Count a large body of a node as several requests, before it is decoded: that takes long if it is large."""
        if who.role is Role.NODE and body_bytes > BYTES_PER_REQUEST:
            self._limits.admit(who.subject, now, cost=body_bytes / BYTES_PER_REQUEST)

    def _refuse_quarantined(self, who: Identity) -> None:
        """Refuse a node that a person or another coordinator has put into quarantine."""
        record, ordered = self._dispatcher.nodes.get(who.id), self._dispatcher.orders.nodes.get(who.id)
        if NodeStatus.QUARANTINED in (ordered, record.status if record is not None else None):
            raise Refused(
                429,
                RefusalCode.QUARANTINED,
                "This node is in quarantine.",
                RELEASE_HINT,
                retry_after_s=RELEASED_WITHIN_S,
            )

    def counted(self, who: Identity, settled: int, now: float) -> None:
        """Note that a batch of results counted in full."""
        self._limits.reported(who.subject, now, settled=settled)

    async def judge(self, who: Identity, now: float, *, settled: int = 0, late: int = 0, foreign: int = 0) -> None:
        """Judge a batch of results that did not count in full. People are not judged: they may try things out."""
        if who.role is not Role.NODE:
            return
        self._limits.reported(who.subject, now, settled=settled, late=late, foreign=foreign)
        await self._quarantine_if_due(who, now, NOWHERE)

    async def account(self, who: Identity, now: float, origin: Origin) -> None:
        """Judge the misdeeds of a node in one call. People are not judged."""
        noted = self._dispatcher.misdeeds.take(who.id)
        if not noted or who.role is not Role.NODE:
            return
        self.misdeeds.update({str(misdeed): count for misdeed, count in noted.items()})
        told = ", ".join(f"{misdeed} {count}" for misdeed, count in noted.items())
        log.warning("node %s does what no honest node does: %s", who.id, told, extra=event(Event.MISDEED, node=who.id))
        self._limits.lied(who.subject, now, noted)
        await self._quarantine_if_due(who, now, origin)

    async def _quarantine_if_due(self, who: Identity, now: float, origin: Origin) -> None:
        try:
            self._limits.admit(who.subject, now, cost=0.0)
        except Refused:
            await self._quarantine(who, now, origin)

    async def _quarantine(self, who: Identity, now: float, origin: Origin) -> None:
        """Put a node into quarantine at all coordinators. A person's token has no record to mark: only this coordinator
        refuses it for a while."""
        record = await self._dispatcher.node(who.id) if who.role is Role.NODE else None
        if record is None or record.status is NodeStatus.QUARANTINED:
            return
        self.quarantines += 1
        await self._dispatcher.change_node(who.id, NodeEvent.QUARANTINE)
        charge = f"{who.id}: {self._limits.charge(who.subject)}"
        await self._audit.record(who, QUARANTINE_ACTION, charge, "done", origin.address, origin.today or now)

    def release(self, node_id: str) -> None:
        """Forget everything held against a node."""
        self._limits.release(Identity(Role.NODE, node_id).subject)
