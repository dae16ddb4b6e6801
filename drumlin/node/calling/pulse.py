"""Heartbeats. A node that misses a few of them counts as failed, so it sends them until it leaves.

It must also send them while its last results and bundles are on their way, because coordinators take the store for
complete when no node is present that sends bundles.
"""

from __future__ import annotations

from collections.abc import Callable

from drumlin.clock import CLOCKS, Clocks
from drumlin.node.calling.client import FOREVER, PROBE_TIMEOUT_S
from drumlin.node.calling.wires import CoordinatorWire
from drumlin.protocol import Heartbeat, HeartbeatReply, paths


class Pulse:
    """Sends a heartbeat when one is due, one at a time. `beat` makes the message; `at` is when the first is due."""

    def __init__(
        self,
        node: str,
        client: CoordinatorWire,
        beat: Callable[[float], Heartbeat],
        on_reply: Callable[[HeartbeatReply], None],
        at: float = 0.0,
        clocks: Clocks = CLOCKS,
    ) -> None:
        self._node = node
        self._client = client
        self._beat = beat
        self._on_reply = on_reply
        self._at = at
        self._clocks = clocks
        self.beating = False
        """Whether a heartbeat is on its way."""

    def handed_on(self, client: CoordinatorWire) -> Pulse:
        """The same heartbeats through another client, for a node that is leaving. It ignores what the replies ask
        for."""
        return Pulse(self._node, client, self._beat, lambda reply: None, self._at, self._clocks)

    def due(self) -> float:
        return FOREVER if self.beating else self._at

    def step(self, now: float) -> None:
        if now < self._at or self.beating:
            return
        self.beating = True
        path = paths.HEARTBEAT.format(node_id=self._node)
        self._client.post(path, self._beat(now), HeartbeatReply, self._answered, timeout_s=PROBE_TIMEOUT_S)

    def _answered(self, reply: HeartbeatReply) -> None:
        self.beating = False
        self._at = self._clocks.boot() + reply.next_heartbeat
        self._client.renewed(reply.token)
        self._on_reply(reply)
